"""Runs that a study is made of: trained and scored in one call, quietly, and only once."""

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from training import checkpoint
from training.config import SCHEMA, ExperimentConfig, from_config_dict
from training.errors import NonFiniteError
from training.reading import PLAIN, Reading
from training.results import Record, find_record, read_results
from training.workdir import CHECKPOINTS, CONFIG, RESULTS, refuse_difference


def scored(
    config: ExperimentConfig, folder: Path, data_dir: Path, split: str, which: str, reading: Reading = PLAIN,
    to_stop: Callable[[], bool] = lambda: False,
) -> Record:  # fmt: skip
    """The record of a run, which is trained to its end, from where it stopped, and scored, unless that was done.

    A run that no finite seed is left of is scored in its last finite state. to_stop: see `training.loop.train`.
    Raises ConfigError if the folder has a run of another config, PreemptedError if it was asked to stop.
    """
    if (folder / CONFIG).exists():
        refuse_difference(folder, config)
    records = records_of_the_end(config, folder)
    if (record := find_record(records, split, which, reading)) is not None:
        return record
    import jax

    from training.loop import train
    from training.results import score

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(folder.parent / "compiled"))
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        if not is_trained(config, folder):
            with contextlib.suppress(NonFiniteError):
                train(config, folder, data_dir, to_stop)
        return score(folder, data_dir, split, which, reading)


def records_of_the_end(config: ExperimentConfig, folder: Path) -> list[Record]:
    """What the run in a folder scored when it was over. Raises ConfigError for damaged records."""
    return [record for record in read_results(folder / RESULTS) if _of_the_end(record, config)]


def is_trained(config: ExperimentConfig, folder: Path) -> bool:
    """Whether nothing is left to do but to score. Raises ConfigError for damaged records."""
    return bool(records_of_the_end(config, folder)) or checkpoint.is_intact(folder / CHECKPOINTS, config.train.steps)


def is_of(kept: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether a config that was kept, nested, is this one; options that it does not know have their defaults.

    Raises ConfigError for one that cannot be read.
    """
    return replace(from_config_dict(kept), schema=SCHEMA) == from_config_dict(config)


def _of_the_end(record: Record, config: ExperimentConfig) -> bool:
    """Whether the run was over when it was scored: all its updates were done, or no seed was left to train."""
    dead = not any(seed["alive"] for seed in record["seeds"].values())
    return dead or record.get("updates") == config.train.steps
