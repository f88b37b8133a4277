"""The folders of runs as another process sees them: names of files, and where runs are. No jax."""

import os
from collections.abc import Iterator
from pathlib import Path

CONFIG = "config.json"
METRICS = "metrics.jsonl"
CHECKPOINTS = "checkpoints"

NOT_RUNS = {CHECKPOINTS, "compiled"}
"""Folders that are not searched."""


def runs_below(folder: Path) -> Iterator[Path]:
    """Every folder with a config.json, `folder` itself included, in order; none if it is not there."""
    for here, inner, files in os.walk(folder):
        if CONFIG in files:
            inner.clear()
            yield Path(here)
        inner[:] = sorted(name for name in inner if name not in NOT_RUNS and not name.startswith("."))
