"""The parameters of a run as its folder holds them: seed by seed and by path, without building its model."""

import hashlib
import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from models.build import Params, initial_stats
from models.norm import Stats
from training import checkpoint
from training.checkpoint import by_path
from training.config import ExperimentConfig
from training.errors import ConfigError
from training.state import Program
from training.workdir import CHECKPOINTS, read_config


class Weights(NamedTuple):
    """One seed at a checkpoint: parameters and the running averages of batch norm, path -> array.

    Paths are those of the model, "blocks/0/layer/nu_log"; the averages of a block are its "norm/mean" and "norm/var".
    step: the updates that made them; -1: those of a "best" that no evaluation has chosen yet, the initial ones. alive:
    False if the seed met a value that was not finite at some later update.
    """

    seed: int
    step: int
    alive: bool
    arrays: dict[str, jax.Array]

    @property
    def sha256(self) -> str:
        """Of the bytes of all arrays, in the order of their paths."""
        return sha256_of(*(np.asarray(array).tobytes() for _, array in sorted(self.arrays.items())))


@dataclass(frozen=True)
class Saved:
    """A checkpoint of a run. record: its config.json. which: "best", "last" or a step. leaves: by path, over seeds.

    step: the updates that the run had done. repairs: a line for each damaged checkpoint that was passed over.
    """

    workdir: Path
    config: ExperimentConfig
    record: Mapping[str, Any]
    which: str
    step: int
    leaves: Mapping[str, jax.Array]
    repairs: tuple[str, ...]

    def of_seed(self, seed: int | None = None) -> Weights:
        """The weights of a seed; None: of the first. Raises ConfigError for a seed that the run has not."""
        seeds = self.config.seeds
        if seed is not None and seed not in seeds:
            raise ConfigError(f"{self.workdir} has no seed {seed}: choose from {', '.join(map(str, seeds))}")
        place = 0 if seed is None else seeds.index(seed)
        group, step = ("best/", int(self.leaves["best/step"][place])) if self.which == "best" else ("", self.step)
        params, stats = (self._group(f"{group}{name}/", place) for name in ("params", "stats"))
        arrays = params | {_of_average(path): leaf for path, leaf in stats.items()}
        return Weights(seeds[place], step, bool(self.leaves["alive"][place]), arrays)

    def _group(self, prefix: str, place: int) -> dict[str, jax.Array]:
        return {path.removeprefix(prefix): leaf[place] for path, leaf in self.leaves.items() if path.startswith(prefix)}


def read_saved(workdir: Path, which: str, option: str = "checkpoint") -> Saved:
    """A checkpoint of a run: "best" (each seed's own), "last", or a step. The folder is left as it is.

    option: how an error names `which`. Raises ConfigError if there is no such run or checkpoint, or it is damaged.
    """
    config, record = read_config(workdir)
    restored = checkpoint.restore(workdir / CHECKPOINTS, None, asked_step(which, option), read_only=True)
    if restored is None:
        raise ConfigError(f"{workdir} has no checkpoint yet: train it first")
    return Saved(workdir, config, record, which, restored.step, restored.tree, restored.repairs)


def asked_step(which: str, option: str = "--checkpoint") -> int | None:
    """The step that an option names, None for best and last. Raises ConfigError for anything else."""
    if which in ("best", "last"):
        return None
    if not re.fullmatch("0|[1-9][0-9]{0,14}", which):
        raise ConfigError(f"{option}={which}: expected best, last or a step")
    return int(which)


def fitted(weights: Weights, program: Program, source: Path) -> tuple[Params, Stats]:
    """The weights as the trees of the model of `program`.

    Raises ConfigError, naming the first array that differs and both shapes, if they are those of another model.
    """
    stats = jax.eval_shape(lambda: initial_stats(program.config.model))
    trees = program.abstract_params, stats
    names = list(by_path(program.abstract_params)), [_of_average(path) for path in by_path(stats)]
    wanted = dict(zip(itertools.chain(*names), jax.tree.leaves(trees), strict=True))
    for path in [*wanted, *weights.arrays]:
        there, here = (_shape(arrays.get(path)) for arrays in (weights.arrays, wanted))
        if there != here:
            raise ConfigError(f"{source} holds another model: {path} is {there} there, {here} here")
    params, averages = (
        jax.tree.unflatten(jax.tree.structure(tree), [weights.arrays[path] for path in paths])
        for tree, paths in zip(trees, names, strict=True)
    )
    return params, averages


def _of_average(path: str) -> str:
    """The path in the model of a running average, "0/mean" of the first block."""
    block, name = path.split("/")
    return f"blocks/{block}/norm/{name}"


def _shape(array: Any) -> str:
    return "missing" if array is None else f"({', '.join(map(str, array.shape))})"


def config_sha256(record: Mapping[str, Any]) -> str:
    """Of the config as it stands in a config.json, keys in order."""
    return sha256_of(json.dumps(record["config"], sort_keys=True).encode())


def sha256_of(*parts: bytes) -> str:
    """Of the parts, joined."""
    return hashlib.sha256(b"".join(parts)).hexdigest()
