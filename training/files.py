"""Files that are either the old ones or the new ones, whatever happens meanwhile; sizes and times in words."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from data import strict_json
from data.sealed import sealed, unsealed


def sync(path: Path) -> None:
    """Waits until the file or folder ``path`` is on the disk; a folder is the list of its names.

    Raises:
      OSError: the disk refuses.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: bytes) -> None:
    """Writes ``content`` beside ``path`` and renames it: a kill or a power cut leaves the old file or the new one.

    Raises:
      OSError: the folder is missing, full or unwritable; the old file is untouched.
    """
    beside = path.with_name(path.name + ".tmp")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync(path.parent)


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Waits until no other process is in such a block on a folder: for files that are read, changed and written.

    Raises:
      OSError: the folder is missing.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    """Writes ``value`` as indented JSON, atomically.

    Raises:
      ValueError: ``value`` holds a NaN or an infinity, which JSON cannot say.
      OSError: as ``write_atomically``.
    """
    write_atomically(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def write_sealed(path: Path, record: dict[str, Any]) -> None:
    """Writes a record with a hash of itself, as `write_json`."""
    write_json(path, sealed(record))


def read_sealed(path: Path) -> dict[str, Any]:
    """The record of such a file, or of an older one without a hash.

    Raises:
      OSError: the file cannot be read.
      ValueError: it is no JSON, no record, or not what was written.
    """
    record = strict_json.parse(path.read_bytes())
    if not isinstance(record, dict):
        raise ValueError("it is no record")
    return unsealed(record)


def size_text(count: int) -> str:
    """A number of bytes in the largest unit of which there is one: "512 B", "4.2 kB", "2.8 MB", "1.5 GB"."""
    for power, unit in ((9, "GB"), (6, "MB"), (3, "kB")):
        if count >= 10**power:
            return f"{count / 10**power:,.1f} {unit}"
    return f"{count} B"


LONGEST = 10**12
"""Seconds, 30,000 years: more than any job takes, and less than a timedelta can say."""


def time_text(seconds: float) -> str:
    """A number of seconds as "0:00:14" or "3 days, 4:00:00", whatever a clock that jumped makes of it."""
    return str(timedelta(seconds=round(min(max(seconds, 0), LONGEST))))
