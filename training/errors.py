"""What training refuses or stops on; ``training.cli`` turns each into an exit code."""

from data.errors import said


class ConfigError(Exception):
    """The user's mistake, or a disk that does not do its work: one line, exit 2.

    The message says what is wrong, where, and what would be right; whatever it quotes, it is one line.
    """

    def __init__(self, message: str) -> None:
        super().__init__(said(message))


class NonFiniteError(Exception):
    """Training met a NaN or an infinity: one line naming seed, step, layer and tensor, exit 3. Or sampling did."""


class PreemptedError(Exception):
    """Training was asked to stop, and has saved what it did before: one line naming the step, exit 75."""
