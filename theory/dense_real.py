"""Dense linear recurrences with real Gaussian weights, entries iid N(0, 1/n): exact where it is known, else a bound.

    n^{k+1} Q^R_{n,k} is a polynomial in n with integer coefficients >= 0, known for k <= 10.

It dominates the complex polynomial coefficient by coefficient, because the complex Wick pairings are some of the real
ones; so Q^R_{n,k} >= Q_{n,k} for all n and k (`dense.log_q` is the lower bound, proven). Q^R_{1,k} = (2k-1)!!. The
coefficient of n^{-2} is C(k+2, 4) + sum_{m=1}^{floor(k/2)} (r+1)(3r+2)/2, r = k - 2m: Q^R - Q ~ c^3/(4 sqrt n) at
k = c sqrt n for small c, so the critical scale is sqrt n again. That the limit curve is the complex one is not proven.

At the widths in use real weights lie far above: Q^R/Q is 1.2 to 1.6 at c = 2 and 2.5 to 5 at c = 3. Source: enumerated
here; the setting is arXiv 2605.05113's.
"""

import numpy as np
from numpy.typing import ArrayLike

from theory.checks import lags, one, widths

LARGEST_EXACT = 10

POLYNOMIALS = {
    0: (1,),
    1: (0, 1),
    2: (2, 0, 1),
    3: (4, 10, 0, 1),
    4: (48, 28, 28, 0, 1),
    5: (304, 468, 110, 62, 0, 1),
    6: (3656, 3880, 2426, 314, 118, 0, 1),
    7: (41_312, 58_312, 25_512, 9046, 748, 204, 0, 1),
    8: (609_600, 800_624, 470_832, 116_900, 27_184, 1556, 328, 0, 1),
    9: (9_643_008, 13_980_320, 7_728_888, 2_609_760, 423_642, 70_354, 2952, 500, 0, 1),
    10: (176_574_720, 256_855_424, 158_093_464, 50_486_248, 11_255_770, 1_295_086, 162_440, 5192, 730, 0, 1),
}
"""k -> coefficients of n, n^2, ..., n^{k+1} in n^{k+1} Q^R_{n,k}."""

CROSS = {
    (2, 0): (1,),
    (4, 0): (2, 1),
    (6, 0): (8, 6, 1),
    (8, 0): (48, 44, 12, 1),
    (10, 0): (384, 400, 140, 20, 1),
    (3, 1): (1, 2),
    (4, 2): (8, 4, 3),
    (5, 1): (6, 7, 2),
    (5, 3): (36, 54, 11, 4),
    (6, 2): (44, 42, 16, 3),
}
"""(k, l) -> coefficients of n, n^2, ... in n^{(k+l)/2} E tr(W^k (W^l)^T)."""


def real_q(n: ArrayLike, k: ArrayLike) -> np.ndarray:
    """Q^R_{n,k} itself, exact for k <= 10; n and k broadcast.

    Raises:
      ValueError: n < 1, k < 0, or k > 10, where no closed form is known.
    """
    n, k = np.broadcast_arrays(widths(n), _known("k", k))
    return np.array([_at(POLYNOMIALS[int(b)], int(a)) for a, b in zip(n.flat, k.flat, strict=True)]).reshape(n.shape)[
        ()
    ]


def real_s(n: ArrayLike, t: ArrayLike) -> np.ndarray:
    """S^R_{n,t} = sum_{k<=t} Q^R_{n,k}, exact for t <= 10, for inputs independent of each other and of zero mean.

    Under correlated inputs the cross terms of even lag remain (`real_cross_moment`): a constant input raises S by the
    factor 1 + t^2/(6n) to leading order.

    Raises:
      ValueError: n < 1, t < 0, or t > 10.
    """
    n, t = np.broadcast_arrays(widths(n), _known("t", t))
    sums = [real_q(int(a), np.arange(int(b) + 1)).sum() for a, b in zip(n.flat, t.flat, strict=True)]
    return np.array(sums).reshape(n.shape)[()]


def real_cross_moment(n: int, k: int, l: int) -> float:
    """E tr(W^k (W^l)^T) / n of real W; 0 if k - l is odd, and for complex W always.

    For l = 0 and k = 2m it is (1/n) prod_{j=1}^{m-1} (1 + 2j/n) at every m; other pairs are tabulated (k + l <= 10).

    Raises:
      ValueError: a pair that is not known.
    """
    width = one("n", widths(n))
    k, l = sorted((one("k", lags("k", k)), one("l", lags("l", l))), reverse=True)
    if k == l:
        return float(real_q(width, k))
    if (k - l) % 2:
        return 0.0
    if l == 0:
        return float(np.prod(1 + 2 * np.arange(1, k // 2) / width) / width)
    if (k, l) not in CROSS:
        raise ValueError(f"k, l = {k}, {l}: no closed form is known, expected l = 0 or one of {sorted(CROSS)}")
    coefficients = CROSS[k, l]
    return sum(c * width ** (e + 1.0 - (k + l) / 2) for e, c in enumerate(coefficients)) / width


def _known(name: str, k: ArrayLike) -> np.ndarray:
    found = lags(name, k)
    if found.size and found.max() > LARGEST_EXACT:
        raise ValueError(
            f"{name} = {found.max()}: real weights are exact to {LARGEST_EXACT} only; "
            "log_q and log_s are lower bounds beyond, theory.monte_carlo estimates"
        )
    return found


def _at(coefficients: tuple[int, ...], n: int) -> float:
    """sum_e c_e n^{e - k - 1}: the polynomial over n^{k+1}, by Horner's rule in 1/n. All terms are positive."""
    value = 0.0
    for coefficient in coefficients:
        value = value / n + coefficient
    return value
