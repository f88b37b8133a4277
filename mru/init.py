"""Initial distributions of the MRU (mikayahlevi/mru-lm).

W_in starts at exactly 0: every M_t is then I, and the layer adds one constant vector to every token.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mru.config import MRUConfig


def w_in(config: MRUConfig) -> Float[Array, "D Hz"]:
    """0."""
    return jnp.zeros((config.width, config.heads * config.elements))


def w_down(key: jax.Array, config: MRUConfig) -> Float[Array, "H n c"]:
    """N(0, (0.02 sqrt(n))^2): the flattened identity that it reads has mean square 1/n."""
    chunk = config.width // (config.order * config.heads)
    return 0.02 * math.sqrt(config.order) * jax.random.normal(key, (config.heads, config.order, chunk))


def w_out(key: jax.Array, config: MRUConfig) -> Float[Array, "D D"]:
    """N(0, (0.02 / sqrt(sublayers))^2)."""
    return 0.02 / math.sqrt(config.sublayers) * jax.random.normal(key, (config.width, config.width))
