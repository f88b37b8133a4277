"""Closed choices: enums whose unknown values are refused together with the list of known ones."""

import enum
from typing import assert_never

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
    """How a recurrence is evaluated. AUTO is resolved when the program is traced."""

    AUTO = "auto"
    SEQUENTIAL = "sequential"
    ASSOCIATIVE = "associative"


def resolve(method: ScanMethod | str) -> ScanMethod:
    """The method that AUTO stands for on this platform.

    A loop over time is the fastest form on a CPU. On an accelerator each of its T trips would wait for the host,
    so the parallel form is taken there.
    """
    match ScanMethod(method):
        case ScanMethod.AUTO:
            on_cpu = jax.default_backend() == "cpu"
            return ScanMethod.SEQUENTIAL if on_cpu else ScanMethod.ASSOCIATIVE
        case ScanMethod.SEQUENTIAL | ScanMethod.ASSOCIATIVE as chosen:
            return chosen
        case unreachable:
            assert_never(unreachable)
