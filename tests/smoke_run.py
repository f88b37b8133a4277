"""Tiny runs, trained once for the tests of a module."""

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from tests.tiny import tiny_config
from training.config import ExperimentConfig, from_config_dict
from training.loop import train


def train_quietly(config: ConfigDict | ExperimentConfig, workdir: Path) -> Path:
    """A finished run in `workdir`."""
    checked = config if isinstance(config, ExperimentConfig) else from_config_dict(config)
    with redirect_stdout(StringIO()):
        train(checked, workdir, workdir.parent)
    return workdir


def smoke_config(layer: str = "lru", changes: dict[str, Any] | None = None) -> ExperimentConfig:
    """Seeds 0 and 1, depth 1, four steps, checkpoints 2 and 4; `changes` by dotted key."""
    small = {"seeds": (0, 1), "model.depth": 1, "train.steps": 4, "train.eval_every": 2, "train.checkpoint_every": 2}
    return tiny_config(layer, small | (changes or {}))
