"""A layer on several devices, each of which holds a part of time."""

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


def call_layer(
    layer: Layer, u: Float[Array, "B T D"], state: State | None, mask: Mask | None, probe: tuple[int, ...] | None
) -> tuple[Float[Array, "B T D"], State | None, dict[str, Any]]:
    """layer(u, state, mask=mask, probe=probe), with its records and its time split where the mesh in use splits time.

    A mesh is in use inside `jax.set_mesh`. The layer is then called once on every device, with the part of u that lies
    there and the number of valid steps in it, and its scans (see `scans.sharded`) exchange what enters the parts;
    nothing as long as time is moved. No state goes in or comes out. A probe measures whole sequences on every device.
    Raises ValueError for a state, and for a mask of flags.
    """
    sizes = dict(jax.sharding.get_abstract_mesh().shape)
    if probe is not None or sizes.get(TIME, 1) == 1:
        return layer(u, state, mask=mask, probe=probe)
    if state is not None or (mask is not None and mask.ndim == 2):
        raise ValueError("time is split over devices: leave out the carried state, and give lengths as a mask")
    static, params = nnx.split(layer)

    def part(params, u, lengths):
        if lengths is not None:
            lengths = jnp.clip(lengths - lax.axis_index(TIME) * u.shape[1], 0, u.shape[1])
        return nnx.merge(static, params)(u, mask=lengths)[0]

    records, whole = PartitionSpec(BATCH), PartitionSpec()
    cut = PartitionSpec(BATCH, TIME)
    # No tracking of what is equal on all devices (check_vma): it refuses loops that start from a constant.
    y = jax.shard_map(
        part, in_specs=(whole, cut, records), out_specs=cut, axis_names={BATCH, TIME}, check_vma=False
    )(params, u, mask)  # fmt: skip
    return y, None, {}
