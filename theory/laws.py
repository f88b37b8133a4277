"""The closed choices of this package."""

import enum


class Choice(enum.StrEnum):
    """A closed choice, or the string that names it: whoever takes one coerces it. `scans.Choice` without jax."""

    @classmethod
    def _missing_(cls, value: object):
        known = ", ".join(member.value for member in cls)
        raise ValueError(f"unknown {cls.__name__} {value!r}: expected one of {known}")


class Ensemble(Choice):
    """The law of a dense W of order n, entries iid of variance 1/n ("Glorot")."""

    COMPLEX = "complex"
    """CN(0, 1/n)."""
    REAL = "real"
    """N(0, 1/n)."""


class Method(Choice):
    """How exact energies are computed: two forms of the same formula, neither of which overflows."""

    SUMS = "sums"
    """Cumulative sums of logarithms."""
    RECURRENCE = "recurrence"
    """A recurrence of positive numbers, rescaled when they grow: no subtraction, the more accurate one."""


class Gamma(Choice):
    """The input gain of an LRU, as in its config."""

    LEARNED = "learned"
    """sqrt(1 - |lambda|^2) at init, then a free parameter."""
    RECOMPUTED = "recomputed"
    """sqrt(1 - |lambda|^2) always."""
    OFF = "off"
    """1."""


class Start(Choice):
    """What a RotRNN does with the first input of a sequence."""

    ZERO = "zero"
    """Nothing special: the energy rises from 0."""
    STATIONARY = "stationary"
    """Scales it by 1/sqrt(1 - gamma^2): under white inputs the energy is 1 from the first update on."""


class Origin(Choice):
    """What t = 0 means on a curve."""

    FIRST_INPUT = "h_0 = x_0"
    """t counts lags: t + 1 inputs were absorbed."""
    ZERO_STATE = "h_0 = 0"
    """t counts updates: t inputs were absorbed."""


class Unit(Choice):
    """What an energy is the energy of."""

    NATIVE = "native"
    """A coordinate (dense), a mode (LRU, S5: one complex number) or a head (RotRNN)."""
    REAL = "real"
    """One real number of the state, the unit in which families of equal real state size compare."""
