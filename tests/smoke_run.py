"""Runs of seconds, trained in this process."""

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from tests.tiny import tiny_config
from training.config import ExperimentConfig, from_config_dict
from training.loop import train

SMALL = {
    "seeds": (0, 1),
    "model.depth": 1,
    "model.norm": "batch",
    "train.steps": 4,
    "train.eval_every": 2,
    "train.checkpoint_every": 2,
}


def smoke_config(changes: dict[str, Any] | None = None) -> ExperimentConfig:
    """An LRU with batch norm, seeds 0 and 1, four steps, checkpoints 2 and 4; `changes` by dotted key."""
    return tiny_config("lru", SMALL | (changes or {}))


def train_quietly(config: ConfigDict | ExperimentConfig, workdir: Path) -> Path:
    """Trains to the end. Returns the folder."""
    checked = config if isinstance(config, ExperimentConfig) else from_config_dict(config)
    with redirect_stdout(StringIO()):
        train(checked, workdir, workdir.parent)
    return workdir
