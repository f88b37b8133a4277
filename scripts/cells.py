"""Runs that a study is made of: trained and scored in one call, quietly, and only once."""

import contextlib
import os
from pathlib import Path

from training.config import ExperimentConfig
from training.errors import NonFiniteError
from training.reading import PLAIN, Reading
from training.results import Record, find_record, read_results
from training.workdir import RESULTS


def scored(
    config: ExperimentConfig, folder: Path, data_dir: Path, split: str, checkpoint: str, reading: Reading = PLAIN
) -> Record:
    """The record of a run, which is trained to its end, from where it stopped, and scored, unless that was done.

    A run that no finite seed is left of is scored in its last finite state.
    """
    records = read_results(folder / RESULTS)
    if (record := find_record(records, split, checkpoint, reading)) is not None:
        return record
    import jax

    from training.loop import train
    from training.results import score

    jax.config.update("jax_compilation_cache_dir", str(folder.parent / "compiled"))
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        if not records:
            with contextlib.suppress(NonFiniteError):
                train(config, folder, data_dir)
        return score(folder, data_dir, split, checkpoint, reading)
