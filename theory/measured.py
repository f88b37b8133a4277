"""Energies of one dense recurrence on given inputs, for comparison with the theory.

h_0 = x_0,  h_t = W h_{t-1} + x_t
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

LOWEST = np.finfo(np.float64).min
"""Above the logarithm of 0, which could not be subtracted from itself."""


class Measured(NamedTuple):
    """log of the mean over sequences of |h_t|^2/n, shape (T,), and how many sequences that is."""

    log_energy: np.ndarray
    sequences: int


def measure(weight: ArrayLike, inputs: ArrayLike) -> Measured:
    """Runs W, (n, n), on inputs x, (sequences, T, n), in float64. No number is too large or too small: the largest
    entries of W, of x_t and of the states are kept apart, as logarithms.

    No sequence is discarded, which would bias the mean.

    Raises:
      ValueError: shapes that do not fit, an empty batch, values that are not finite numbers.
    """
    w, u = np.asarray(weight), np.asarray(inputs)
    if w.ndim != 2 or w.shape[0] != w.shape[1] or u.ndim != 3 or u.shape[2] != w.shape[0] or not u.size:
        raise ValueError(f"W {w.shape} on inputs {u.shape}: expected (n, n) and (sequences, T, n)")
    if not all(a.dtype.kind in "iufc" and np.isfinite(a).all() for a in (w, u)):
        raise ValueError("W and inputs: expected finite numbers")
    w, log_w = _scaled(w)
    h, log_h, found = np.zeros_like(u[:, 0]), -np.inf, []
    for x, log_x in map(_scaled, u.swapaxes(0, 1)):
        log_wh = log_w + log_h
        top = max(log_wh, log_x, LOWEST)
        h, log_h = _scaled(h @ w.T * np.exp(log_wh - top) + x * np.exp(log_x - top))
        log_h += top
        with np.errstate(divide="ignore"):
            found.append(np.log((np.abs(h) ** 2).mean()) + 2 * log_h)
    return Measured(np.array(found), len(u))


def _scaled(a: np.ndarray) -> tuple[np.ndarray, float]:
    """a over its largest real or imaginary part, and the logarithm of that; 0 and -inf for zeros."""
    a = a.astype(np.result_type(a, np.float64))
    largest = max(np.abs(np.real(a)).max(), np.abs(np.imag(a)).max())
    return (a / largest, np.log(largest)) if largest else (a, -np.inf)
