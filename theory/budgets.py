"""What a width allows: when the mean energy passes a level, when it overflows, which gain holds it at a horizon.

Complex Gaussian weights, inputs of unit energy per coordinate, h_0 = x_0; for real weights the energies are lower
bounds, the times upper bounds. All of it is about the mean, which rare draws of W carry: it describes a typical draw up
to t = 2 sqrt n or so, and half of all draws pass a level far later than the mean does (n = 256: the mean of S overflows
float32 at t = 247, half of the draws not before 1,150). `theory.monte_carlo` gives the quantiles over draws.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple, assert_never

import numpy as np

from theory.checks import LONGEST, finite, lags, one, widths
from theory.dense import gain_for_horizon, log_q_curve, log_s
from theory.laws import Choice
from theory.limits import Regime, regime

LEVELS = (1.1, 2.0, 10.0, 1000.0)

LARGEST = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "float64": 1.7976931348623157e308,
}
"""The largest finite number of each type."""


class Quantity(Choice):
    """What is compared with a level."""

    GAIN = "Q"
    """Q_{n,k}, the energy of one input."""
    GROWTH = "S/(t+1)"
    """The mean square state over what untied or orthogonal weights would give."""
    SQUARED_NORM = "n S"
    """E|h_t|^2, what a sum of squares holds."""
    MEAN_SQUARE = "S"
    """E|h_t|^2 / n."""
    RMS = "sqrt S"
    """The root mean square entry: the state itself."""


STATE = (Quantity.SQUARED_NORM, Quantity.MEAN_SQUARE, Quantity.RMS)
"""What can overflow."""


class Budget(NamedTuple):
    """What `budget` says of a width and a horizon.

    c, regime: T/sqrt n and where it lies.
    log_growth: log(S/(T+1)) at T, of the mean.
    mean_passes: level -> first t at which the mean S/(t+1) is above it.
    mean_overflows: type -> quantity -> first t at which its mean is above the largest number of the type. None: not
        within 1e6 steps.
    gain: the gain with Q = 1 at T.
    notes: what the numbers do not say.
    """

    c: float
    regime: Regime
    log_growth: float
    mean_passes: Mapping[float, int | None]
    mean_overflows: Mapping[str, Mapping[Quantity, int | None]]
    gain: float
    notes: tuple[str, ...]


def budget(n: int, T: int) -> Budget:
    """Everything that the mean energy of a dense recurrence of width n says about sequences of T >= 1 steps.

    Raises:
      ValueError: n < 1, T < 1 or above 1e6.
    """
    n, T = one("n", widths(n)), one("T", lags("T", T))
    gain = float(gain_for_horizon(n, T))
    c, label = regime(n, T)
    return Budget(
        c=c,
        regime=label,
        log_growth=float(log_s(n, T)) - math.log(T + 1),
        mean_passes={level: first_passage(n, math.log(level), Quantity.GROWTH) for level in LEVELS},
        mean_overflows={name: overflow_times(n, name) for name in LARGEST},
        gain=gain,
        notes=_notes(c),
    )


def overflow_times(n: int, dtype: str) -> dict[Quantity, int | None]:
    """The first t at which the mean of each quantity in STATE overflows a type of LARGEST."""
    if dtype not in LARGEST:
        raise ValueError(f"dtype = {dtype!r}: expected one of {', '.join(LARGEST)}")
    return {quantity: first_passage(n, math.log(LARGEST[dtype]), quantity) for quantity in STATE}


def first_passage(n: int, log_level: float, quantity: Quantity) -> int | None:
    """The first t at which a quantity of the mean is above exp(log_level); None if not within 1e6 steps.

    Raises:
      ValueError: n < 1, log_level not finite.
    """
    width, level, quantity = one("n", widths(n)), one("log_level", finite("log_level", log_level)), Quantity(quantity)
    longest = 16
    while True:
        above = _curve(width, longest, quantity) > level
        if above.any():
            return int(np.argmax(above))
        if longest == LONGEST:
            return None
        longest = min(4 * longest, LONGEST)


def _curve(n: int, longest: int, quantity: Quantity) -> np.ndarray:
    """Logarithms for t = 0..longest."""
    q = log_q_curve(n, 1.0, longest)
    s = np.logaddexp.accumulate(q)
    match quantity:
        case Quantity.GAIN:
            return q
        case Quantity.GROWTH:
            return s - np.log1p(np.arange(longest + 1))
        case Quantity.SQUARED_NORM:
            return s + math.log(n)
        case Quantity.MEAN_SQUARE:
            return s
        case Quantity.RMS:
            return s / 2
        case unreachable:
            assert_never(unreachable)


def _notes(c: float) -> tuple[str, ...]:
    found = ("complex weights: for real ones the energy is higher (a lower bound)",)
    found += ("independent inputs: with real weights correlated ones add energy",)
    if c > 2:
        found += (f"c = {c:.2f} > 2: rare draws carry the mean, a typical draw has less (theory.monte_carlo)",)
    return found
