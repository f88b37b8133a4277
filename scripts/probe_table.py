"""Trains every layer on every state-tracking probe and writes the table of accuracy by length.

    python -m scripts.probe_table [--out=runs/probes] [--data_dir=DIR] [--tasks=s3,a5] [--layers=lru,mru_ldu]

Every cell (configs/probes.py) is trained with three seeds at the rates of `rates_of` in turn, until a seed reaches 99 %
of the validation set, whose sequences have the training length; the rate that brings most seeds there is scored on the
test split. A run that ends because no seed is left finite is scored in its last finite state. Each core trains one cell
at a time. Finished cells are kept in docs/probes.json, from which docs/probes.md is written: they are not computed
again unless their config has changed. Interrupted, it goes on where it stopped.
"""

import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from configs import probes
from scripts import prepare_data
from scripts.arguments import Parser, some_of
from scripts.cells import scored
from scripts.probe_report import GROUPS, LIMIT, SOLVED, THEORY, YES, Record, report
from scripts.progress import Progress
from scripts.workers import machine, run_all, take_one_core
from training import cli
from training.config import SCHEMA, from_config_dict, to_plain
from training.describe import warn_unused_gpu
from training.errors import ConfigError
from training.files import write_atomically, write_json
from training.workdir import METRICS
from training.writers import read_metrics

BIN = 40
RECORDS, PAGE = Path("docs/probes.json"), Path("docs/probes.md")


class Cell(NamedTuple):
    """One layer on one task."""

    task: str
    layer: str
    out: Path
    data_dir: Path

    def config(self, rate: float):
        """The checked config at a rate."""
        return from_config_dict(probes.get_config(f"task={self.task},layer={self.layer},lr={rate}").to_dict())

    def folder(self, rate: float) -> Path:
        """The run folder at a rate."""
        return self.out / f"{self.task}_{self.layer}_{rate:g}"


def main(argv: Sequence[str]) -> None:
    """Prepares the data, trains what is not finished, writes the table."""
    parser = Parser("probe_table", __doc__)
    parser.add_argument("--out", type=cli.folder, default=Path("runs/probes"))
    parser.add_argument("--data_dir")
    parser.add_argument("--tasks", type=some_of(probes.TASKS), default=probes.TASKS)
    parser.add_argument("--layers", type=some_of(tuple(probes.LAYERS)), default=tuple(probes.LAYERS))
    arguments = parser.parse_args(argv[1:])
    data_dir = cli.data_dir(arguments.data_dir)
    cells = [Cell(task, layer, arguments.out, data_dir) for task in arguments.tasks for layer in arguments.layers]
    records = _recorded(arguments.out, data_dir)
    open_cells = [cell for cell in cells if (cell.task, cell.layer) not in records]
    for task in dict.fromkeys(cell.task for cell in open_cells):
        if code := prepare_data.main([task, f"--data_dir={data_dir}"]):
            sys.exit(code)
    warn_unused_gpu()
    _write(records)
    with Progress() as progress:
        for done, record in enumerate(run_all(run_cell, open_cells), start=1):
            records[record["task"], record["layer"]] = record
            progress("cells", done, len(open_cells))
            _write(records)
    print(f"{RECORDS}\n{PAGE}")


def rates_of(cell: Cell) -> tuple[float, ...]:
    """The search: the rates of a cell in the order in which they are tried."""
    may = cell.task in GROUPS and THEORY[cell.layer].get(cell.task) in (YES, LIMIT)
    return (*probes.RATES, probes.ONE_MORE) if may else probes.RATES


def _recorded(out: Path, data_dir: Path) -> dict[tuple[str, str], Record]:
    """The finished cells of the present configs; others are said. Raises ConfigError for a damaged file."""
    try:
        found = json.loads(RECORDS.read_text()) if RECORDS.exists() else []
        report(found)
        kept = {(r["task"], r["layer"]): r for r in found if _is_present(Cell(r["task"], r["layer"], out, data_dir), r)}
    except (ConfigError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ConfigError(f"{RECORDS} is damaged ({error!r}): put back the committed one") from error
    if len(kept) < len(found):
        print(f"{len(found) - len(kept)} cells in {RECORDS} are of another config: they leave the table", flush=True)
    return kept


def _is_present(cell: Cell, record: Record) -> bool:
    """Whether a record has the present config of its cell; options that it does not know have their defaults."""
    config = from_config_dict(record["config"])
    return dataclasses.replace(config, schema=SCHEMA) == cell.config(record["rate"])


def _write(records: dict[tuple[str, str], Record]) -> None:
    """In the order of the config, whatever was computed first."""
    order = [(task, layer) for task in probes.TASKS for layer in probes.LAYERS]
    kept = [records[key] for key in order if key in records]
    write_json(RECORDS, kept)
    write_atomically(PAGE, report(kept).encode())


def run_cell(cell: Cell) -> Record:
    """Trains a cell at one rate after the other, until a seed solves it, and says what the best rate scores.

    runs: rate -> (step, mean validation accuracy) over training. seeds: seed -> val, and bins, its mean test accuracy
    in each range of steps of `bins`. majority: accuracy of the most frequent label.
    """
    take_one_core()
    scores = {}
    for rate in rates_of(cell):
        scores[rate] = _scores(cell, rate)
        if _solved(scores[rate]["val"]):
            break
    best = max(scores, key=lambda rate: (_solved(scores[rate]["val"]), scores[rate]["val"]["mean"]))
    val, test = scores[best]["val"], scores[best]["test"]
    steps = len(next(iter(test["seeds"].values()))["accuracy_by_step"])
    starts = range(0, steps, BIN)
    return {
        "task": cell.task,
        "layer": cell.layer,
        "rate": best,
        "runs": {f"{rate:g}": _curve(cell.folder(rate)) for rate in scores},
        "bins": [f"{start + 1}-{start + BIN}" for start in starts],
        "seeds": {
            seed: {
                "val": val["seeds"][seed]["accuracy"],
                "bins": [_mean(found["accuracy_by_step"][start : start + BIN]) for start in starts],
                "alive": found["alive"],
            }
            for seed, found in test["seeds"].items()
        },
        "majority": test["baselines"]["majority"],
        "config": to_plain(cell.config(best)),
        "machine": machine(),
        "date": time.strftime("%Y-%m-%d"),
    }


def _solved(val: Record) -> int:
    """How many seeds reach SOLVED."""
    return sum(seed["accuracy"] >= SOLVED for seed in val["seeds"].values())


def _scores(cell: Cell, rate: float) -> dict[str, Record]:
    """Trains a cell at a rate and scores it on val and test, unless that was done."""
    config, folder = cell.config(rate), cell.folder(rate)
    return {split: scored(config, folder, cell.data_dir, split, "last") for split in ("val", "test")}


def _curve(folder: Path) -> list[tuple[int, float]]:
    """(step, validation accuracy averaged over seeds) at every evaluation."""
    by_step: dict[int, list[float]] = {}
    for row in read_metrics(folder / METRICS):
        if row["split"] == "val":
            by_step.setdefault(row["step"], []).append(row["accuracy"])
    return [(step, statistics.fmean(values)) for step, values in by_step.items()]


def _mean(accuracies: Sequence[float | None]) -> float:
    """Over the steps that have a label."""
    return float(np.mean([value for value in accuracies if value is not None]))


if __name__ == "__main__":
    began = time.monotonic()
    code = cli.guarded(main, sys.argv)
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(code)
