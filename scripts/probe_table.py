"""Trains every layer on every state-tracking probe and writes the table of accuracy by length.

    python -m scripts.probe_table [--out=runs/probes] [--data_dir=DIR] [--tasks=s3,a5] [--layers=lru,mru_ldu]

Every cell (configs/probes.py) is trained with three seeds at the rates of RATES in turn, until its mean validation
accuracy at training length reaches 99 %; the best rate is scored on the test split. Each core trains one cell at a
time. Goes on where it was interrupted. Writes docs/probes.md and docs/probes.json from the run folders.
"""

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from configs import probes
from data.spec import DataRequest
from scripts import prepare_data
from scripts.probe_report import write_report
from scripts.progress import Progress
from scripts.workers import run_all, take_one_core
from training import cli
from training.errors import ConfigError
from training.results import Record, read_results
from training.workdir import RESULTS

RATES = (3e-3, 1e-2)
SOLVED = 0.99


class Cell(NamedTuple):
    """One layer on one task."""

    task: str
    layer: str
    out: Path
    data_dir: Path

    def folder(self, rate: float) -> Path:
        """The run folder at a rate."""
        return self.out / f"{self.task}_{self.layer}_{rate:g}"


def main(argv: Sequence[str]) -> None:
    """Prepares the data, trains what is not finished, writes the table."""
    parser = argparse.ArgumentParser(prog="python -m scripts.probe_table", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/probes"))
    parser.add_argument("--data_dir")
    parser.add_argument("--tasks", type=_names(probes.TASKS), default=probes.TASKS)
    parser.add_argument("--layers", type=_names(tuple(probes.LAYERS)), default=tuple(probes.LAYERS))
    arguments = parser.parse_args(argv[1:])
    data_dir = cli.data_dir(arguments.data_dir)
    for task in arguments.tasks:
        if code := prepare_data.main([task, f"--data_dir={data_dir}"]):
            sys.exit(code)
    cells = [Cell(task, layer, arguments.out, data_dir) for task in arguments.tasks for layer in arguments.layers]
    with Progress() as progress:
        for done, _ in enumerate(run_all(run_cell, cells), start=1):
            progress("cells", done, len(cells))
    print(write_report({(cell.task, cell.layer): runs_of(cell) for cell in cells}))


def _names(known: tuple[str, ...]):
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        if unknown := [name for name in names if name not in known]:
            raise ConfigError(f"unknown {unknown[0]!r}: expected some of {', '.join(known)}")
        return names

    return parse


def run_cell(cell: Cell) -> None:
    """Trains a cell at one rate after the other, until one solves it."""
    take_one_core()
    for rate in RATES:
        if _run(cell, rate)["mean"] >= SOLVED:
            return


def _run(cell: Cell, rate: float) -> Record:
    """Trains and scores a cell at a rate, unless that was done. Returns the validation record."""
    folder = cell.folder(rate)
    scored = _scores(folder)
    if scored.keys() >= {"val", "test"}:
        return scored["val"]
    import jax

    from training.config import from_config_dict
    from training.loop import train
    from training.results import score

    jax.config.update("jax_compilation_cache_dir", str(cell.out / "compiled"))
    config = probes.get_config(f"task={cell.task},layer={cell.layer},lr={rate}")
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        train(from_config_dict(config.to_dict()), folder, cell.data_dir)
        for split in ("val", "test"):
            score(folder, cell.data_dir, split, "last")
    return _scores(folder)["val"]


def _scores(folder: Path) -> dict[str, Record]:
    return {record["split"]: record for record in read_results(folder / RESULTS) if record["checkpoint"] == "last"}


def runs_of(cell: Cell) -> dict[float, tuple[Path, dict[str, Record]]]:
    """The finished runs of a cell: rate -> folder and scores."""
    return {rate: (cell.folder(rate), scores) for rate in RATES if (scores := _scores(cell.folder(rate)))}


if __name__ == "__main__":
    began = time.monotonic()
    code = cli.guarded(main, sys.argv)
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(code)
