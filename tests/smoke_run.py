"""Runs of seconds, trained in this process."""

from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from tests.tiny import tiny_config
from training import loop, memory, results
from training.config import ExperimentConfig
from training.loop import train
from training.state import Program

SMALL = {"seeds": (0, 1), "model.depth": 1, "model.norm": "batch"}


def smoke_config(changes: dict[str, Any] | None = None) -> ExperimentConfig:
    """The run of docs/api.md: an LRU with batch norm, 12 steps, checkpoints 8 and 12; `changes` by dotted key."""
    return tiny_config("lru", SMALL | (changes or {}))


def train_quietly(config: ExperimentConfig, workdir: Path) -> Path:
    """Trains to the end. Returns the folder."""
    with redirect_stdout(StringIO()):
        train(config, workdir, workdir.parent)
    return workdir


def remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, called once for equal arguments, of which the first may be a program."""
    found: dict[str, Any] = {}

    def call(first: Any, *rest: Any) -> Any:
        of = (first.config, first.task, first.affine) if isinstance(first, Program) else first
        key = repr((of, rest))
        if key not in found:
            found[key] = function(first, *rest)
        return found[key]

    return call


_STEP, _EVALUATION = remembered(memory.compile_step), remembered(loop.make_eval_step)
ONCE = [
    (memory, "compile_step", _STEP),
    (loop, "compile_step", _STEP),
    (loop, "make_eval_step", _EVALUATION),
    (results, "make_eval_step", _EVALUATION),
    (loop, "make_probe_step", remembered(loop.make_probe_step)),
    (loop, "smoke_data", remembered(loop.smoke_data)),
]
"""What the fixture `compiled_once` puts in the place of what traces and compiles, or draws smoke data, in every run."""
