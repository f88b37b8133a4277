"""Causal softmax attention on arrays, and the cache that carries it over calls."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from attention.timeline import Timeline, chunks_of, joined

# Longer calls are cut into chunks of so many queries, recomputed for the gradient: memory grows with T, not with T^2.
QUERIES = 256


class KeyValueCache(NamedTuple):
    """Turned keys and values of the last `length` tokens, at the places of their positions; the rest is zero.

    turn: the product of the rotations so far (position=mru only), per head and block.
    """

    keys: Float[Array, "B L H d"]
    values: Float[Array, "B L H d"]
    length: Int[Array, " B"]
    turn: Float[Array, "B H blocks n n"] | None = None


def attend(
    q: Float[Array, "B T H d"],
    k: Float[Array, "B T H d"],
    v: Float[Array, "B T H d"],
    timeline: Timeline,
    cache: KeyValueCache | None,
) -> Float[Array, "B T H d"]:
    """o_t = sum_s softmax_s(q_t . k_s / sqrt(d)) v_s over the valid tokens s <= t of the same sequence.

    Those in the cache belong to it until the first reset. What stands at a masked t is arbitrary, but finite.
    """
    steps = q.shape[1]
    index = jnp.broadcast_to(jnp.arange(steps), q.shape[:2])
    seen = Keys(k, v, timeline.valid, timeline.segment, index)
    if cache is not None:
        place = jnp.broadcast_to(jnp.arange(cache.keys.shape[1]), cache.keys.shape[:2])
        old = Keys(
            cache.keys, cache.values, place < cache.length[:, None], jnp.zeros_like(place), jnp.full_like(place, -1)
        )
        seen = Keys(*(jnp.concatenate(pair, axis=1) for pair in zip(old, seen, strict=True)))
    queries = (q, timeline.segment, index)
    if steps <= QUERIES:
        return _attend(seen, *queries)
    parts = tuple(chunks_of(x, QUERIES) for x in queries)
    return joined(lax.map(jax.checkpoint(lambda part: _attend(seen, *part)), parts), steps)


class Keys(NamedTuple):
    """What may be attended to; `index`: place in the call, -1 before it."""

    keys: Float[Array, "B S H d"]
    values: Float[Array, "B S H d"]
    valid: Bool[Array, "B S"]
    segment: Int[Array, "B S"]
    index: Int[Array, "B S"]


def _attend(
    seen: Keys, q: Float[Array, "B T H d"], segment: Int[Array, "B T"], index: Int[Array, "B T"]
) -> Float[Array, "B T H d"]:
    visible = (
        seen.valid[:, None]
        & (seen.segment[:, None] == segment[:, :, None])
        & (seen.index[:, None] <= index[:, :, None])
    )
    logits = jnp.einsum("bthd,bshd->bhts", q, seen.keys, precision=lax.Precision.HIGHEST) / math.sqrt(q.shape[-1])
    # The least finite number and not -inf: a masked query may see nothing, and must not make a nan for the gradient.
    logits = jnp.where(visible[:, None], logits, jnp.finfo(logits.dtype).min)
    weights = jax.nn.softmax(logits)
    return jnp.einsum("bhts,bshd->bthd", weights, seen.values, precision=lax.Precision.HIGHEST)


def remember(
    cache: KeyValueCache, k: Float[Array, "B T H d"], v: Float[Array, "B T H d"], timeline: Timeline
) -> KeyValueCache:
    """The cache after a call: the valid tokens since the last reset, each at the place of its position."""
    batch, length = cache.keys.shape[:2]
    last = timeline.segment[:, -1:]
    kept = timeline.valid & (timeline.segment == last)
    place = jnp.where(kept, timeline.position, length)  # past the end: dropped
    rows = jnp.arange(batch)[:, None]

    def updated(old, new):
        old = jnp.where(last[..., None, None] == 0, old, 0)
        return old.at[rows, place].set(new.astype(old.dtype), mode="drop")

    return cache._replace(
        keys=updated(cache.keys, k), values=updated(cache.values, v), length=timeline.length.astype(jnp.int32)
    )
