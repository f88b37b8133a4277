"""Runs of seconds, trained in this process."""

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from tests.tiny import tiny_config
from training.config import ExperimentConfig
from training.loop import train

SMALL = {"seeds": (0, 1), "model.depth": 1, "model.norm": "batch"}


def smoke_config(changes: dict[str, Any] | None = None) -> ExperimentConfig:
    """The run of docs/api.md: an LRU with batch norm, 12 steps, checkpoints 8 and 12; `changes` by dotted key."""
    return tiny_config("lru", SMALL | (changes or {}))


def train_quietly(config: ExperimentConfig, workdir: Path) -> Path:
    """Trains to the end. Returns the folder."""
    with redirect_stdout(StringIO()):
        train(config, workdir, workdir.parent)
    return workdir
