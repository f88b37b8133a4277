"""The smallest experiments that still have every part."""

from typing import Any

import jax
import numpy as np

from configs import lra
from data.batching import Split, training_batch
from data.spec import InputKind, TaskKind, TaskSpec
from training.config import ExperimentConfig, from_config_dict
from training.start import begin
from training.state import Program, TrainState, make_program
from training.step import make_probe_step

TASK = TaskSpec("tiny", TaskKind.CLASSIFICATION, InputKind.TOKENS, input_width=6, length=12, classes=3)


def tiny_dict(layer: str = "rotrnn", changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """A config that trains in seconds, as plain values; `changes` by dotted key."""
    config = lra.get_config(f"layer={layer},direction=forward,smoke").to_dict()
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


def tiny_split(records: int = 40, seed: int = 0) -> Split:
    """Random records of `TASK` of 3 to 12 symbols; the label is the first symbol modulo 3."""
    draw = np.random.default_rng(seed)
    symbols = [draw.integers(1, TASK.input_width, draw.integers(3, TASK.length + 1), np.uint8) for _ in range(records)]
    return Split.from_records([s.tobytes() for s in symbols], [int(s[0]) % TASK.classes for s in symbols], TASK.length)


def stacked_batch(split: Split, seeds: tuple[int, ...], step: int, batch_size: int) -> dict[str, np.ndarray]:
    """What the train step takes: the batch of every seed at `step`."""
    batches = [training_batch(split, seed, step, batch_size) for seed in seeds]
    return {key: np.stack([batch[key] for batch in batches]) for key in batches[0]}


def fresh(config: ExperimentConfig, split: Split) -> tuple[Program, TrainState]:
    """The program of `TASK` and its state before the first step."""
    program = make_program(config, TASK)
    return program, begin(program, make_probe_step(program, (1, 4)), split.gather(np.arange(8)))[0]


def of_seed(tree: Any, place: int) -> Any:
    """The values of one seed, copied: a step gives the arrays of its state away."""
    return jax.tree.map(lambda leaf: np.array(leaf[place]), tree)


def assert_same_bits(tree: Any, other: Any) -> None:
    """Fails, naming the leaf, unless both trees hold the same bits."""
    assert jax.tree.structure(tree) == jax.tree.structure(other)
    for (path, leaf), there in zip(jax.tree.leaves_with_path(tree), jax.tree.leaves(other), strict=True):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        assert np.asarray(leaf).tobytes() == np.asarray(there).tobytes(), f"{name}: {leaf} is not {there}"
