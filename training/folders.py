"""The folders of runs as another process sees them: names and version of files, and where runs are. No jax."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training.errors import ConfigError

SCHEMA = 3
"""Version of a run's files. All since 1 can be read: keys that an older config lacks have defaults, and before 3 no
record carried a hash of itself."""

CONFIG = "config.json"
METRICS = "metrics.jsonl"
LOCK = "lock"
CHECKPOINTS = "checkpoints"

NOT_RUNS = {CHECKPOINTS, "compiled"}
"""Folders that are not searched."""


def refuse_schema(schema: Any) -> None:
    """Raises ConfigError for files of a version that is not known here."""
    if schema not in range(1, SCHEMA + 1):
        raise ConfigError(f"a run of another version (schema {schema!r}, here {SCHEMA}): update linrec to read it")


def runs_below(folder: Path) -> Iterator[Path]:
    """Every folder with a config.json, `folder` itself included, in order; none if it is not there."""
    for here, inner, files in os.walk(folder):
        if CONFIG in files:
            inner.clear()
            yield Path(here)
        inner[:] = sorted(name for name in inner if name not in NOT_RUNS and not name.startswith("."))
