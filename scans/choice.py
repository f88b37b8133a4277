"""Closed choices: enums whose unknown values are refused together with the list of known ones."""

import enum

import jax


class Choice(enum.StrEnum):
    """A closed choice named by a string, as configs write it."""

    @classmethod
    def _missing_(cls, value: object):
        known = ", ".join(member.value for member in cls)
        raise ValueError(f"unknown {cls.__name__} {value!r}: expected one of {known}")


class Direction(Choice):
    """Which way a layer reads its input."""

    FORWARD = "forward"
    BACKWARD = "backward"
    BIDIRECTIONAL = "bidirectional"


class ScanMethod(Choice):
    """How a recurrence is evaluated. AUTO is resolved when the program is traced.

    CHUNKED is not offered by `linear_scan`.
    """

    AUTO = "auto"
    SEQUENTIAL = "sequential"
    ASSOCIATIVE = "associative"
    CHUNKED = "chunked"


def resolve(method: ScanMethod | str, where: str, *, chunked: bool = False) -> ScanMethod:
    """The method that AUTO stands for on this platform; any other one is itself.

    A loop over time is the fastest form on a CPU. On an accelerator each of its T trips would wait for the host,
    so the parallel form is taken there.

    Raises:
        ValueError: for CHUNKED where it is not offered (`chunked`), naming `where` and the methods that are.
    """
    chosen = ScanMethod(method)
    if chosen is ScanMethod.AUTO:
        return ScanMethod.SEQUENTIAL if jax.default_backend() == "cpu" else ScanMethod.ASSOCIATIVE
    if chosen is ScanMethod.CHUNKED and not chunked:
        offered = ", ".join(known for known in ScanMethod if known is not ScanMethod.CHUNKED)
        raise ValueError(f"{where}: method={chosen} is not offered here: expected one of {offered}")
    return chosen
