"""A lock between processes that ends with its process, whatever ends that."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from data.parallel import Progress


@contextlib.contextmanager
def locked(path: Path, waiting: str, progress: Progress) -> Iterator[None]:
    """Holds the lock file `path`, which is made and stays. Shows `waiting` as a stage if another process holds it.

    Raises OSError if the file cannot be written.
    """
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(waiting, 0, 1)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
