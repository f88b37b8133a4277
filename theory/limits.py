"""Limits of the dense energies: which regime a width and a lag are in, and what holds there.

    subcritical    t << sqrt n                 Q - 1 ~ t^4/(24 n^2),  S/(t+1) - 1 ~ t^4/(120 n^2)
    critical       t = c sqrt n                Q -> q(c) = (2/c^2) sinh(c^2/2),  S/sqrt n -> I(c) = int_0^c q
    supercritical  sqrt n << t << n^{2/3}      S ~ (n^2/t^3) exp(t^2/2n)
    beyond         t >~ n^{2/3}                S ~ ((n+t)/t) Q, Q ~ n/((t+1)(t+2)) prod_{j<=t+1} (1 + j/n)

The supercritical form is often quoted for all sqrt n << t << n. As a statement about the ratio it ends at n^{2/3}: in
log prod (1 + j/n) = t^2/2n - t^3/6n^2 + ... the cubic term then diverges and the ratio goes to 0; only
log S ~ t^2/2n survives. The last line holds for all t >> sqrt n, with error ~ 3n/t^2.

The errors of the critical limits are O(n^{-1/2}); the exact values are in `theory.dense`. Source: arXiv 2605.05113 for
the regimes; the corrected range and the last line, derived here.
"""

import enum
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import gammaln

from theory.checks import lags, one, widths, within

LARGEST_C = 37.0
"""Beyond it q(c) leaves the range of float64."""

CRITICAL_FROM, CRITICAL_TO = 0.5, 5.0
"""Where the limits cross over, by convention: Q is within 0.3 % of 1 below the first, and above the second the
supercritical form is within 16 % of the critical limit."""


class Regime(enum.StrEnum):
    """Which of the forms above describes S."""

    SUBCRITICAL = "subcritical"
    CRITICAL = "critical"
    SUPERCRITICAL = "supercritical"
    BEYOND = "beyond n^(2/3)"


class Place(NamedTuple):
    """c = t/sqrt n and the regime."""

    c: float
    regime: Regime


def regime(n: int, t: int) -> Place:
    """Where (n, t) lies: c below 0.5 is subcritical, below 5 critical, then t decides by n^{2/3}.

    For n < 5^6 = 15,625 the supercritical window is empty: n^{2/3} comes before 5 sqrt n.

    Raises:
      ValueError: n < 1, t < 0 or above 1e6.
    """
    width, lag = one("n", widths(n)), one("t", lags("t", t))
    c = lag / math.sqrt(width)
    if c < CRITICAL_FROM:
        return Place(c, Regime.SUBCRITICAL)
    if c < CRITICAL_TO:
        return Place(c, Regime.CRITICAL)
    return Place(c, Regime.SUPERCRITICAL if lag <= width ** (2 / 3) else Regime.BEYOND)


def critical(c: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """(q(c), I(c)): the limits of Q_{n,k} and S_{n,t}/sqrt n at k, t = c sqrt n, n -> infinity.

    q(c) = (2/c^2) sinh(c^2/2);  I(c) = int_0^c q = c sum_m z^{2m} / ((4m+1) (2m+1)!), z = c^2/2, all terms positive.

    Raises:
      ValueError: c outside [0, 37], where q overflows; the logarithms of finite widths go on (log_q, log_s).
    """
    c = within("c", c, 0.0, LARGEST_C, "beyond it q overflows (log_q and log_s do not)")
    z = c**2 / 2
    q = np.sinh(z) / np.where(z > 0, z, 1.0) + (z == 0)
    term, integral, m = np.ones_like(c), np.ones_like(c), 0
    while (term > 1e-17 * integral).any():
        term = term * z**2 / ((2 * m + 2) * (2 * m + 3))
        m += 1
        integral = integral + term / (4 * m + 1)
    return q[()], (c * integral)[()]


class Passage(NamedTuple):
    """The c at which the limits of S/(t+1), that is I(c)/c, and of Q pass a level."""

    s: float
    q: float


def critical_passage(level: float) -> Passage:
    """The c with I(c)/c = level and with q(c) = level.

    Raises:
      ValueError: a level below 1 + 1e-9, where rounding moves c by more than 1e-7 of itself, or above 1e250.
    """
    level = one("level", within("level", level, 1 + 1e-9, 1e250, "the limits rise from 1, below 1 + 1e-9 in rounding"))

    def root(curve):
        return float(brentq(lambda c: math.log(curve(c)) - math.log(level), 1e-3, LARGEST_C, xtol=1e-14, rtol=1e-14))  # pyright: ignore[reportArgumentType]

    return Passage(root(lambda c: critical(c)[1] / c), root(lambda c: critical(c)[0]))


def log_s_claim(n: ArrayLike, t: ArrayLike) -> np.ndarray:
    """log of (n^2/t^3) exp(t^2/2n): S for sqrt n << t << n^{2/3} only. For t beyond, see `log_s_supercritical`.

    Raises:
      ValueError: n < 1, t < 1 or above 1e6.
    """
    n, t = _from_one(n, t)
    return 2 * np.log(n) - 3 * np.log(t) + t**2 / (2 * n)


def log_s_supercritical(n: ArrayLike, t: ArrayLike) -> np.ndarray:
    """log of ((n+t)/t) n/((t+1)(t+2)) prod_{j<=t+1} (1 + j/n): S for t >> sqrt n without an upper limit.

    Relative error of S ~ 3n/t^2, besides rounding of eps n log n by gammaln. t may exceed the range of `log_s`.

    Raises:
      ValueError: n < 1, t < 1 or above 1e300.
    """
    n, t = widths(n).astype(np.float64), within("t", t, 1, 1e300, "the form holds for t >> sqrt n")
    product = gammaln(n + t + 2) - gammaln(n + 1) - (t + 1) * np.log(n)
    return np.log((n + t) / t) + np.log(n) - np.log(t + 1) - np.log(t + 2) + product


def _from_one(n: ArrayLike, t: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    t = lags("t", t, 1, "the form holds for t >> sqrt n, expected at least 1")
    return widths(n).astype(np.float64), t.astype(np.float64)
