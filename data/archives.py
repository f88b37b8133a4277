"""The members of a tar archive, packed with gzip or not, or of its unpacked copy. Nothing is ever unpacked to disk.

An archive is read once from front to end. It is believed only as far as it was read: a damaged or cut one shows when
the damaged place is reached, at the latest at the end of the stream, where gzip has its checksum. So whoever needs
whole data takes all members before using them.

What is hostile ends in a DataError that names archive and member: names that lead elsewhere, links or devices in place
of a file, a name twice, more bytes or members than the set can have (also those of members nobody asked for: a small
file can unpack to terabytes), headers without end. The filters of `tarfile` are about extraction and know no limits.
"""

import gzip
import io
import os
import re
import stat
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

from data.errors import DataError

CHUNK = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
HEADER_BYTES = 1 << 16
"""All headers of one member together: a long name, extended attributes."""


class Limits(NamedTuple):
    """What a set can have at most.

    member_bytes: of one member. count: members that the set asks for. total_bytes: of the whole archive, unpacked, with
    headers and with members that the set does not ask for; of an unpacked folder: of the members.
    """

    member_bytes: int
    count: int
    total_bytes: int


class Names(NamedTuple):
    """Which members a set asks for, and what they are called.

    A name may begin with the top folder `root` or not: some archives have one, a copy that was unpacked by hand may
    have lost or gained it. Of both forms, `root/a/b` before `a/b`, the first one that the pattern matches in full is
    the member's name. So packed and unpacked copies give the same names.
    """

    pattern: re.Pattern[str]
    root: str

    def of(self, path: str) -> str | None:
        """The name of the member at a path that is normalised (see `normalised`); None: not asked for."""
        below = path.removeprefix(f"{self.root}/") if self.root else path
        forms = (f"{self.root}/{below}", below) if self.root else (below,)
        return next((form for form in forms if self.pattern.fullmatch(form)), None)


def normalised(path: str) -> str:
    """Without "./" and doubled slashes. Raises ValueError for a path that leads out of its folder, on any system."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or "\\" in path or ".." in parts:
        raise ValueError("has a name that leads out of the archive")
    return "/".join(parts)


# A stream of bytes, unpacked.


class Unpacked:
    """The bytes of a file from front to end, unpacked if they are packed with gzip (told by the first two).

    Offers what `tarfile` asks of a file: `read` (headers only, within HEADER_BYTES of `next_member`), `seek` (forwards
    only), `tell`. Raises DataError from all of them: damaged, cut short, more than `total_bytes` unpacked.
    """

    def __init__(self, path: Path, total_bytes: int) -> None:
        self.name = path.name
        self.last = b""  # what `read` returned last
        self._total_bytes = total_bytes
        self._position = 0
        self._header_left = HEADER_BYTES
        with path.open("rb") as file:
            packed = file.read(2) == GZIP_MAGIC
        self._file = gzip.open(path) if packed else path.open("rb")  # noqa: SIM115  closed by __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def tell(self) -> int:
        """Bytes so far."""
        return self._position

    def take(self, size: int) -> bytes:
        """The next `size` bytes, fewer only at the end."""
        try:
            data = self._file.read(size)
        except (EOFError, OSError, zlib.error) as error:
            raise DataError(f"{self.name} is damaged after {self._position:,} bytes: {error}") from error
        self._position += len(data)
        if self._position > self._total_bytes:
            raise DataError(f"{self.name} unpacks to more than {self._total_bytes:,} bytes")
        return data

    def rest(self) -> Iterator[bytes]:
        """What is left, in pieces, to the end."""
        while data := self.take(CHUNK):
            yield data

    def next_member(self) -> None:
        """Allows the headers of one more member."""
        self._header_left = HEADER_BYTES

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes of headers."""
        self._header_left -= size
        if size < 0 or self._header_left < 0:
            raise DataError(f"{self.name} has a header of more than {HEADER_BYTES:,} bytes at {self._position:,}")
        self.last = self.take(size)
        if len(self.last) < size:
            raise DataError(f"{self.name} is cut short at {self._position:,} bytes")
        return self.last

    def seek(self, position: int) -> None:
        """Goes forwards to a position."""
        if position < self._position:
            raise DataError(f"{self.name} has a member of impossible size at {self._position:,}")
        while self._position < position:
            if not self.take(min(CHUNK, position - self._position)):
                raise DataError(f"{self.name} is cut short at {self._position:,} bytes")


class _Body(io.RawIOBase):
    """The next `size` bytes of a stream, as a file."""

    def __init__(self, stream: Unpacked, size: int) -> None:
        self._stream = stream
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        wanted = min(len(buffer), self._left)
        data = self._stream.take(wanted)
        if len(data) < wanted:
            raise DataError(f"{self._stream.name} is cut short at {self._stream.tell():,} bytes")
        self._left -= wanted
        buffer[:wanted] = data
        return wanted


# Members.


def read_archive(path: Path, names: Names, limits: Limits) -> Iterator[tuple[str, BinaryIO]]:
    """(name, readable file) of each member that is asked for, in the order of the archive. A file can be read until the
    next one is asked for. Ends after the end of the stream was reached and found whole. Raises DataError."""
    seen: set[str] = set()
    with Unpacked(path, limits.total_bytes) as stream:
        for info in _headers(stream):
            name = _checked(info, names, limits, path.name)
            if name is None:
                continue
            if name in seen:
                raise DataError(f"{path.name}: {name!r} is there twice")
            seen.add(name)
            if len(seen) > limits.count:
                raise DataError(f"{path.name}: {name!r} is one member more than the {limits.count:,} there can be")
            with io.BufferedReader(_Body(stream, info.size), min(CHUNK, max(info.size, 1))) as body:
                yield name, body
        if any(data.strip(b"\0") for data in stream.rest()):
            raise DataError(f"{path.name} goes on after its end")


def _headers(stream: Unpacked) -> Iterator[tarfile.TarInfo]:
    """Every member, up to the end mark of the archive."""
    try:
        archive = tarfile.TarFile(fileobj=stream)  # pyright: ignore[reportArgumentType]  as much of a file as it uses
        while info := archive.next():
            archive.members = []  # pyright: ignore[reportAttributeAccessIssue]  it would keep all of them
            yield info
            stream.next_member()
    except (tarfile.TarError, ValueError, ArithmeticError, LookupError) as error:  # what tarfile lets through
        raise DataError(f"{stream.name} is no tar archive, or a damaged one ({error} at {stream.tell():,})") from error
    if any(stream.last):  # tarfile takes a header that it cannot read for the end, which is a block of zeros
        raise DataError(f"{stream.name} is damaged: no header at {stream.tell():,}")


def _checked(info: tarfile.TarInfo, names: Names, limits: Limits, archive: str) -> str | None:
    """The name of a member that is asked for; None: not asked for. Raises DataError for one that is hostile."""
    try:
        name = names.of(normalised(info.name))
    except ValueError as error:
        raise DataError(f"{archive}: {info.name!r} {error}") from error
    if info.size < 0:
        raise DataError(f"{archive}: {info.name!r} has {info.size} bytes")
    if name is None or info.isdir():
        return None
    if not info.isreg() or info.issparse():
        raise DataError(f"{archive}: {name!r} is no regular file")
    if info.size > limits.member_bytes:
        raise DataError(f"{archive}: {name!r} has {info.size:,} bytes, more than {limits.member_bytes:,}")
    return name


def read_folder(folder: Path, names: Names, limits: Limits) -> Iterator[tuple[str, io.BufferedReader]]:
    """The same of an unpacked folder, which lies in place of `names.root`, sorted by name. Raises DataError.

    Links to folders are not followed; a link to a file is, within the folder.
    """
    top, total = folder.resolve(), 0
    for name, path in _files(top, names, limits):
        if not path.resolve().is_relative_to(top):
            raise DataError(f"{folder}: {name!r} is a link out of the folder")
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):  # to open a pipe would wait for ever
                raise DataError(f"{folder}: {name!r} is no regular file")
            if status.st_size > limits.member_bytes:
                raise DataError(f"{folder}: {name!r} has {status.st_size:,} bytes, more than {limits.member_bytes:,}")
            if (total := total + status.st_size) > limits.total_bytes:
                raise DataError(f"{folder} has more than {limits.total_bytes:,} bytes")
            body = path.open("rb")
        except OSError as error:
            raise DataError(f"{folder}: {name!r} cannot be read: {error.strerror}") from error
        with body:
            yield name, body


def _files(top: Path, names: Names, limits: Limits) -> list[tuple[str, Path]]:
    found: dict[str, Path] = {}
    for place, _, files in os.walk(top):
        for file in files:
            path = Path(place, file)
            inside = path.relative_to(top).as_posix()
            name = names.of(f"{names.root}/{inside}")
            if name is None:
                continue
            if "\\" in inside:
                raise DataError(f"{top}: {inside!r} has a backslash in its name")
            if name in found:
                raise DataError(f"{top}: {name!r} is there twice")
            found[name] = path
            if len(found) > limits.count:
                raise DataError(f"{top}: {name!r} is one file more than the {limits.count:,} there can be")
    return sorted(found.items())
