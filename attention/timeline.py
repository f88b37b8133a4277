"""Where the tokens of one call stand: behind masks, resets and what came before the call. And chunks of time."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int, Shaped


class Timeline(NamedTuple):
    """valid: not masked. segment: resets up to the token and with it; 0 continues what came before the call.

    position: valid tokens before this one since the last reset, those before the call included. length: the same after
    the last token of the call.
    """

    valid: Bool[Array, "B T"]
    segment: Int[Array, "B T"]
    position: Int[Array, "B T"]
    length: Int[Array, " B"]

    @classmethod
    def of(
        cls,
        shape: tuple[int, int],
        carried: Int[Array, " B"] | None,
        mask: Bool[Array, "B T"] | None,
        reset: Bool[Array, "B T"] | None,
    ) -> "Timeline":
        """From the arguments of a layer; `carried` tokens came before the call."""
        valid = jnp.ones(shape, bool) if mask is None else mask
        reset = jnp.zeros(shape, bool) if reset is None else reset
        carried = jnp.zeros(shape[0], jnp.int32) if carried is None else carried
        before = jnp.cumsum(valid, axis=1, dtype=jnp.int32) - valid
        segment = jnp.cumsum(reset, axis=1, dtype=jnp.int32)
        at_reset = lax.cummax(jnp.where(reset, before, 0), axis=1)
        position = before - at_reset + jnp.where(segment == 0, carried[:, None], 0)
        return cls(valid, segment, position, position[:, -1] + valid[:, -1])


def chunks_of(x: Shaped[Array, "B T ..."], size: int, *, pad: bool | None = None) -> Shaped[Array, "chunks B size ..."]:
    """Time cut into chunks, the chunk axis first. The last one is filled up with `pad`, by default its last element."""
    batch, steps, *rest = x.shape
    widths = [(0, 0), (0, -steps % size), *[(0, 0)] * len(rest)]
    x = jnp.pad(x, widths, mode="edge") if pad is None else jnp.pad(x, widths, constant_values=pad)
    return jnp.moveaxis(x.reshape(batch, -1, size, *rest), 1, 0)


def joined(x: Shaped[Array, "chunks B size ..."], steps: int) -> Shaped[Array, "B T ..."]:
    """The first `steps` elements of chunks, as one axis again."""
    chunks, batch, size, *rest = x.shape
    return jnp.moveaxis(x, 0, 1).reshape(batch, chunks * size, *rest)[:, :steps]
