"""Initial distributions of attention, those of GPT-2 (Radford et al., 2019).

W_q, W_k, W_v ~ N(0, 0.02^2); W_out ~ N(0, (0.02 / sqrt(L))^2) with L residual sublayers in the model.
"""

import math

import jax
from jaxtyping import Array, Float

STD = 0.02


def projection(key: jax.Array, width: int, sublayers: int = 1) -> Float[Array, "D D"]:
    """A square projection; that of the output is given the number of sublayers."""
    return STD / math.sqrt(sublayers) * jax.random.normal(key, (width, width))
