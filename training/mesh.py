"""Devices: parameters on all of them, the batch split among them."""

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from training.errors import ConfigError

BATCH = "batch"


def make_mesh(batch_size: int, what: str) -> Mesh:
    """A line of all devices. Raises ConfigError if the batch called `what` does not divide among them."""
    count = len(jax.devices())
    if batch_size % count:
        raise ConfigError(f"{what}={batch_size} does not divide among {count} devices: choose a multiple of {count}")
    return jax.make_mesh((count,), (BATCH,), axis_types=(AxisType.Auto,))


def replicated(mesh: Mesh) -> NamedSharding:
    """Every device holds the whole array."""
    return NamedSharding(mesh, PartitionSpec())


def split_batch(mesh: Mesh, *, seeds: bool) -> NamedSharding:
    """The batch axis is split; with `seeds` it is the second axis, after the one over seeds."""
    return NamedSharding(mesh, PartitionSpec(None, BATCH) if seeds else PartitionSpec(BATCH))
