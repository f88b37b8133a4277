"""The smallest experiments that still have every part."""

from typing import Any

import jax
import numpy as np

from configs import lra
from data.batching import training_batch
from data.spec import InputKind, TaskKind, TaskSpec
from data.splits import MemorySplit, Split
from training.config import ExperimentConfig, from_config_dict
from training.state import Program, TrainState, initial_params_of_all, initial_state, make_program

TASK = TaskSpec("tiny", TaskKind.CLASSIFICATION, InputKind.TOKENS, input_width=6, length=12, classes=3)


def tiny_dict(layer: str = "rotrnn", changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """A config that trains in seconds, as plain values; `changes` by dotted key."""
    config = lra.get_config(f"layer={layer},direction=forward,smoke").to_dict()
    config["model"]["norm"] = "layer"
    for path, value in (changes or {}).items():
        *groups, name = path.split(".")
        group = config
        for key in groups:
            group = group[key]
        group[name] = value
    return config


def tiny_config(layer: str = "rotrnn", changes: dict[str, Any] | None = None) -> ExperimentConfig:
    """The checked form of `tiny_dict`."""
    return from_config_dict(tiny_dict(layer, changes))


def tiny_split(records: int = 40, seed: int = 0) -> MemorySplit:
    """Random records of `TASK` of 3 to 12 symbols; 1, 2 and 3 stand only in those of labels 0, 1 and 2."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, TASK.classes, records)
    symbols = [[1 + k, *draw.choice([1 + k, 4, 5], draw.integers(2, TASK.length))] for k in labels]
    return MemorySplit.from_records([bytes(map(int, record)) for record in symbols], labels.tolist(), TASK.length)


def stacked_batch(split: Split, seeds: tuple[int, ...], step: int, batch_size: int) -> dict[str, np.ndarray]:
    """What the train step takes: the batch of every seed at `step`."""
    batches = [training_batch(split, seed, step, batch_size) for seed in seeds]
    return {key: np.stack([batch[key] for batch in batches]) for key in batches[0]}


def fresh(config: ExperimentConfig) -> tuple[Program, TrainState]:
    """The program of `TASK` and its state before the first step, without the reference of the probe."""
    return fresh_of(config, TASK)


def fresh_of(config: ExperimentConfig, task: TaskSpec) -> tuple[Program, TrainState]:
    """The same for another task."""
    program = make_program(config, task)
    return program, initial_state(program, initial_params_of_all(program), ())


def of_seed(tree: Any, place: int) -> Any:
    """The values of one seed, copied: a step gives the arrays of its state away."""
    return jax.tree.map(lambda leaf: np.array(leaf[place]), tree)


def assert_same_bits(tree: Any, other: Any) -> None:
    """Fails, naming the leaf, unless both trees hold the same bits."""
    assert jax.tree.structure(tree) == jax.tree.structure(other)
    for (path, leaf), there in zip(jax.tree.leaves_with_path(tree), jax.tree.leaves(other), strict=True):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        assert np.asarray(leaf).tobytes() == np.asarray(there).tobytes(), f"{name}: {leaf} is not {there}"
