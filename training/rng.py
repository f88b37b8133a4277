"""Random streams. Every draw is a function of (seed, stream, step), so nothing random is ever stored."""

import enum

import jax


class Stream(enum.IntEnum):
    """What a key is for."""

    PARAMS = 0
    DROPOUT = 1
    SAMPLE = 2


def stream_key(seed: int | jax.Array, stream: Stream, step: int | jax.Array = 0) -> jax.Array:
    """The typed key of a seed's stream at a step."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), stream), step)
