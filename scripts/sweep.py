"""Runs a sweep: every cell of a grid, all seeds of a cell in one program, goes on where it was interrupted.

    python -m scripts.sweep --config=configs/lra.py:task=listops --seeds=0:5 --out=runs/sizes \\
        --grid='layer=rotrnn,lru; depth=2,4,6; real_state_size=64' --dry_run

A key of a grid is one of the string after the colon, or config.a.b for any other; --list=FILE has a grid a line, for
cells that are no product. --random='config.optim.lr=log:1e-4:1e-2; config.model.dropout=0:0.3' --trials=16 draws from
ranges, the same draws for every cell of the grid. --dry_run shows every command with its time and memory, which it
measures here, and how far each cell is; it writes nothing.

Each cell is one train.py with a folder of its own below --out and one eval.py for each of --splits. Finished cells are
skipped. One that was killed or crashed is tried again, --retries times; one that was refused or met a non-finite value
is listed with its reason. The same command goes on, also with more cells than before.

--executor=here runs --workers cells at a time, each with its share of the cores and of CUDA_VISIBLE_DEVICES; slurm
submits an array job through submitit (--submitit='slurm_partition=gpu; timeout_min=600; gpus_per_node=1') and returns;
submitit_local does so with processes here. Any other scheduler: --index=I runs cell I alone, I from 0
(scripts/cluster/ has examples).

Exit codes: 0 all cells are finished (or submitted), 1 some failed, 2 refused, 130 interrupted. With --index those of
the cell.
"""

import argparse
import math
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence

from scripts import sweep_plan
from scripts.arguments import Parser, positive, some_of
from scripts.progress import Progress
from scripts.sweep_cell import End, Settings, commands, found, run_cell, standing, steps_done, unscored
from scripts.sweep_estimate import Estimate, estimate, kind
from scripts.sweep_executors import run_here, share_of, share_of_devices, submit
from scripts.sweep_plan import Cell, Values
from scripts.workers import ALLOCATOR, cores
from training import cli
from training.errors import ConfigError
from training.files import size_text, time_text
from training.loop import load_data
from training.workdir import CONFIG, refuse_difference

FAILED = 1
EXECUTORS = ("here", "slurm", "submitit_local")


def main(argv: Sequence[str]) -> None:
    """Plans, then shows, submits or runs."""
    arguments = _parser().parse_args(argv[1:])
    cells = sweep_plan.resolve(arguments.config, arguments.seeds, _chosen(arguments))
    settings = Settings(arguments.out, cli.data_dir(arguments.data_dir), arguments.splits, arguments.retries)
    if arguments.dry_run:
        for line in dry_run(cells, settings, arguments.workers):
            print(line, flush=True)
        return
    sweep_plan.keep(settings.out, cells)
    for cell in cells:
        if (settings.folder(cell) / CONFIG).exists():
            refuse_difference(settings.folder(cell), cell.config)
    if arguments.index is not None:
        sys.exit(_row(cells, settings, arguments.index))
    ends = {cell.name: end for cell in cells if (end := found(cell, settings)) is not None}
    waiting = [cell for cell in cells if cell.name not in ends]
    _refuse_missing_data(waiting, settings)
    if arguments.executor == "here":
        sys.exit(_run(cells, waiting, ends, settings, arguments.workers))
    if waiting:
        options = dict(sweep_plan.pairs(arguments.submitit))
        jobs = submit(waiting, settings, arguments.executor.rpartition("_")[2], options)
        print(f"submitted {len(waiting)} of {len(cells)} cells as {jobs[0].job_id} to {jobs[-1].job_id}")
    print("\n".join([*_failures(cells, ends), f"--dry_run shows how far the cells are: {settings.out}"]))


def _parser() -> Parser:
    parser = Parser("sweep", __doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--grid")
    parser.add_argument("--list", type=cli.folder)
    parser.add_argument("--random")
    parser.add_argument("--trials", type=positive)
    parser.add_argument("--search_seed", type=int, default=0)
    parser.add_argument("--seeds")
    parser.add_argument("--out", type=cli.folder, required=True)
    parser.add_argument("--data_dir")
    parser.add_argument("--splits", type=some_of(("val", "test")), default=("val",))
    parser.add_argument("--executor", choices=EXECUTORS, default="here")
    parser.add_argument("--workers", type=positive, default=1)
    parser.add_argument("--submitit", default="")
    parser.add_argument("--index", type=int)
    parser.add_argument("--retries", type=int, choices=range(10), default=2)
    parser.add_argument("--dry_run", action="store_true")
    return parser


def _chosen(arguments: argparse.Namespace) -> list[Values]:
    """What each cell sets, in the order of the command line."""
    if (arguments.random is None) != (arguments.trials is None):
        raise ConfigError("--random and --trials=N go together")
    if arguments.grid is arguments.list is arguments.random is None:
        raise ConfigError("nothing to sweep: give --grid, --list or --random")
    chosen = sweep_plan.parse_grid(arguments.grid) if arguments.grid is not None else []
    chosen += sweep_plan.read_list(arguments.list) if arguments.list else []
    if arguments.random is not None:
        draws = sweep_plan.draw(arguments.random, arguments.trials, arguments.search_seed)
        chosen = sweep_plan.product(chosen or [{}], draws)
    if not chosen:
        raise ConfigError("nothing to sweep: the grid and the list are empty")
    return chosen


def _refuse_missing_data(cells: Sequence[Cell], settings: Settings) -> None:
    """Raises DataError if the data of a cell are missing: better once and now than by every cell."""
    for config in {str(cell.config.data): cell.config for cell in cells}.values():
        load_data(config, settings.data_dir)


def _row(cells: Sequence[Cell], settings: Settings, index: int) -> int:
    """Runs one cell, whatever other processes do with the others. Returns its exit code."""
    if not 0 <= index < len(cells):
        raise ConfigError(f"--index={index}: the sweep has cells 0 to {len(cells) - 1}")
    end = run_cell(cells[index], settings, _stopped_by_signals())
    print(f"{cells[index].name}: {end}", file=sys.stderr if end.code else sys.stdout)
    return end.code if end.code >= 0 else 128 - end.code


def _run(cells: Sequence[Cell], waiting: Sequence[Cell], ends: dict[str, End], settings: Settings, workers: int) -> int:
    """Runs the cells that wait, here. Returns the exit code."""
    stopping = _stopped_by_signals()
    print(f"{len(waiting)} of {len(cells)} cells to run, {workers} at a time; logs in {settings.out}/log", flush=True)
    with Progress() as progress:
        for cell, end in run_here(waiting, settings, workers, stopping):
            ends[cell.name] = end
            if not stopping.is_set():
                print(f"{cell.name}: {end}", flush=True)
                progress("cells", len(ends), len(cells))
    if stopping.is_set():
        print("interrupted: the same command goes on where this one stopped", file=sys.stderr)
        return cli.INTERRUPTED
    failures = _failures(cells, ends)
    print("\n".join([f"{len(cells) - len(failures)} of {len(cells)} cells finished: {settings.out}", *failures]))
    return FAILED if failures else cli.DONE


def _failures(cells: Sequence[Cell], ends: dict[str, End]) -> list[str]:
    """A line for each cell that failed, in the order of the plan."""
    ended = ((cell.name, ends[cell.name]) for cell in cells if cell.name in ends)
    return [f"failed: {name}: {end}" for name, end in ended if end.code != cli.DONE]


def _stopped_by_signals() -> threading.Event:
    """Is set by the first SIGINT or SIGTERM; the second one ends this process on the spot."""
    stopping = threading.Event()

    def stop(number: int, _: object) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    return stopping


def dry_run(cells: Sequence[Cell], settings: Settings, workers: int) -> Iterator[str]:
    """Every command with what it will take on the share of a worker, and the sum.

    Cells whose programs are alike are measured once, with what compiling takes each anew.
    """
    environment = ALLOCATOR | os.environ | share_of_devices(0, workers, os.environ)
    if workers > 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, share_of(cores(), 0, workers))
    measured: dict[str, Estimate | str] = {}
    total, memory, unknown, waiting = 0.0, 0, 0, 0
    for number, cell in enumerate(cells):
        yield f"[{number}] {cell.name}: {_size(cell)}, {standing(cell, settings)}"
        if found(cell, settings) is not None:
            continue
        left, waiting = commands(cell, settings), waiting + 1
        yield from (f"    python {shlex.join(command)}" for command in left)
        alike = kind(cell.config)
        if alike not in measured:
            measured[alike] = estimate(cell.config, settings.data_dir, environment)
        if isinstance(guess := measured[alike], str):
            unknown += 1
            yield f"    no estimate: {guess}"
            continue
        seconds = guess.seconds(cell.config, steps_done(cell, settings), unscored(cell, settings))
        total, memory = total + seconds, max(memory, guess.memory)
        yield f"    about {_time(seconds)}, {size_text(guess.memory)}"
    without = f" without the {unknown} that could not be measured" if unknown else ""
    side_by_side = f" by {workers} workers, {size_text(memory * workers)}" if workers > 1 else f", {size_text(memory)}"
    yield (
        f"{waiting} of {len(cells)} cells to run: about {_time(total / min(workers, waiting or 1))}{side_by_side}"
        f"{without}"
    )


def _size(cell: Cell) -> str:
    model = cell.config.model
    state = model.layer_config().real_state_size
    return f"{len(cell.config.seeds)} seeds, {model.depth} blocks of {state} real numbers of state"


def _time(seconds: float) -> str:
    return time_text(math.ceil(seconds))


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv))
