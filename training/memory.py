"""Memory known before it is spent: the train step is compiled first, and what it needs is compared with what there is.

The compiled program is the one that then runs. All sizes are those of one device of the mesh.
"""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, Sharding
from jax.typing import ArrayLike

from data.spec import InputKind, TaskKind
from models.norm import Norm
from training.config import ExperimentConfig
from training.errors import ConfigError
from training.files import size_text
from training.mesh import batch_shardings, split_seeds, using
from training.state import Program, TrainState, abstract_params_of_all, initial_state
from training.step import StepMetrics, make_train_step

TrainStep = Callable[[TrainState, Any, ArrayLike], tuple[TrainState, StepMetrics]]

MEMINFO = Path("/proc/meminfo")
CGROUPS = Path("/sys/fs/cgroup")
LIMITS = {"": "memory.max", "memory": "memory/memory.limit_in_bytes"}
"""Controller of a control group -> the file of its limit, of version 2 and version 1."""


class Sizes(NamedTuple):
    """Bytes on one device. rest: of the state, that is the best, the running averages and what is counted.

    activations: whatever else the compiled step holds at its peak, gradients and scratch space included; 0 if its
    compiler does not say.
    """

    parameters: int
    optimiser: int
    rest: int
    batch: int = 0
    activations: int = 0

    @property
    def peak(self) -> int:
        return sum(self)

    @property
    def table(self) -> str:
        """One line a part that is not empty."""
        parts = zip(NAMES, self, strict=True)
        return "\n".join(f"  {name:<28} {size_text(size):>14}" for name, size in parts if size)


NAMES = ("parameters", "optimiser", "best and rest of the state", "batch", "activations")


class CompiledStep(NamedTuple):
    """The train step of a run, what it needs, and what a device has (None: it does not say)."""

    call: TrainStep
    sizes: Sizes
    limit: int | None

    @property
    def table(self) -> str:
        has = "" if self.limit is None else f" of {size_text(self.limit)}"
        return f"memory of a training step on each device: {size_text(self.sizes.peak)}{has}\n{self.sizes.table}"


def abstract_start(program: Program, sharding: Sharding | None = None) -> TrainState:
    """Shapes of the state as the train step takes it, placed as told; without `energy_ref`, which it does not read."""
    params = abstract_params_of_all(program)
    return _placed(jax.eval_shape(lambda params: initial_state(program, params, ()), params), sharding)


def abstract_batch(program: Program, mesh: Mesh) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes of a training batch of all seeds, see `data.splits.Batch`, placed on the devices of a mesh."""
    task, shape = program.task, (len(program.config.seeds), program.config.train.batch_size)
    pair = (2,) if task.kind is TaskKind.PAIRS else ()
    channels = () if task.input_kind is InputKind.TOKENS else (task.input_width,)
    steps = (task.length,) if task.kind in (TaskKind.TAGGING, TaskKind.LANGUAGE) else ()
    batch = {
        "inputs": jax.ShapeDtypeStruct((*shape, *pair, task.length, *channels), task.dtype),
        "lengths": jax.ShapeDtypeStruct((*shape, *pair), jnp.int32),
        "labels": jax.ShapeDtypeStruct((*shape, *steps), jnp.int32),
    }
    shardings = batch_shardings(mesh, {name: len(x.shape) for name, x in batch.items()}, seeds=True)
    return {name: _placed(x, shardings[name]) for name, x in batch.items()}


def state_sizes(state: TrainState) -> Sizes:
    """Of a state, abstract or not."""
    parameters, optimiser = _bytes(state.params), _bytes(state.opt)
    return Sizes(parameters, optimiser, _bytes(state) - parameters - optimiser)


def compile_step(program: Program, mesh: Mesh, limit: int | None = None) -> CompiledStep:
    """Compiles the train step of a run, which is not compiled again when it is called.

    limit: bytes of a device; None: what it has, see `available`.
    Raises ConfigError if it needs more, with the numbers and what to change.
    """
    state, batch = abstract_start(program, split_seeds(mesh)), abstract_batch(program, mesh)
    lower = using(mesh, make_train_step(program).lower)
    compiled = lower(state, batch, jax.ShapeDtypeStruct((), jnp.int32)).compile()
    known = state_sizes(state)._replace(batch=_bytes(batch))
    sizes = known._replace(activations=max(0, _peak(compiled) - known.peak))
    limit = available(mesh.local_devices[0]) if limit is None else limit
    if limit is not None and sizes.peak > limit:
        raise ConfigError(refusal(program.config, sizes, limit))

    def train_step(state: TrainState, batch: Any, step: ArrayLike) -> tuple[TrainState, StepMetrics]:
        new, metrics = compiled(state._replace(energy_ref=()), batch, step)
        return new._replace(energy_ref=state.energy_ref), metrics

    return CompiledStep(train_step, sizes, limit)


def _peak(compiled: jax.stages.Compiled) -> int:
    """Bytes that a program holds at once, its arguments included; 0 if its compiler does not say."""
    found = compiled.memory_analysis()
    if found is None:
        return 0
    arguments, outputs = found.argument_size_in_bytes, found.output_size_in_bytes
    return arguments + outputs - found.alias_size_in_bytes + found.temp_size_in_bytes


def refusal(config: ExperimentConfig, sizes: Sizes, limit: int) -> str:
    """One line: what does not fit, and what to change."""
    parts = ", ".join(f"{name} {size_text(size)}" for name, size in zip(NAMES, sizes, strict=True) if size)
    return (
        f"a training step needs {size_text(sizes.peak)} on each device ({parts}), which has {size_text(limit)}: "
        f"{', or '.join(_remedies(config, sizes, limit))}"
    )


def _remedies(config: ExperimentConfig, sizes: Sizes, limit: int) -> Iterable[str]:
    """What would need less, the cheapest first."""
    model, train = config.model, config.train
    if sizes.peak - sizes.activations > limit:
        yield "train fewer seeds together or a smaller model"
        return
    if train.batch_size > train.accumulate:
        whole = " and model.norm=layer" if model.norm is Norm.BATCH else ""
        yield f"set train.accumulate above {train.accumulate}{whole} (smaller micro-batches)"
    if not train.remat:
        yield "train.remat=True"
    if model.options.get("chunk", 2) < 2:
        yield "model.options.chunk=2 to 8"
    yield "a smaller train.batch_size"


def available(device: jax.Device) -> int | None:
    """Bytes that a device has for programs; None if it does not say.

    Of a CPU what the machine has available, or the limit of the control group of this process if that is less, shared
    by its devices.
    """
    if device.platform != "cpu":
        return (device.memory_stats() or {}).get("bytes_limit")
    found = [*_meminfo(MEMINFO), *_group_limits(Path("/proc/self/cgroup"), CGROUPS)]
    return min(found) // jax.local_device_count() if found else None


def _meminfo(path: Path) -> Iterable[int]:
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield 1024 * int(line.split()[1])


def _group_limits(groups: Path, root: Path) -> Iterable[int]:
    """The limits of the control groups that a process is in, as seen from inside of a container or from outside."""
    for line in groups.read_text().splitlines() if groups.exists() else ():
        _, controllers, group = line.split(":", 2)
        for controller in {"", "memory"}.intersection(controllers.split(",")):
            folder, name = (root / LIMITS[controller]).parent, Path(LIMITS[controller]).name
            for path in (folder / group.lstrip("/") / name, folder / name):
                if path.exists() and (limit := path.read_text().strip()).isdigit():
                    yield int(limit)


def _placed(tree: Any, sharding: Sharding | None) -> Any:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)


def _bytes(tree: Any) -> int:
    """Of a tree of arrays or shapes, on one device."""

    def of(leaf: Any) -> int:
        shape = leaf.shape if leaf.sharding is None else leaf.sharding.shard_shape(leaf.shape)
        return math.prod(shape) * leaf.dtype.itemsize

    return sum(of(leaf) for leaf in jax.tree.leaves(tree))
