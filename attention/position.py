"""Position codes: what is done to queries and keys before their products are taken. All (B, T, H, d), d components."""

from typing import assert_never

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from attention.config import MRUVariant
from linalg import cayley, expm_skew, skew_of_elements

BASE = 10000.0
XPOS_SCALE = 512
XPOS_GAMMA = 0.4


def frequencies(size: int, dtype, first: int = 0) -> Float[Array, " pairs"]:
    """theta_i = 10000^(-2 i / d) for the d/2 pairs, i from `first`; radians per token."""
    return jnp.asarray(BASE ** (-2 * np.arange(first, first + size // 2) / size), dtype)


def rotate_pairs(x: Float[Array, "*axes d"], angles: Float[Array, "*axes2 pairs"]) -> Float[Array, "*axes3 d"]:
    """Components (2i, 2i+1) turned by angle i: (a, b) -> (a cos - b sin, a sin + b cos)."""
    a, b = x[..., 0::2], x[..., 1::2]
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    turned = jnp.stack([a * cos - b * sin, a * sin + b * cos], axis=-1)
    return turned.reshape(*turned.shape[:-2], x.shape[-1])


def rope(x: Float[Array, "B T H d"], position: Int[Array, "B T"]) -> Float[Array, "B T H d"]:
    """Pair i turned by position * theta_i, so that products depend on differences of positions only.

    Source: arXiv 2104.09864.
    """
    angles = position[:, :, None, None].astype(x.dtype) * frequencies(x.shape[-1], x.dtype)
    return rotate_pairs(x, angles)


def xpos_512(
    q: Float[Array, "B T H d"], k: Float[Array, "B T H d"], position: Int[Array, "B T"]
) -> tuple[Float[Array, "B T H d"], Float[Array, "B T H d"]]:
    """xPos with the positions of the rotation divided by 512, for i = 1 .. d/2 and p = position / 512:

        pair i of q and k turned by p theta_i;  q times zeta_i^p, k times zeta_i^-p,
        zeta_i = (4 i / d + 0.4 d) / (1 + 0.4 d).

    xPos itself divides the exponent only, starts at i = 0 and has zeta_i = (2 i / d + 0.4) / 1.4 <= 1. With this code
    256 tokens turn a pair by at most 0.37 radians (d = 64), and pairs with zeta_i > 1 grow with the distance. It is
    here to reproduce runs, under a name that says so. The published code also counts positions from the middle of its
    longest sequence; in the products of q and k that shift cancels.

    Source: xPos, arXiv 2212.10554; this form: github.com/mikayahlevi/transformer-train-script, model.py (Apache-2.0).
    """
    size = q.shape[-1]
    p = position[:, :, None, None].astype(q.dtype) / XPOS_SCALE
    angles = p * frequencies(size, q.dtype, first=1)
    alpha = XPOS_GAMMA * size
    zeta = (4 * np.arange(1, size // 2 + 1) / size + alpha) / (1 + alpha)
    scale = jnp.exp(p * jnp.asarray(np.log(zeta).repeat(2), q.dtype))
    return rotate_pairs(q, angles) * scale, rotate_pairs(k, angles) / scale


def mru_matrices(
    e: Float[Array, "B T H blocks z"], order: int, variant: MRUVariant
) -> Float[Array, "B T H blocks order order"]:
    """M = f(K), K the skew matrix of the z = n (n - 1) / 2 elements (`linalg.skew_of_elements`).

    M = (I - K)^-1 (I + K) or exp(K): orthogonal, the identity at 0.
    """
    k = skew_of_elements(e, order)
    match variant:
        case MRUVariant.ORTHOGONAL_CAYLEY:
            return cayley(k)
        case MRUVariant.ORTHOGONAL_EXPM:
            return expm_skew(k)
        case unreachable:
            assert_never(unreachable)


def turned_by_rope(m: Float[Array, "B T H blocks order order"]) -> Float[Array, "B T H blocks order order"]:
    """R M, with R the turn of RoPE from one position to the next."""
    blocks, order = m.shape[-3:-1]
    angles = frequencies(blocks * order, m.dtype).reshape(blocks, 1, order // 2)
    return jnp.swapaxes(rotate_pairs(jnp.swapaxes(m, -1, -2), angles), -1, -2)


def turn_blocks(s: Float[Array, "B T H blocks order order"], x: Float[Array, "B T H d"]) -> Float[Array, "B T H d"]:
    """S x, block by block."""
    blocks = x.reshape(*s.shape[:-1])
    # Not a batched product: XLA's CPU compiler runs those of small matrices one by one.
    return jnp.sum(s * blocks[..., None, :], axis=-1).reshape(x.shape)
