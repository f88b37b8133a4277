"""Runs that a study is made of: trained and scored in one call, quietly, and only once."""

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from training import checkpoint
from training.config import ExperimentConfig
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
    records = read_results(folder / RESULTS)
    ended = _ended(config, folder, records)
    if ended and (record := find_record(records, split, which, reading)) is not None:
        return record
    import jax

    from training.loop import train
    from training.results import score

    jax.config.update("jax_compilation_cache_dir", str(folder.parent / "compiled"))
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        if not ended:
            with contextlib.suppress(NonFiniteError):
                train(config, folder, data_dir, to_stop)
        return score(folder, data_dir, split, which, reading)


def _ended(config: ExperimentConfig, folder: Path, records: Sequence[Record]) -> bool:
    """Whether there is nothing left to train: all steps are done, or every seed was found not finite."""
    last = folder / CHECKPOINTS / str(config.train.steps) / checkpoint.MANIFEST
    return last.exists() or any(not any(s["alive"] for s in record["seeds"].values()) for record in records)
