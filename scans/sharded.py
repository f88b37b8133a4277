"""Sequences longer than a device: each of S devices holds an equal part of time, and is told the state that enters it.

Everything here runs inside `jax.shard_map` over a mesh axis that splits time. With T_loc steps a part and e_r the state
at the end of part r if it starts from zero (the first part: from h0), the state that enters part s is

    x_in(s) = sum over r < s of lambda^((s-1-r) T_loc) e_r           (backward: r > s, distance r - s - 1)

in closed form, so that the only exchange is one gather of the S end states. e_r is a weighted sum of the increments,
which the recurrence inside the part then uses again. Matrices: the products of the parts are gathered, and what stands
before a part is multiplied to all of its products.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from scans.sequential import product
from scans.system import DiagonalSystem

TIME = "sequence"
"""The mesh axis that splits time, see `time_axis`."""


def time_axis() -> str | None:
    """TIME, where a `jax.shard_map` over it is being traced: a layer that is called there holds a part of time."""
    return TIME if TIME in jax.sharding.get_abstract_mesh().manual_axes else None


class Part(NamedTuple):
    """The part of time of this device, in a pass over all of it.

    axis: the mesh axis. lengths: the valid steps of this part of each sequence, whose padding is at the end of the
    whole; None: all. steps: T_loc.
    """

    axis: str
    backward: bool
    lengths: Int[Array, " B"] | None
    steps: int

    def start(
        self, system: DiagonalSystem, batch: int, h0: Float[Array, "B W"] | None, started: Bool[Array, " B"] | None
    ) -> tuple[Float[Array, "B W"], Bool[Array, " B"]]:
        """h0 (None: zero) for the first part, zero for others; whether an input came before this part."""
        here = lax.axis_index(self.axis)
        first = here == (lax.axis_size(self.axis) - 1 if self.backward else 0)
        before = jnp.broadcast_to(~first, (batch,))
        if self.backward and self.lengths is not None:
            before = self._total() > (here + 1) * self.steps
        zero = jnp.zeros((batch, 2 * len(system.log_mag)), system.log_mag.dtype)
        return jnp.where(first, zero if h0 is None else h0, 0), before if started is None else started | before

    def entering(
        self, system: DiagonalSystem, v: Float[Array, "K B W"], start: Float[Array, "B W"], every: int = 1
    ) -> Float[Array, "B W"]:
        """The state before this part, for increments v that stand `every` steps apart and a `start` as above."""
        shards = lax.axis_size(self.axis)
        jumps = long_powers(system, self.steps * np.arange(shards + 1))
        end = product(jumps[1], start, split=True) + end_state(system, v, every, backward=self.backward)
        ends = lax.all_gather(end, self.axis)
        distance = lax.axis_index(self.axis) - jnp.arange(shards)
        between = (-distance if self.backward else distance) - 1
        moved = product(jumps[jnp.maximum(between, 0)][:, None], ends, split=True)
        return start + jnp.where((between >= 0)[:, None, None], moved, 0).sum(0)

    def last(self, h: Float[Array, "B W"]) -> Float[Array, "B W"]:
        """The last state of the whole, on every device, from the last states of the parts."""
        place = 0 if self.backward else lax.axis_size(self.axis) - 1
        if self.lengths is not None and not self.backward:
            place = jnp.maximum(-(-self._total() // self.steps) - 1, 0)[:, None]
        return lax.psum(jnp.where(lax.axis_index(self.axis) == place, h, 0), self.axis)

    def _total(self) -> Int[Array, " B"]:
        return lax.psum(self.lengths, self.axis)


def end_state(system: DiagonalSystem, v: Float[Array, "K B W"], every: int, *, backward: bool) -> Float[Array, "B W"]:
    """sum over i of lambda^(every (K-1-i)) v_i (backward: lambda^(every i)), the state that v leaves behind.

    Summed over blocks of about sqrt(K) and then over the blocks, with one short table of powers for each.
    """
    block = 1 << (len(v).bit_length() // 2)
    blocks, rest = divmod(len(v), block)
    inner, outer = (long_powers(system, every * scale * np.arange(n)) for scale, n in ((1, block), (block, blocks + 1)))
    whole = v[: len(v) - rest] if backward else v[rest:]
    further = v[len(v) - rest :] if backward else v[:rest]  # the part at the far end, less than a block
    whole = whole.reshape(blocks, block, *v.shape[1:])
    near, far, left = inner, outer[:blocks], inner[:rest]
    if not backward:
        near, far, left = near[::-1], far[::-1], left[::-1]
    total = product(far[:, None], product(near[:, None], whole, split=True).sum(1), split=True).sum(0)
    return total + product(outer[blocks], product(left[:, None], further, split=True).sum(0), split=True)


def long_powers(system: DiagonalSystem, exponents: Int[np.ndarray, " k"]) -> Float[Array, "k W"]:
    """lambda^k as [Re | Im], as a product over the binary digits of k.

    k times a phase is exact only for powers of two; for k = 12345 in float32 it would cost 4e-3, and this costs 3e-7.
    """
    found = jnp.concatenate([jnp.ones_like(system.log_mag), jnp.zeros_like(system.phase)])
    found = jnp.broadcast_to(found, (len(exponents), len(found)))
    for digit in range(int(exponents.max(initial=0)).bit_length()):
        modulus, angle = jnp.exp(2.0**digit * system.log_mag), 2.0**digit * system.phase
        factor = jnp.concatenate([modulus * jnp.cos(angle), modulus * jnp.sin(angle)])
        found = jnp.where((exponents >> digit & 1)[:, None] == 1, product(factor, found, split=True), found)
    return found
