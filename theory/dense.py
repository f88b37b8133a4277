"""Exact energies of a dense linear recurrence with complex Gaussian weights, at every width and lag.

    h_0 = x_0,  h_t = g W h_{t-1} + x_t,  W of order n with iid entries CN(0, 1/n), independent of the inputs
    Q_{n,k} = g^{2k} E tr((W^k)^* W^k) / n          energy of one input after k steps
    S_{n,t} = sum_{k=0}^t Q_{n,k}                   E|h_t|^2 / n for inputs with E|x_s|^2 = n

Energies are per coordinate. They are returned as natural logarithms, in NumPy float64 whatever jax is set to;
`theory.dense_jax` is the same in jax. For real weights Q is a lower bound, see `theory.dense_real`. With fresh weights
at each step, or orthogonal or unitary ones, Q = 1 and S = t + 1: the growth comes from sharing W over time.

Source: arXiv 2605.05113 for the setting and the limits; the closed form and the forms that are computed, derived here,

    Q_{n,k} = n/((k+1)(k+2)) [prod_{j=1}^{k+1} (1 + j/n) - prod_{j=1}^{k+1} (1 - j/n)]                 (1)
            = 1 + C(k+2, 4)/n^2 + O(k^8/n^4)

were checked against a full Wick enumeration for k <= 9. Neither gammaln (it loses 2e-4 at n = 1e6, k = 1) nor the
plain difference of products (it overflows near k = sqrt(1418 n)) is used.

Error, measured against 20 digits up to log Q = 5,700: |d log Q| and |d log S| below 2e-11 by sums, 1e-12 by the
recurrence; relative error of Q below 2e-13 and 4e-15 while log Q < 50.
"""

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any, assert_never

import numpy as np
from numpy.typing import ArrayLike

from theory.checks import finite, gains, lags, one, widths
from theory.laws import Method

TOO_LARGE = 1e150
"""Where the recurrence rescales its numbers."""


def log_q(n: ArrayLike, k: ArrayLike, gain: ArrayLike = 1.0, *, method: Method = Method.SUMS) -> np.ndarray:
    """log Q_{n,k}, equation (1) of this module; n, k and gain broadcast.

    Raises:
      ValueError: n < 1, k < 0 or above 1e6, gain <= 0.
    """
    n, k, gain = np.broadcast_arrays(widths(n), lags("k", k), gains(gain))
    return _evaluate(n, k, gain, lambda *curve: log_q_curve(*curve, method=method))


def log_s(n: ArrayLike, t: ArrayLike, gain: ArrayLike = 1.0, *, method: Method = Method.SUMS) -> np.ndarray:
    """log S_{n,t} = log sum_{k=0}^t Q_{n,k}; n, t and gain broadcast.

    Raises:
      ValueError: n < 1, t < 0 or above 1e6, gain <= 0.
    """
    n, t, gain = np.broadcast_arrays(widths(n), lags("t", t), gains(gain))
    return _evaluate(n, t, gain, lambda *curve: np.logaddexp.accumulate(log_q_curve(*curve, method=method)))


def log_energy(n: int, input_energy: ArrayLike, gain: float = 1.0) -> np.ndarray:
    """log E|h_t|^2/n = log sum_{k=0}^t Q_{n,k} e_{t-k} for t = 0..T-1, from e_s = E|x_s|^2/n, shape (T,).

    Exact for any inputs independent of W, correlated or constant: W and exp(i phi) W have one law, so that all cross
    terms cancel. Work grows as T^2.

    Raises:
      ValueError: n < 1, gain <= 0, several of them, input_energy not a sequence of finite numbers >= 0.
    """
    width, g, energy = one("n", widths(n)), one("gain", gains(gain)), finite("input_energy", input_energy)
    if energy.ndim != 1 or not energy.size or energy.min() < 0:
        raise ValueError("input_energy: expected a sequence of finite numbers >= 0, one for each time")
    with np.errstate(divide="ignore"):
        log_input = np.log(energy)
    log_gain = log_q(width, np.arange(len(energy)), g)
    return np.array([np.logaddexp.reduce(log_gain[: t + 1] + log_input[t::-1]) for t in range(len(energy))])


def gain_for_horizon(n: ArrayLike, T: ArrayLike) -> np.ndarray:
    """The gain g with g^{2T} Q_{n,T} = 1: g = Q_{n,T}^{-1/(2T)}. No fixed g < 1 bounds the mean for all T.

    Raises:
      ValueError: n < 1, T < 1 or above 1e6.
    """
    horizon = lags("T", T, 1, "Q is 1 at 0 for every gain, a horizon is at least 1")
    return np.exp(-log_q(n, horizon) / (2 * horizon))


def log_q_curve(n: int, gain: float, longest: int, *, method: Method = Method.SUMS) -> np.ndarray:
    """log Q_{n,k} for k = 0..longest, shape (longest + 1,)."""
    method = Method(method)
    match method:
        case Method.SUMS:
            curve = sums(np, n, longest)
        case Method.RECURRENCE:
            curve = _recurrence(n, longest)
        case unreachable:
            assert_never(unreachable)
    return curve + 2 * np.arange(longest + 1) * math.log(gain)


def sums(xp: ModuleType | Any, n: Any, longest: int) -> Any:
    """log Q_{n,k} at gain 1 for k = 0..longest in the arrays of xp, numpy or jax.numpy; n may be traced.

    k+1 <  n:  log n - log((k+1)(k+2)) + A + B/2 + log(1 - exp(-2A)),  A = sum_{j<=k+1} artanh(j/n),
                                                                       B = sum_{j<=k+1} log(1 - (j/n)^2)
    k+1 >= n:  log n - log((k+1)(k+2)) + sum_{j<=k+1} log(1 + j/n)     (the second product of (1) is 0)
    """
    j = xp.arange(1, longest + 2)
    ratio = j / n
    inside = ratio < 1
    # Masked before the functions that are infinite at 1: a gradient would be nan through the branch not taken.
    below = xp.where(inside, ratio, 0.0)
    a, b = xp.cumsum(xp.arctanh(below)), xp.cumsum(xp.log1p(-(below**2)))
    both = a + b / 2 + xp.log(-xp.expm1(-2 * xp.where(inside, a, 1.0)))
    first = xp.cumsum(xp.log1p(ratio))
    return xp.log(n * 1.0) - xp.log(j * 1.0) - xp.log(j + 1.0) + xp.where(inside, both, first)


def _recurrence(n: int, longest: int) -> np.ndarray:
    """D = 0, M = 2;  r = (k+1)/n,  (D, M) <- (D + r M, M + r D),  Q_k = n D / ((k+1)(k+2)).

    D and M are the difference and the sum of the two products of (1); all terms are positive.
    """
    d, m, scale = 0.0, 2.0, 0.0
    found = np.empty(longest + 1)
    for k in range(longest + 1):
        r = (k + 1) / n
        d, m = d + r * m, m + r * d
        if m > TOO_LARGE:
            d, m, scale = d / TOO_LARGE, m / TOO_LARGE, scale + math.log(TOO_LARGE)
        found[k] = math.log(n * d / ((k + 1) * (k + 2))) + scale
    return found


def _evaluate(n: np.ndarray, t: np.ndarray, gain: np.ndarray, curve: Callable[..., np.ndarray]) -> np.ndarray:
    """curve(width, gain, longest) at every element: one curve for each different pair of width and gain."""
    found = np.empty(n.shape)
    for width, g in {(int(a), float(b)) for a, b in zip(n.flat, gain.flat, strict=True)}:
        here = (n == width) & (gain == g)
        found[here] = curve(width, g, int(t[here].max()))[t[here]]
    return found[()]
