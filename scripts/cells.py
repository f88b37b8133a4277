"""Runs that a study is made of: trained and scored in one call, quietly, and only once."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from training.config import ExperimentConfig
from training.errors import NonFiniteError
from training.results import Record, read_results
from training.workdir import RESULTS


def scored(folder: Path, which: str) -> dict[str, Record]:
    """Split -> record of the checkpoint `which` in the results of a run."""
    return {record["split"]: record for record in read_results(folder / RESULTS) if record["checkpoint"] == which}


def trained(
    config: ExperimentConfig, folder: Path, data_dir: Path, splits: Sequence[str], checkpoints: Sequence[str]
) -> None:
    """Trains a run to its end, from where it stopped, and scores what is not scored yet.

    A run that no finite seed is left of is scored in its last finite state.
    """
    missing = [(which, split) for which in checkpoints for split in splits if split not in scored(folder, which)]
    if not missing:
        return
    import jax

    from training.loop import train
    from training.results import score

    jax.config.update("jax_compilation_cache_dir", str(folder.parent / "compiled"))
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        with contextlib.suppress(NonFiniteError):
            train(config, folder, data_dir)
        for which, split in missing:
            score(folder, data_dir, split, which)
