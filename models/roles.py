"""What a parameter of a layer is for; the optimiser groups are made from it (see `training.optim`)."""

from scans import Choice


class Role(Choice):
    """RECURRENCE: decays, phases, bases. STEP_SIZE: Delta. INPUT, OUTPUT, SKIP: B, C and D. CONSTANT: not trained."""

    RECURRENCE = "recurrence"
    STEP_SIZE = "step_size"
    INPUT = "input"
    OUTPUT = "output"
    SKIP = "skip"
    CONSTANT = "constant"
