"""Energies of one dense recurrence on given inputs, for comparison with the theory.

h_0 = x_0,  h_t = W h_{t-1} + x_t
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

LARGE = 1e100


class Measured(NamedTuple):
    """log of the mean over sequences of |h_t|^2/n, shape (T,), and how many sequences that is."""

    log_energy: np.ndarray
    sequences: int


def measure(weight: ArrayLike, inputs: ArrayLike) -> Measured:
    """Runs W, (n, n), on inputs x, (sequences, T, n), in float64: states are rescaled before they overflow.

    No sequence is discarded, which would bias the mean.

    Raises:
      ValueError: shapes that do not fit, an empty batch, values that are not finite.
    """
    weight, inputs = np.asarray(weight), np.asarray(inputs)
    n = weight.shape[0]
    if weight.shape != (n, n) or inputs.ndim != 3 or inputs.shape[2] != n or not inputs.size:
        raise ValueError(f"W {weight.shape} on inputs {inputs.shape}: expected (n, n) and (sequences, T, n)")
    if not (np.isfinite(weight).all() and np.isfinite(inputs).all()):
        raise ValueError("W and inputs: expected finite numbers")
    weight = weight.astype(np.result_type(weight, np.float64))
    h = np.zeros(inputs[:, 0].shape, np.result_type(weight, inputs))
    log_scale, found = 0.0, []
    for x in inputs.swapaxes(0, 1):
        h = h @ weight.T + x * np.exp(-log_scale)
        energy = float((np.abs(h) ** 2).sum() / h.size)
        with np.errstate(divide="ignore"):
            found.append(np.log(energy) + 2 * log_scale)
        if energy > LARGE**2:
            h, log_scale = h / LARGE, log_scale + np.log(LARGE)
    return Measured(np.array(found), len(inputs))
