"""`make demo`: trains the cells of configs/demo.py, scores them, and draws their hidden-state energies.

    python -m scripts.demo [--out=runs/demo] [--data_dir=DIR]

Each core trains one cell at a time. Goes on where it was interrupted; what is finished is not computed again.
"""

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from configs import demo
from scripts import prepare_data
from scripts.arguments import Parser
from scripts.demo_summary import summarise
from scripts.progress import Progress
from scripts.workers import cores, run_all, take_one_core
from training import cli
from training.config import from_config_dict
from training.describe import warn_unused_gpu
from training.results import Record, read_results
from training.workdir import CONFIG, METRICS, RESULTS, refuse_difference

SECONDS_BETWEEN_LOOKS = 1.0


class Job(NamedTuple):
    """One cell to be trained and scored."""

    cell: str
    folder: Path
    data_dir: Path

    @property
    def work(self) -> int:
        """Steps times blocks, by which progress is counted."""
        return demo.STEPS * self.depth

    @property
    def depth(self) -> int:
        return demo.values_of(self.cell)["depth"]


def main(argv: Sequence[str]) -> None:
    """Prepares the data, runs every cell that is not finished, writes figure and tables."""
    parser = Parser("demo", __doc__)
    parser.add_argument("--out", type=cli.folder, default=Path("runs/demo"))
    parser.add_argument("--data_dir")
    arguments = parser.parse_args(argv[1:])
    data_dir = cli.data_dir(arguments.data_dir)
    jobs = [Job(cell, arguments.out / name, data_dir) for cell, name in demo.CELLS.items()]
    unfinished = [job for job in jobs if not _finished(job)]
    if unfinished:
        _run_all(unfinished, data_dir)
    print(summarise(arguments.out, {job.cell: job.folder for job in jobs}))


def _finished(job: Job) -> bool:
    """A cell is finished when the scores of its last step are recorded.

    Raises ConfigError for a folder of another config, whose numbers must not end in this table, and for a damaged file.
    """
    if not (job.folder / CONFIG).exists():
        return False
    refuse_difference(job.folder, from_config_dict(demo.get_config(job.cell).to_dict()))
    records = read_results(job.folder / RESULTS)
    return {record["split"] for record in records if _of_last_step(record)} >= set(demo.SCORED)


def _of_last_step(record: Record) -> bool:
    return record["checkpoint"] == "last" and all(seed["step"] == demo.STEPS for seed in record["seeds"].values())


def _run_all(jobs: Sequence[Job], data_dir: Path) -> None:
    if code := prepare_data.main(["listops", "--length_window=24:96", "--limit=6000", f"--data_dir={data_dir}"]):
        sys.exit(code)
    warn_unused_gpu()
    seeds, count = len(demo.SEEDS), len(cores())
    print(f"training {len(jobs)} runs of {seeds} seeds on {count} cores; logs in */train.log", flush=True)
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(jobs, done))
    watcher.start()
    try:
        # The deep ones first, so that no core is left alone with one at the end.
        for _ in run_all(run_cell, sorted(jobs, key=lambda job: -job.depth)):
            pass
    finally:
        done.set()
        watcher.join()


def run_cell(job: Job) -> None:
    """Trains and scores one cell, on one core of its own: for programs this small, two cores on one are slower."""
    take_one_core()
    import jax

    from training.loop import train
    from training.results import score

    # The cells share programs: evaluation is the same while training and when scoring, and at both rates.
    jax.config.update("jax_compilation_cache_dir", str(job.folder.parent / "compiled"))
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        train(from_config_dict(demo.get_config(job.cell).to_dict()), job.folder, job.data_dir)
        for split in demo.SCORED:
            score(job.folder, job.data_dir, split, "last")


def _watch(jobs: Sequence[Job], done: threading.Event) -> None:
    """Shows how much of all runs is done, until told to stop."""
    total = sum(job.work for job in jobs)
    with Progress() as progress:
        while not done.wait(SECONDS_BETWEEN_LOOKS):
            progress("training", sum(_steps_done(job.folder) * job.depth for job in jobs), total)


def _steps_done(folder: Path) -> int:
    """The step of the last whole row of metrics.jsonl."""
    path = folder / METRICS
    rows = path.read_bytes().splitlines() if path.exists() else []
    for row in reversed(rows):
        with contextlib.suppress(ValueError, KeyError):
            return json.loads(row)["step"]
    return 0


if __name__ == "__main__":
    began = time.monotonic()
    code = cli.guarded(main, sys.argv)
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(code)
