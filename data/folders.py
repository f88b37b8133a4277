"""A prepared folder appears at once or not at all: it is written under a hidden name beside its place, and renamed when
all is in it. What an interrupted preparation has finished is kept for the next one, where it can go on from there.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from data import strict_json
from data.errors import DataError
from data.lock import locked
from data.parallel import Progress

JOURNAL = "journal.json"
WAITING = "wait for another process that prepares the same data"


def default_data_dir() -> Path:
    """$LINREC_DATA, or ~/.cache/linrec."""
    return Path(os.environ.get("LINREC_DATA") or "~/.cache/linrec").expanduser()


def create(folder: Path, write: Callable[[Path], None], progress: Progress) -> None:
    """Makes `folder` by write(temporary folder) and a rename, unless another process has made it meanwhile.

    Preparations of one folder wait for one another at a lock that ends with its process. If `write` fails or is
    interrupted, nothing stays, unless it keeps a journal: then the next `write` finds what this one has written, as it
    does after a kill. Raises DataError if the place cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.with_name(f".{folder.name}.lock"), WAITING, progress):
            if folder.exists():
                return
            temporary = folder.with_name(f".{folder.name}.preparing")
            temporary.mkdir(exist_ok=True)
            try:
                write(temporary)
                temporary.rename(folder)
            finally:
                if not (temporary / JOURNAL).exists():
                    shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise DataError(f"cannot write {folder}: {error.strerror or error}") from error


class Shard(NamedTuple):
    """A finished shard: its records, their bytes before compression, sha256 of what they hold."""

    records: int
    bytes: int
    sha256: str


class Journal:
    """The shards that are finished in a folder that is being written. A `resumable` one is kept in a file, where the
    next process finds it.

    purpose: whatever decides about the bytes; a folder that was begun for another purpose is emptied first.
    """

    def __init__(self, folder: Path, purpose: str, *, resumable: bool) -> None:
        self._path = folder / JOURNAL
        self._purpose, self._resumable = purpose, resumable
        found = self._read() if resumable else None
        if found is None:
            for path in folder.iterdir():
                path.unlink()
        self._shards: dict[str, list[Shard]] = found["shards"] if found else {}
        self._complete: list[str] = found["complete"] if found else []

    def _read(self) -> dict | None:
        try:
            found = strict_json.parse(self._path.read_bytes())
            found["shards"] = {name: [Shard(*shard) for shard in shards] for name, shards in found["shards"].items()}
            of_kinds = [[*map(type, shard)] for shards in found["shards"].values() for shard in shards]
            known = found["purpose"] == self._purpose and isinstance(found["complete"], list)
            known &= all(kinds == [int, int, str] for kinds in of_kinds)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # nothing was finished, or its end came while the first line was written
        return found if known else None

    def shards(self, split_name: str) -> list[Shard]:
        """Those of a split, in order."""
        return self._shards.get(split_name, [])

    def records(self) -> int:
        """All that are in finished shards."""
        return sum(shard.records for shards in self._shards.values() for shard in shards)

    def is_complete(self, split_name: str) -> bool:
        """Whether a split has all its shards."""
        return split_name in self._complete

    def add(self, split_name: str, shard: Shard) -> None:
        """A shard is finished."""
        self._shards.setdefault(split_name, []).append(shard)
        self._save()

    def complete(self, split_name: str) -> None:
        """A split has all its shards."""
        self._shards.setdefault(split_name, [])
        self._complete.append(split_name)
        self._save()

    def close(self) -> None:
        """All is written."""
        self._path.unlink(missing_ok=True)

    def _save(self) -> None:
        if not self._resumable:
            return
        state = {"purpose": self._purpose, "shards": self._shards, "complete": self._complete}
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(state))
        new.replace(self._path)
