"""What a cell of a sweep will take: the programs of its run are compiled and timed, in a process of their own.

    python -m scripts.sweep_estimate --data_dir=DIR < config.json

The process does what a run does, only less often: some updates, some batches of the validation split, some probes and
saves. What else it took is taken for the start of a run. Memory is the most that was held at once: by the device, if it
counts its own, else by the process.
"""

import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from data.batching import evaluation_batches, seed_batches
from scripts.arguments import Parser
from training import checkpoint, cli
from training.config import ExperimentConfig, flat, from_config_dict, to_plain
from training.loop import load_data
from training.mesh import make_mesh, place, place_batch, replicated, share_of, split_seeds, using
from training.probe import probe_batch, probe_times
from training.start import begin
from training.state import Affine, initial_params_of_all, make_program
from training.step import make_eval_step, make_probe_step, make_train_step

LEAST, MOST, SECONDS = 3, 50, 2.0
"""Calls that are timed: until so many seconds have gone, but so many at least and at most."""

NOT_OF_THE_PROGRAM = {
    "seeds",
    "published",
    "on_nonfinite",
    *(f"optim.{key}" for key in ("lr", "ssm_lr", "weight_decay", "warmup_steps", "lr_min", "b2")),
    *(f"train.{key}" for key in ("steps", "log_every", "probe_every", "eval_every", "checkpoint_every")),
}
"""Keys that do not change what an update costs; the number of seeds does."""


class Estimate(NamedTuple):
    """Seconds: to start a run; of that what only training needs; of an update, an evaluation batch, a probe and a save.

    batches: of each split. memory: bytes.
    """

    start: float
    training_only: float
    update: float
    batch: float
    probe: float
    save: float
    batches: dict[str, int]
    memory: int

    def seconds(self, config: ExperimentConfig, done: int, splits: Sequence[str]) -> float:
        """What is left of a cell that has `done` updates: training, if it is not over, and the scores of `splits`."""
        train = config.train

        def left(every: int) -> int:
            return train.steps // every - done // every + (train.steps % every > 0)

        scores = sum(self.start - self.training_only + self.batches[split] * self.batch for split in splits)
        if done >= train.steps:
            return scores
        evaluations = left(train.eval_every) + (done == 0)
        repeated = left(train.probe_every) * self.probe + left(train.checkpoint_every) * self.save
        repeated += evaluations * self.batches["val"] * self.batch + (train.steps - done) * self.update
        return self.start + repeated + scores


def kind(config: ExperimentConfig) -> str:
    """What decides how long an update takes: cells of one kind are measured once."""
    deciding = {key: value for key, value in flat(config).items() if key not in NOT_OF_THE_PROGRAM}
    return json.dumps([len(config.seeds), deciding])


def estimate(config: ExperimentConfig, data_dir: Path, environment: Mapping[str, str]) -> Estimate | str:
    """Measures a config in a process of its own; its last words if it fails."""
    began = time.monotonic()
    child = subprocess.run(
        [sys.executable, "-m", "scripts.sweep_estimate", f"--data_dir={data_dir}"],
        input=json.dumps(to_plain(config)),
        env={**environment},
        capture_output=True,
        text=True,
        check=False,
    )
    elapsed = time.monotonic() - began
    if child.returncode:
        return next(reversed(child.stderr.strip().splitlines()), f"it ended with exit code {child.returncode}")
    spent, measured = json.loads(child.stdout.splitlines()[-1])
    return Estimate(*measured)._replace(start=elapsed - spent)


class Stopwatch:
    """Times calls; `spent` is what it timed so far, in seconds of its clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock, self.spent = clock, 0.0

    def per_call(self, calls: Iterator[Any]) -> float:
        """The mean over those after the first, which compiles."""
        jax.block_until_ready(next(calls))
        began, count, elapsed = self.clock(), 0, 0.0
        while count < LEAST or (count < MOST and elapsed < SECONDS):
            jax.block_until_ready(next(calls))
            count, elapsed = count + 1, self.clock() - began
        self.spent += elapsed
        return elapsed / count


def measure(config: ExperimentConfig, data_dir: Path, watch: Stopwatch) -> Estimate:
    """All but the start of a run. Raises what training does if it cannot begin."""
    data, train = load_data(config, data_dir), config.train
    program = make_program(config, data.spec, data.affine and Affine(*data.affine))
    mesh = make_mesh(train.batch_size // train.accumulate, "train.batch_size", config.mesh)
    share, shared = (share_of(mesh, len(config.seeds), n) for n in (train.batch_size, train.eval_batch_size))

    began = watch.clock()
    train_step, eval_step = using(mesh, make_train_step(program)), using(mesh, make_eval_step(program))
    probe_step = using(mesh, make_probe_step(program, probe_times(program.task.length)))
    inputs = place(probe_batch(data.splits["val"], train.probe_size), replicated(mesh))
    params = place(initial_params_of_all(program), split_seeds(mesh))
    state = place(begin(program, params, probe_step, inputs)[0], split_seeds(mesh))

    def updates() -> Iterator[Any]:
        nonlocal state
        batches = seed_batches(data.splits["train"], config.seeds, train.batch_size, 0, MOST + 1)
        for step, batch in enumerate(batches):
            state, metrics = train_step(state, place_batch(mesh, batch, share, seeds=True), np.int32(step))
            yield metrics

    update = watch.per_call(updates())
    training_only = watch.clock() - began - watch.spent
    probe = watch.per_call(probe_step(state.params, inputs) for _ in range(MOST + 1))
    first = next(iter(evaluation_batches(data.splits["val"], train.eval_batch_size)))
    one = place_batch(mesh, first, shared, seeds=False)
    batch = watch.per_call(eval_step(state.params, state.stats, one) for _ in range(MOST + 1))
    with tempfile.TemporaryDirectory() as folder:
        save = watch.per_call(
            checkpoint.save(Path(folder), step, jax.device_get(state), {}) for step in range(MOST + 1)
        )
    batches = {name: math.ceil(len(split) / train.eval_batch_size) for name, split in data.splits.items()}
    return Estimate(0.0, training_only, update, batch, probe, save, batches, _memory())


def _memory() -> int:
    """The most bytes that were held at once."""
    of_device = jax.local_devices()[0].memory_stats() or {}
    unit = 1 if sys.platform == "darwin" else 1024
    return of_device.get("peak_bytes_in_use", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def main(argv: Sequence[str]) -> None:
    """Reads a config, prints [seconds that were timed, the fields of the estimate]."""
    parser = Parser("sweep_estimate", __doc__)
    parser.add_argument("--data_dir")
    arguments = parser.parse_args(argv[1:])
    watch = Stopwatch(time.perf_counter)
    measured = measure(from_config_dict(json.load(sys.stdin)), cli.data_dir(arguments.data_dir), watch)
    print(json.dumps([watch.spent, measured]))


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv))
