"""Speech archives in their true formats, made by other code than what reads them, and sources over a tar file or a
folder that are as good as those of a user."""

import io
import posixpath
import re
import struct
import tarfile
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from data.errors import DataError
from data.examples import Example
from data.sources import Limits, Member, SourceFile, Sources


def wav(samples: Any, rate: int = 16_000, *, channels: int = 1, width: int = 2) -> bytes:
    """A file as the standard library writes it."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(width)
        writer.setframerate(rate)
        writer.writeframes(np.asarray(samples, f"<i{width}").tobytes())
    return file.getvalue()


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    """A file of these chunks, odd ones padded."""
    body = b"".join(name + struct.pack("<L", len(data)) + data + b"\0" * (len(data) & 1) for name, data in chunks)
    return b"RIFF" + struct.pack("<L", 4 + len(body)) + b"WAVE" + body


def format_chunk(form: int = 1, channels: int = 1, rate: int = 16_000, bits: int = 16, more: bytes = b""):
    """The first sixteen bytes of a "fmt " chunk, and what follows."""
    frame = channels * bits // 8
    return b"fmt ", struct.pack("<2H2L2H", form, channels, rate, rate * frame, frame, bits) + more


def clip(seed: int, steps: int = 16_000) -> np.ndarray:
    """Noise, loud enough to reach both ends of int16."""
    return np.random.default_rng(seed).integers(-(2**15), 2**15, steps).astype(np.int16)


def write_tar(path: Path, files: dict[str, bytes], prefix: str = "./") -> None:
    """A gzipped archive with entries for its folders, in the order of `files`."""
    with tarfile.open(path, "w:gz") as archive:
        folders = {str(Path(prefix + name).parent): None for name in files}
        for folder in folders:
            entry = tarfile.TarInfo(folder)
            entry.type = tarfile.DIRTYPE
            archive.addfile(entry)
        for name, data in files.items():
            entry = tarfile.TarInfo(prefix + name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def write_folder(path: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)


class FakeSources(Sources):
    """The members of one archive or folder."""

    def __init__(self, path: Path):
        self.path = path

    def members(self, source: SourceFile, pattern: re.Pattern[str], limits: Limits) -> Iterator[Member]:
        found = self._folder() if self.path.is_dir() else self._archive()
        for name, data in found:
            name = posixpath.normpath(name).removeprefix(source.root + "/")
            if pattern.fullmatch(name):
                if len(data) > limits.member_bytes:
                    raise DataError(f"{name} is too large")
                yield Member(name, data)

    def facts(self) -> list[dict]:
        return [{"file": self.path.name, "official": False}]

    def _archive(self) -> Iterator[tuple[str, bytes]]:
        with tarfile.open(self.path) as archive:
            for entry in archive:
                if entry.isfile():
                    file = archive.extractfile(entry)
                    assert file is not None
                    yield entry.name, file.read()

    def _folder(self) -> Iterator[tuple[str, bytes]]:
        for path in sorted(self.path.rglob("*")):
            if path.is_file():
                yield path.relative_to(self.path).as_posix(), path.read_bytes()


def labels_of(examples: list[Example]) -> list[int]:
    return [int(example.label) for example in examples if not isinstance(example.label, np.ndarray | None)]
