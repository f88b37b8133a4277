"""Whether training waits for its data: updates fed by the input pipeline against the same updates on one batch."""

import dataclasses
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp

from benchmarks import timing
from benchmarks.result import Result, of_ratio
from benchmarks.training import experiment
from data.batching import seed_batches
from data.prepared import open_data, prepare
from training.config import ExperimentConfig
from training.state import Affine, initial_params_of_all, initial_state, make_program
from training.step import make_train_step

STEPS = 40
"""Updates of one timing: many more than the pipeline holds ready, which it fills while the other side is timed."""

TASKS = {
    "listops": {"data.limit": 500, "train.batch_size": 16, "model.depth": 1, "model.width": 32,
                "model.options.state_size": 32},
    "pathx": {"data.limit": 60, "train.batch_size": 8, "model.depth": 1, "model.width": 16,
              "model.options.state_size": 16},
}  # fmt: skip
"""Models so small that an update is short against what a batch of its data costs."""


def results(rounds: int) -> Iterator[Result]:
    """All rows of this benchmark. The data are made anew, as `scripts.prepare_data` makes them."""
    for task, changes in TASKS.items():
        with tempfile.TemporaryDirectory() as folder:
            config = experiment(task, (0,), changes | {"data.smoke": False})
            prepare(config.data.request, Path(folder))
            fed, constant = _pair(config, Path(folder))
            timing.interleave((fed, constant), rounds)
        name = f"{task}, B={config.train.batch_size}: update fed by the pipeline / on a constant batch"
        yield of_ratio(name, timing.ratio(fed.wall, constant.wall), 1.05, ceiling=True)


def _pair(config: ExperimentConfig, data_dir: Path) -> tuple[timing.Program, timing.Program]:
    data = open_data(config.data.request, data_dir)
    program = make_program(config, data.spec, data.affine and Affine(*data.affine))
    steps = 10**6
    batches = seed_batches(data.splits["train"], config.seeds, config.train.batch_size, 0, steps)
    first = next(batches)
    fresh = initial_state(program, initial_params_of_all(program), ())
    update = timing.compile_program("update", make_train_step(program), fresh, first, jnp.zeros((), jnp.int32))

    def runner(batches):
        state = [jax.tree.map(jnp.copy, fresh)]

        def run():
            for batch in itertools.islice(batches, STEPS):
                state[0], metrics = update.compiled(state[0], jax.device_put(batch), jnp.zeros((), jnp.int32))
            return jax.block_until_ready(metrics)

        return run

    fed, constant = runner(batches), runner(itertools.repeat(jax.device_put(first)))
    return (
        dataclasses.replace(update, name="fed", run=fed, wall=[], cpu=[]),
        dataclasses.replace(update, name="constant", run=constant, wall=[], cpu=[]),
    )
