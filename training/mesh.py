"""Devices: the seeds of a run, the records of a batch and time are split among them.

The mesh has three axes, (SEEDS, BATCH, TIME). Everything that belongs to a seed lies on the devices of its row, whole
on each of them; a batch is cut along all three. XLA adds the sums over records and over time where they are needed;
only layers know of time being cut (see `models.split_time`), and only `over_seeds` of seeds.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from data.splits import Batch
from models.split_time import BATCH
from scans import TIME
from training.config import MeshConfig
from training.errors import ConfigError

SEEDS = "seeds"

F = TypeVar("F", bound=Callable)


def make_mesh(batch_size: int, what: str, config: MeshConfig = MeshConfig()) -> Mesh:  # noqa: B008
    """The mesh of a config over all devices, or over the first ones if it asks for fewer.

    Raises ConfigError if it asks for more than there are, or if the batch called `what` does not divide.
    """
    count = len(jax.devices())
    others = config.seeds * config.sequence
    batch = config.batch or count // others
    used = batch * others
    if not 1 <= used <= count or (used < count and jax.process_count() > 1) or (not config.batch and count % others):
        raise ConfigError(
            f"mesh.seeds={config.seeds} x mesh.batch={config.batch} x mesh.sequence={config.sequence} does not fit "
            f"{count} device(s): the product must be at most their number (for several processes: be it), and "
            "mesh.batch=0 is what is left"
        )
    if batch_size % batch:
        raise ConfigError(f"{what}={batch_size} does not divide among {batch} devices: choose a multiple of {batch}")
    shape = (config.seeds, batch, config.sequence)
    return jax.make_mesh(shape, (SEEDS, BATCH, TIME), (AxisType.Auto,) * 3, devices=jax.devices()[:used])


def refuse_uneven(steps: int, config: MeshConfig) -> None:
    """Raises ConfigError if inputs of so many steps do not divide among the devices that share them."""
    if steps % config.sequence:
        near = [n for n in range(1, config.sequence + 1) if steps % n == 0]
        raise ConfigError(f"mesh.sequence={config.sequence} does not divide {steps} steps: choose {near[-1]}")


def replicated(mesh: Mesh) -> NamedSharding:
    """Every device holds the whole array."""
    return NamedSharding(mesh, PartitionSpec())


def split_seeds(mesh: Mesh) -> NamedSharding:
    """The leading axis is that of the seeds; every device holds all of its own."""
    return NamedSharding(mesh, PartitionSpec(SEEDS))


class Share(NamedTuple):
    """What this process draws of every batch: of which seeds, and which records; of how many in all."""

    seeds: slice
    records: slice
    whole: tuple[int, int]


def share_of(mesh: Mesh, seeds: int, batch_size: int) -> Share:
    """The seeds and records that lie on the devices of this process."""
    mine = np.argwhere(np.vectorize(lambda device: device.process_index == jax.process_index())(mesh.devices))
    whole = (seeds, batch_size)
    parts = [count // mesh.devices.shape[axis] for axis, count in enumerate(whole)]
    seeds_here, records_here = (
        slice(mine[:, axis].min() * part, (mine[:, axis].max() + 1) * part) for axis, part in enumerate(parts)
    )
    return Share(seeds_here, records_here, whole)


def batch_shardings(mesh: Mesh, ranks: dict[str, int], *, seeds: bool) -> dict[str, NamedSharding]:
    """Where the arrays of a batch lie, from their numbers of axes: seeds (if there are any), records, steps."""
    axes = (SEEDS, BATCH) if seeds else (BATCH,)
    time_at = {"inputs": ranks["lengths"], "labels": len(axes)}

    def sharding(name: str, rank: int) -> NamedSharding:
        spec = [*axes, *[None] * (rank - len(axes))]
        if time_at.get(name, rank) < rank:
            spec[time_at[name]] = TIME
        return NamedSharding(mesh, PartitionSpec(*spec))

    return {name: sharding(name, rank) for name, rank in ranks.items()}


def place_batch(mesh: Mesh, batch: Batch, share: Share, *, seeds: bool) -> dict[str, jax.Array]:
    """The share of a batch on the devices; with `seeds` it has an axis over them in front. Steps are split as well."""
    slices, whole = (share.seeds, share.records), share.whole
    if not seeds:
        slices, whole = slices[1:], whole[1:]
    shardings = batch_shardings(mesh, {name: values.ndim for name, values in batch.items()}, seeds=seeds)

    def placed(name: str, values: np.ndarray) -> jax.Array:
        def part(index: Any) -> np.ndarray:
            own = [
                slice(*(edge - mine.start for edge in wanted.indices(size)[:2]))
                for wanted, mine, size in zip(index, slices, whole, strict=False)
            ]
            return values[(*own, *index[len(own) :])]

        shape = (*whole, *values.shape[len(whole) :])
        return jax.make_array_from_callback(shape, shardings[name], part)

    return {name: placed(name, values) for name, values in batch.items()}


def place(tree: Any, sharding: NamedSharding) -> Any:
    """Arrays that every process has whole, on the devices."""
    return jax.tree.map(
        lambda x: jax.make_array_from_callback(x.shape, sharding, lambda index: x[index]), jax.device_get(tree)
    )


def everywhere(mesh: Mesh, tree: Any) -> Any:
    """Arrays of the devices so that every process can read them whole."""
    return tree if jax.process_count() == 1 else jax.jit(_same, out_shardings=replicated(mesh))(tree)


def _same(tree: Any) -> Any:
    return tree


def fetch(mesh: Mesh, tree: Any) -> Any:
    """Arrays of the devices as NumPy arrays, whole, in every process."""
    return jax.device_get(everywhere(mesh, tree))


def using(mesh: Mesh, f: F) -> F:
    """f with the mesh in use, which is how `over_seeds` and layers find it."""

    def run(*args: Any) -> Any:
        with jax.set_mesh(mesh):
            return f(*args)

    return run  # pyright: ignore[reportReturnType]


def over_seeds(f: Callable[..., Any]) -> Callable[..., Any]:
    """f, which takes and gives arrays with a leading axis over seeds; each device calls it with its own seeds."""
    if dict(jax.sharding.get_abstract_mesh().shape).get(SEEDS, 1) == 1:
        return f
    mine = PartitionSpec(SEEDS)
    return jax.shard_map(f, in_specs=mine, out_specs=mine, axis_names={SEEDS}, check_vma=False)
