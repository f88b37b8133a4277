"""A layer on several devices, each of which holds a part of time."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float

from models.contract import Layer, State
from scans import TIME, Mask

BATCH = "batch"
"""The mesh axis that splits the records of a batch."""


def splits_time(probe: tuple[int, ...] | None) -> bool:
    """Whether the mesh in use (inside `jax.set_mesh`) splits time. A probe measures whole sequences on every device."""
    return probe is None and dict(jax.sharding.get_abstract_mesh().shape).get(TIME, 1) > 1


def call_layer(
    layer: Layer, u: Float[Array, "B T D"], state: State | None, mask: Mask | None, probe: tuple[int, ...] | None
) -> tuple[Float[Array, "B T D"], State | None, dict[str, Any]]:
    """layer(u, state, mask=mask, probe=probe), on parts of time where that is split.

    The layer is then called once on every device, with the part of u that lies there and the number of valid steps in
    it, and its scans (see `scans.sharded`) exchange what enters the parts; nothing as long as time is moved. No state
    goes in or comes out. Raises ValueError for a state, and for a mask of flags.
    """
    if not splits_time(probe):
        return layer(u, state, mask=mask, probe=probe)
    if state is not None or (mask is not None and mask.ndim == 2):
        raise ValueError("time is split over devices: leave out the carried state, and give lengths as a mask")
    static, params = nnx.split(layer)

    def part(params, u, lengths):
        if lengths is not None:
            lengths = jnp.clip(lengths - lax.axis_index(TIME) * u.shape[1], 0, u.shape[1])
        return nnx.merge(static, params)(u, mask=lengths)[0]

    return on_parts(part, params, u, mask), None, {}


def on_parts(
    f: Callable[[Any, Array, Array | None], Array], params: Any, u: Float[Array, "B T D"], lengths: Array | None = None
) -> Float[Array, "B T E"]:
    """f(params, u, lengths), called on every device with its records and its steps of u. lengths: of its records."""
    records, cut = PartitionSpec(BATCH), PartitionSpec(BATCH, TIME)
    # No tracking of what is equal on all devices (check_vma): it refuses loops that start from a constant.
    split = jax.shard_map(
        f, in_specs=(PartitionSpec(), cut, records), out_specs=cut, axis_names={BATCH, TIME}, check_vma=False
    )
    return split(params, u, lengths)
