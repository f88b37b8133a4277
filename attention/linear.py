"""Linear attention on arrays: sums over the past in place of a softmax, in chunks of time."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from attention.timeline import Timeline, chunks_of, joined

CHUNK = 64
EPS = 1e-6


class LinearState(NamedTuple):
    """R = sum of phi(k) v^T (keys turned), z = sum of phi(k) (not turned), and the number of tokens in them."""

    matrix: Float[Array, "B H d d"]
    norm: Float[Array, "B H d"]
    length: Int[Array, " B"]


class Features(NamedTuple):
    """phi(q), phi(k), the same turned by the position code, and v."""

    q: Float[Array, "B T H d"]
    k: Float[Array, "B T H d"]
    q_turned: Float[Array, "B T H d"]
    k_turned: Float[Array, "B T H d"]
    v: Float[Array, "B T H d"]


def phi(x: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """elu(x) + 1, written so that nothing cancels: 1 + x above 0, exp(x) below."""
    return jnp.exp(jnp.minimum(x, 0)) + jnp.maximum(x, 0)


def accumulate(
    features: Features, timeline: Timeline, state: LinearState, *, chunk: int = CHUNK
) -> tuple[Float[Array, "B T H d"], LinearState]:
    """Over the valid tokens s <= t of the same sequence, those summed in `state` included until the first reset:

        R_t = sum_s phi(k_s) v_s^T,   z_t = sum_s phi(k_s),   o_t = R_t^T phi(q_t) / (z_t . phi(q_t) + 1e-6)

    with queries and keys turned in R_t^T phi(q_t) only, which keeps the denominator positive. Masked steps add nothing.

    Inside a chunk the sums are products with the masked matrix of all phi(q_t) . phi(k_s); between chunks (R, z) is
    carried. So chunk = 1 is the recurrence, chunk >= T the parallel form, and all give the same values.

    Source: arXiv 2006.16236, section 3.
    """
    steps = timeline.valid.shape[1]
    chunk = min(chunk, steps)
    parts = (
        Features(*(chunks_of(x, chunk) for x in features)),
        chunks_of(timeline.valid, chunk, pad=False),
        chunks_of(timeline.segment, chunk),
    )
    causal = jnp.tril(jnp.ones((chunk, chunk), bool))

    def advance(carry, part):
        matrix, norm, reached = carry
        f, valid, segment = part
        visible = valid[:, None] & (segment[:, None] == segment[:, :, None]) & causal
        continues = (segment == reached[:, None])[:, None, :, None]  # (B, 1, t, 1)

        def products(q, k):
            return jnp.where(visible[:, None], _einsum("bthd,bshd->bhts", q, k), 0)

        numerator = _einsum("bhts,bshe->bhte", products(f.q_turned, f.k_turned), f.v)
        numerator += continues * _einsum("bthd,bhde->bhte", f.q_turned, matrix)
        denominator = products(f.q, f.k).sum(-1) + continues[..., 0] * _einsum("bthd,bhd->bht", f.q, norm)
        out = jnp.swapaxes(numerator / (denominator[..., None] + EPS), 1, 2)

        last = segment[:, -1]
        kept = (valid & (segment == last[:, None]))[..., None, None]
        held = (last == reached)[:, None, None]
        matrix = held[..., None] * matrix + _einsum("bshd,bshe->bhde", kept * f.k_turned, f.v)
        norm = held * norm + (kept * f.k).sum(1)
        return (matrix, norm, last), out

    start = (state.matrix, state.norm, jnp.zeros_like(timeline.segment[:, 0]))
    (matrix, norm, _), out = lax.scan(advance, start, parts)
    return joined(out, steps), LinearState(matrix, norm, timeline.length)


def _einsum(subscripts: str, *arrays: Array) -> Array:
    return jnp.einsum(subscripts, *arrays, precision=lax.Precision.HIGHEST)
