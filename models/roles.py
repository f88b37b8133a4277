"""What a parameter of a layer is for; the optimiser groups are made from it (see `training.optim`)."""

from scans import Choice


class Role(Choice):
    """RECURRENCE: decays, phases. BASIS: the matrix behind a basis. STEP_SIZE: Delta. INPUT, OUTPUT, SKIP: B, C and D.

    CONSTANT: not trained. PROJECTION: a dense matrix of a layer that has no diagonal recurrence. ELEMENTS: the
    projection to the elements of matrices that are multiplied over time, whose rate decides how long the products stay
    bounded.
    """

    RECURRENCE = "recurrence"
    BASIS = "basis"
    STEP_SIZE = "step_size"
    INPUT = "input"
    OUTPUT = "output"
    SKIP = "skip"
    CONSTANT = "constant"
    PROJECTION = "projection"
    ELEMENTS = "elements"
