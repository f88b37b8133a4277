"""Whole updates of a run: forward, backward, optimiser, as `train.py` compiles them."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
from flax import nnx

from benchmarks import textbook, timing
from benchmarks.result import Result, faster, milliseconds, of_ratio, smaller
from configs import lra
from data.batching import seed_batches
from data.prepared import smoke_data
from lru import LRU
from models.registry import LAYERS
from scans import step_mask
from training.config import ExperimentConfig, from_config_dict
from training.state import TrainState, initial_params_of_all, initial_state, make_program
from training.step import make_train_step

SEEDS = 8


class PublishedLRU(LRU):
    """Our parameters under the published evaluation. Padding is cleared before and after, as ours does."""

    def __call__(self, u, state=None, *, mask=None, reset=None, probe=None):
        """See `LRU`; without a carried state, resets or diagnostics."""
        valid = step_mask(mask, u.shape[1])
        u = u if valid is None else jnp.where(valid[..., None], u, 0)
        y = textbook.lru(nnx.to_pure_dict(nnx.state(self, nnx.Param)), u)
        return y if valid is None else jnp.where(valid[..., None], y, 0), None, {}


def results(rounds: int) -> Iterator[Result]:
    """All rows of this benchmark."""
    for task, depth, batch in (("listops", 8, 4), ("text", 6, 2)):
        sizes = {"model.depth": depth, "train.batch_size": batch}
        config, least = experiment(task, (0,), sizes), experiment(task, (0,), sizes | {"train.remat": True})
        name = f"training step, {task}, LRU, depth {depth}, T={smoke_data(config.data.request).spec.length} B={batch}"
        with _published():
            published = update("published form", config)
        ours, small = update("linrec", config), update("linrec, remat", least)
        timing.interleave((published, ours, small), rounds)
        yield from (milliseconds(name, program) for program in (published, ours, small))
        yield faster(name, published, ours, 2.5)
        yield smaller(f"{name}, published / remat", published, small, 4)


def seeds(rounds: int) -> Iterator[Result]:
    """Eight seeds in one program against eight runs of one (on an accelerator: one run of one), of a small model."""
    changes = {"model.depth": 2, "model.width": 64, "model.options.state_size": 64, "train.batch_size": 16,
               "data.steps": 96}  # fmt: skip
    together = update(f"{SEEDS} seeds", experiment("listops", tuple(range(SEEDS)), changes))
    one = update("one seed", experiment("listops", (0,), changes))
    on_cpu = jax.default_backend() == "cpu"
    run_one, runs = one.run, SEEDS if on_cpu else 1
    alone = dataclasses.replace(one, run=lambda: [run_one() for _ in range(runs)])
    timing.interleave((together, alone), rounds)
    against = "one after the other" if on_cpu else "one seed"
    name = f"{SEEDS} seeds in one program / {against}, LRU, width 64, depth 2, T=96 B=16"
    yield of_ratio(name, timing.ratio(together.wall, alone.wall), 1.05 if on_cpu else 2, ceiling=True)


def experiment(task: str, seeds: tuple[int, ...], changes: dict[str, Any]) -> ExperimentConfig:
    """The published row of the LRU on a task, on a sample made in memory; `changes` by dotted key."""
    values = lra.get_config(f"task={task},layer=lru").to_dict()
    for path, value in ({"data.smoke": True, "seeds": seeds} | changes).items():
        *groups, key = path.split(".")
        group = values
        for name in groups:
            group = group[name]
        group[key] = value
    return from_config_dict(values)


def update(name: str, config: ExperimentConfig) -> timing.Program:
    """The compiled update of a run, on its first batch; every run of it goes on from the state that it left."""
    data = smoke_data(config.data.request)
    program = make_program(config, data.spec)
    batch = next(seed_batches(data.splits["train"], config.seeds, config.train.batch_size, 0, 1))
    fresh = lambda: initial_state(program, initial_params_of_all(program), ())  # noqa: E731
    step = make_train_step(program)
    found = timing.compile_program(name, step, jax.eval_shape(fresh), batch, jnp.zeros((), jnp.int32))
    state: list[TrainState] = [fresh()]

    def run():
        state[0], metrics = found.compiled(state[0], batch, jnp.zeros((), jnp.int32))
        return jax.block_until_ready(metrics)

    return dataclasses.replace(found, run=run)


def _published() -> contextlib.AbstractContextManager:
    """While it lasts, models are built with the published evaluation of the LRU."""
    return mock.patch.dict(LAYERS, {"lru": dataclasses.replace(LAYERS["lru"], module=PublishedLRU)})
