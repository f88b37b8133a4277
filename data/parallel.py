"""Jobs over processes, results in the order of the jobs, whatever the number of processes."""

import collections
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from data.errors import DataError

Job = TypeVar("Job")
Result = TypeVar("Result")

Progress = Callable[[str, int, int], None]
"""progress(stage, done, total), called from the main process only."""


AHEAD = 8
"""Jobs for each process whose results may wait to be taken, so that a slow taker does not fill the memory."""


def silent(stage: str, done: int, total: int) -> None:
    """The progress callback that shows nothing."""


def ordered_map(function: Callable[[Job], Result], jobs: Sequence[Job], processes: int) -> Iterator[Result]:
    """Yields function(job) for each job, in order. With one process (or one job) nothing is started.

    `function` must be importable by name. Raises what `function` raises; DataError if a worker process dies.
    """
    processes = min(processes, len(jobs))
    if processes <= 1:
        yield from map(function, jobs)
        return
    # spawn, not fork: the parent may hold threads (JAX, TensorStore) and the lock of a preparation.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=_follow_parent) as pool:
        try:
            waiting = collections.deque()
            for job in jobs:
                waiting.append(pool.submit(function, job))
                if len(waiting) > AHEAD * processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise DataError("a worker process ended unexpectedly (out of memory?); try --processes=1") from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _follow_parent() -> None:
    """Makes a worker end with its parent, even if that was killed, and leaves Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
