"""Training runs side by side: each worker process has a core of its own, which for small programs is faster."""

import multiprocessing
import os
import platform
from collections.abc import Callable, Iterator, Sequence

from data.parallel import Job, Result, ordered_map

# glibc gives large buffers back to the system after every step and then pays to get them again; the workers keep them.
ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "268435456",
    "MALLOC_ARENA_MAX": "1",
}


def run_all(work: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[Result]:
    """work(job) of every job, in order, as many at a time as there are cores. `work` calls `take_one_core` first."""
    for name, value in ALLOCATOR.items():
        os.environ.setdefault(name, value)
    return ordered_map(work, jobs, len(cores()))


def cores() -> list[int]:
    """The cores that this process may run on."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def take_one_core() -> None:
    """Binds this worker process to a core. JAX must not have started: it counts its cores once."""
    ours = cores()
    if multiprocessing.parent_process() is not None and len(ours) > 1 and hasattr(os, "sched_setaffinity"):
        number = int(multiprocessing.current_process().name.rpartition("-")[2])
        os.sched_setaffinity(0, {ours[number % len(ours)]})


def machine() -> str:
    """What numbers are made on."""
    return f"{os.cpu_count()} cores ({platform.machine()}, {platform.system()})"
