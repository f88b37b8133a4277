"""Where the cells of a sweep run: on this machine side by side, or as an array job through submitit."""

import itertools
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple

from data.errors import first_line
from scripts.sweep_cell import End, Settings, run_cell
from scripts.sweep_plan import LOGS, Cell
from scripts.workers import cores
from training.errors import ConfigError

_share = threading.local()


def run_here(
    cells: Sequence[Cell], settings: Settings, workers: int, stopping: threading.Event
) -> Iterator[tuple[Cell, End]]:
    """Each cell with its end, as they end, `workers` of them at a time with as many cores and GPUs each.

    When `stopping` is set, what runs is asked to end and nothing more is begun.
    """
    with ThreadPoolExecutor(workers, initializer=_take_share, initargs=(itertools.count(), workers)) as pool:
        futures = {pool.submit(_in_share, cell, settings, stopping): cell for cell in cells}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _take_share(numbers: Iterator[int], workers: int) -> None:
    """Binds this thread, and with it the processes that it starts, to its share of the machine."""
    number = next(numbers)
    _share.environment = share_of_devices(number, workers, os.environ)
    if workers > 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, share_of(cores(), number, workers))


def _in_share(cell: Cell, settings: Settings, stopping: threading.Event) -> End:
    return run_cell(cell, settings, stopping, _share.environment)


def share_of(things: Sequence[Any], number: int, workers: int) -> Sequence[Any]:
    """The part of a worker: equal ones, and one thing at least, which several then share."""
    share = things[number * len(things) // workers : (number + 1) * len(things) // workers]
    return share or [things[number % len(things)]]


def share_of_devices(number: int, workers: int, environment: Mapping[str, str]) -> dict[str, str]:
    """The part of CUDA_VISIBLE_DEVICES that a worker uses; nothing if that is not set."""
    names = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return {"CUDA_VISIBLE_DEVICES": ",".join(share_of(names, number, workers))} if names else {}


class Requeued(NamedTuple):
    """What an array job does with a cell; submitit puts it back into the queue when its time is over."""

    settings: Settings

    def __call__(self, cell: Cell) -> End:
        """Runs what is left of the cell."""
        return run_cell(cell, self.settings)

    def checkpoint(self, cell: Cell) -> Any:
        """The submission that goes on: all that is needed stands in the folder of the run."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, cell)


def submit(cells: Sequence[Cell], settings: Settings, cluster: str, options: Mapping[str, str]) -> list[Any]:
    """Submits the cells as one array job, and returns their submitit jobs, whose result() is the `End` of each.

    cluster: "slurm", or "local" for processes on this machine. options: of submitit's `update_parameters`.
    Raises ConfigError, one line, for what submitit refuses.
    """
    try:
        import submitit
    except ImportError as error:
        raise ConfigError("--executor needs submitit: pip install -r requirements-dev.txt") from error
    try:
        executor = submitit.AutoExecutor(settings.out / LOGS / "submitit", cluster=cluster)
        executor.update_parameters(name=settings.out.name, **{key: _number(text) for key, text in options.items()})
        return executor.map_array(Requeued(settings), cells)
    except (RuntimeError, NameError, TypeError, ValueError, AssertionError) as error:
        raise ConfigError(f"submitit: {first_line(error)}") from error


def _number(text: str) -> int | str:
    return int(text) if text.isdecimal() else text
