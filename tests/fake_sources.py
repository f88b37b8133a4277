"""Somebody's files in a folder, without download or hash: what `data.sources.Sources` gives a data set."""

import io
import pathlib
import tarfile

from data.errors import DataError
from data.sources import Member


class FakeSources:
    """Looks below a folder for the name of a source, its aliases, or the unpacked folder of its name."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.used = []

    def file(self, source):
        """The path of a plain file or archive."""
        for name in (source.name, *source.aliases):
            for path in sorted(self.folder.rglob(name)):
                if path.is_file():
                    self.used.append(path.name)
                    return path
        raise DataError(f"no {source.name} below {self.folder}")

    def members(self, source, pattern, limits):
        """Members whose name below the top folder fits the pattern."""
        for name, file in self.stream(source, pattern):
            data = file.read()
            assert len(data) <= limits.member_bytes
            yield Member(name, data)

    def stream(self, source, pattern):
        """The same as (name, open file), each to be read before the next one is asked for."""
        root = self.folder / source.root
        if source.root and root.is_dir():
            self.used.append(root.name)
            for path in sorted(path for path in root.rglob("*") if path.is_file()):
                name = path.relative_to(root).as_posix()
                if pattern.fullmatch(name):
                    with path.open("rb") as file:
                        yield name, file
            return
        with tarfile.open(self.file(source), "r|gz") as archive:
            for member in archive:
                name = member.name.removeprefix(f"{source.root}/")
                if member.isfile() and pattern.fullmatch(name):
                    file = archive.extractfile(member)
                    assert file is not None
                    yield name, file

    def facts(self):
        return [{"file": name} for name in self.used]


class Stored:
    """A split as it is read back."""

    def __init__(self, examples):
        self.records = list(examples)

    def __len__(self):
        return len(self.records)

    def examples(self):
        return iter(self.records)


def stored(generated):
    """The splits of `Generated`, taken in order and kept."""
    return {name: Stored(examples) for name, examples in generated.splits.items()}


def pack(path, members):
    """Writes (name, bytes) as a gzipped tar archive, in the given order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def unpack(folder, members):
    """Writes (name, bytes) as files."""
    for name, data in members:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
