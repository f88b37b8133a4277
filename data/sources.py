"""Where the published files of a data set come from: a folder that the user has, or else a download.

The folder is only read. A file counts as the official one if it has the published hash; one that has another hash is
used only with `partial`; where no hash was published it is used and its hash is reported. An unpacked folder has no
hash to compare and counts as not official.
"""

import fnmatch
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from data import archives
from data.archives import Limits
from data.download import Identity, SourceFile, download, identify
from data.errors import DataError
from data.parallel import Progress

__all__ = ["Limits", "Member", "SourceFile", "Sources"]


class Member(NamedTuple):
    """One file of an archive. name: its path in the form that the set's pattern describes, see `Sources.streams`."""

    name: str
    data: bytes


class Sources:
    """The files that a preparation uses.

    data_source: a folder of the user that is searched first, with all folders in it, links to folders excepted.
    downloads: where downloads lie. partial: whether files that are not the official ones may be used.

    Raises DataError if `data_source` is no folder.
    """

    def __init__(self, data_source: Path | None, downloads: Path, *, partial: bool, progress: Progress) -> None:
        if data_source is not None and not data_source.is_dir():
            raise DataError(f"{data_source} is no folder")
        self._data_source = data_source
        self._downloads = downloads
        self._partial = partial
        self._progress = progress
        self._files: dict[SourceFile, Path] = {}
        self._facts: list[dict[str, Any]] = []

    def file(self, source: SourceFile) -> Path:
        """A file that may be used: in the data source, where the official one goes before others, or downloaded.

        Raises DataError: only another one is there and `partial` is not set; no download (see `data.download`).
        """
        if source not in self._files:
            named, _ = self._named(source)
            self._files[source] = self._best(source, named) or self._downloaded(source)
        return self._files[source]

    def members(self, source: SourceFile, pattern: re.Pattern[str], limits: Limits) -> Iterator[Member]:
        """As `streams`, each member read into memory."""
        for name, body in self.streams(source, pattern, limits):
            yield Member(name, body.read())

    def streams(self, source: SourceFile, pattern: re.Pattern[str], limits: Limits) -> Iterator[tuple[str, BinaryIO]]:
        """(name, readable file) of the members whose names the pattern matches in full, of an archive in its order, or,
        if there is none in the data source, of an unpacked folder `root` there, sorted by name. A file can be read
        until the next one is asked for.

        The pattern may begin with `root` or not: names have the form that it describes, whatever the archive's own top
        folder (of a pattern that allows both: with `root`). Packed and unpacked copies give the same names.

        Ends only after the whole archive was read and found undamaged. Raises DataError as `file` does, for a damaged
        or hostile archive (see `data.archives`), for one without any member of the pattern.
        """
        names = archives.Names(pattern, source.root)
        named, folders = self._named(source)
        if folders and not named and source not in self._files:
            members = self._of_folder(source, folders[0], names, limits)
        else:
            members = archives.read_archive(self.file(source), names, limits)
        empty = True
        for member in members:
            empty = False
            yield member
        if empty:
            raise DataError(f"{source.name}: no member has a name like {pattern.pattern}")

    def facts(self) -> list[dict[str, Any]]:
        """What was used so far: file, sha256, bytes, official (None where no hash was published). The sha256 of an
        unpacked folder is that of the lines `sha256sum` prints for the members that were read, sorted by name."""
        return list(self._facts)

    # Search.

    def _named(self, source: SourceFile) -> tuple[list[Path], list[Path]]:
        """Files and unpacked folders in the data source that have a name of the source, the likeliest first."""
        if self._data_source is None:
            return [], []
        names = (source.name, *source.aliases)
        files: list[tuple[int, Path]] = []
        folders = [self._data_source] if source.root and self._data_source.resolve().name == source.root else []
        for place, inside, found in os.walk(self._data_source):
            inside.sort()
            folders += [Path(place, folder) for folder in inside if folder == source.root]
            for file in found:
                rank = next((i for i, name in enumerate(names) if fnmatch.fnmatchcase(file, name)), None)
                if rank is not None and (path := Path(place, file)).is_file():
                    files.append((rank, path))
        return [path for _, path in sorted(files)], folders

    def _best(self, source: SourceFile, named: list[Path]) -> Path | None:
        """The first one that is official, or else the first one; None if there is none."""
        others: list[tuple[Path, Identity]] = []
        for path in named:
            identity = identify(source, path, self._progress)
            if identity.official is not False:
                return self._used(path, identity)
            others.append((path, identity))
        if not others:
            return None
        path, identity = others[0]
        if not self._partial:
            raise DataError(f"{path} has {identity.difference}: it is not the official one; --partial allows it")
        return self._used(path, identity)

    def _downloaded(self, source: SourceFile) -> Path:
        return self._used(*download(source, self._downloads, self._progress))

    def _used(self, path: Path, identity: Identity) -> Path:
        self._report(path.name, identity.sha256, path.stat().st_size, identity.official)
        return path

    def _report(self, file: str, sha256: str, size: int, official: bool | None) -> None:
        fact = {"file": file, "sha256": sha256, "bytes": size, "official": official}
        if fact not in self._facts:
            self._facts.append(fact)

    # Unpacked.

    def _of_folder(
        self, source: SourceFile, folder: Path, names: archives.Names, limits: Limits
    ) -> Iterator[tuple[str, BinaryIO]]:
        if not self._partial:
            raise DataError(
                f"{folder} is unpacked and cannot be compared with the official {source.name}; --partial allows it"
            )
        lines, size = hashlib.sha256(), 0
        for name, body in archives.read_folder(folder, names, limits):
            digest = hashlib.file_digest(body, "sha256").hexdigest()
            lines.update(f"{digest}  {name}\n".encode("utf-8", "surrogateescape"))
            size += body.tell()
            body.seek(0)
            yield name, body
        self._report(source.root, lines.hexdigest(), size, False)
