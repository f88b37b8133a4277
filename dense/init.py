"""Initial distribution of the dense recurrence."""

import math

import jax
from jaxtyping import Array, Float

from dense.config import Weights


def glorot(
    key: jax.Array, rows: int, columns: int, weights: Weights, gain: float = 1.0
) -> Float[Array, "rows columns *parts"]:
    """Independent entries of variance gain^2/columns: N(0, .), or CN(0, .) with real and imaginary part last.

    Of a square matrix it is the law of Glorot and Bengio (2010), with gain 1.
    """
    std = gain / math.sqrt(columns)
    if weights is Weights.REAL:
        return std * jax.random.normal(key, (rows, columns))
    return std * math.sqrt(0.5) * jax.random.normal(key, (rows, columns, 2))
