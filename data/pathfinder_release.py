"""Pathfinder from the published files of Long Range Arena (Tay et al., arXiv:2011.04006), in place of images that are
generated: `pathfinder{32,128,256}/curv_contour_length_14`, the hard sets, with grey PNGs below imgs/ and lists of them
in metadata/<k>.npy. Every line of a list is: folder, file name, index, label, and settings that are not read.

The lists are text in the release, whatever their names say; those of today's upstream generator are NumPy files. The
records are numbered by k, then by line.
"""

import contextlib
import io
import re
import struct
import warnings
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from data import arrays
from data.errors import DataError, first_line
from data.examples import Example, Generated
from data.parallel import Progress
from data.permutation import SPLIT_SEED, torch_permutation
from data.sources import Limits, SourceFile, Sources
from data.spec import DataRequest
from data.spool import ByteSpool
from data.stored import expect_count

VERSION = "1.0.0"
IMAGES = 200_000
SIZES = {"train": 160_000, "val": 20_000, "test": 20_000}
ARCHIVE_BYTES = 8_200_000_000
SET = "curv_contour_length_14"
PNG_MAGIC = b"\x89PNG"
PNG_ERRORS = (OSError, SyntaxError, ValueError, struct.error, zlib.error, Image.DecompressionBombError)
"""What Pillow raises for a PNG that is none, or about which it would warn."""

FOLDER, FILE, LABEL = 0, 1, 3
LIMITS = Limits(member_bytes=1 << 24, count=2 * IMAGES, total_bytes=1 << 36)
REPORT_EVERY = 1_000


class Entry(NamedTuple):
    """A line of a list. place: where it stands, for messages."""

    place: str
    image: str
    label: int


def archive(window: int) -> SourceFile:
    """The one archive of all tasks, in which the folder of this one lies; no hash was published."""
    return SourceFile(
        "lra_release.gz",
        ("https://storage.googleapis.com/long-range-arena/lra_release.gz",),
        root=f"pathfinder{window}",
        aliases=("lra_release*.gz", "lra_release.tar"),
    )


def generate(request: DataRequest, window: int, sources: Sources, progress: Progress) -> Generated:
    """The three splits by `torch_permutation(n, 42)`: of the n = 200,000 images 80 / 10 / 10 %, in its order.

    An archive is read once, its images kept on disk until they are written. Raises DataError for a list that cannot be
    read, an image that is missing or is no grey PNG of the window's size, and another number of images.
    """
    lists, numbers, spool = _read(window, sources, progress)
    entries = [entry for _, found in sorted(lists.items()) for entry in found]
    expect_count(request, "images in the lists", len(entries), IMAGES)
    for place, image, _ in entries:
        if image not in numbers:
            raise DataError(f"{place} names {image}, which is not there")
    order = torch_permutation(len(entries), SPLIT_SEED)
    first, second = len(order) * SIZES["train"] // IMAGES, len(order) * (SIZES["train"] + SIZES["val"]) // IMAGES

    def examples(positions: np.ndarray) -> Iterator[Example]:
        for position in positions[: request.limit]:
            _, image, label = entries[position]
            yield Example(decode(image, spool.read(numbers[image]), window).reshape(-1, 1), label)

    parts = (order[:first], order[first:second], order[second:])
    splits: dict[str, Iterable[Example]] = {name: examples(part) for name, part in zip(SIZES, parts, strict=True)}
    facts = {
        "version": VERSION,
        "source": "Long Range Arena release",
        "origin": "release",
        "law": "unknown",
        "seed": SPLIT_SEED,
        "images": len(entries),
    }

    def with_sources() -> dict[str, Any]:
        return {**facts, "sources": sources.facts()}

    expected = sum(len(part[: request.limit]) for part in parts)
    return Generated(splits, with_sources, expected=expected)


def _read(
    window: int, sources: Sources, progress: Progress
) -> tuple[dict[int, list[Entry]], dict[str, int], ByteSpool]:
    """The lists by their numbers, the images by their names as numbers in the spool."""
    inside = rf"(?:.*/)?pathfinder{window}/{SET}/(metadata/([0-9]{{1,9}})\.npy|imgs/.+\.png)"
    lists: dict[int, list[Entry]] = {}
    numbers: dict[str, int] = {}
    spool = ByteSpool()
    for name, data in sources.members(archive(window), re.compile(inside), LIMITS):
        match = re.fullmatch(inside, name)
        assert match is not None
        if match[2] is None:
            numbers[match[1]] = spool.append(data)
        else:
            lists[int(match[2])] = parse_list(f"pathfinder{window}/{SET}/{match[1]}", data)
        if len(numbers) % REPORT_EVERY == 0:
            progress("read", min(len(numbers), IMAGES), IMAGES)
    if not lists:
        raise DataError(f"pathfinder{window}/{SET} has no metadata/<k>.npy")
    return lists, numbers, spool


def parse_list(name: str, data: bytes) -> list[Entry]:
    """The entries of one list. Raises DataError, with the line, for what has no folder, file name and label 0 or 1."""
    entries = []
    for number, fields in enumerate(_rows(name, data), 1):
        place = f"{name} line {number}"
        label = _label(fields[LABEL]) if len(fields) > LABEL else None
        if label is None:
            raise DataError(f"{place} is {' '.join(fields)[:60]!r}, expected folder, file name, index, label 0 or 1")
        entries.append(Entry(place, f"{fields[FOLDER].strip('/')}/{fields[FILE]}", label))
    return entries


def _label(text: str) -> int | None:
    """A whole number as NumPy prints it: "1", "1.0"."""
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if value in (0, 1) else None


def _rows(name: str, data: bytes) -> list[list[str]]:
    if not data.startswith(arrays.MAGIC):
        try:
            return [line.split() for line in data.decode("ascii").splitlines() if line.strip()]
        except UnicodeDecodeError as error:
            raise DataError(f"{name} is neither text nor a NumPy file") from error
    rows = arrays.parse_npy(data, name)
    if rows.ndim != 2:
        raise DataError(f"{name} has shape {rows.shape}, expected a row for each image")
    return [
        [value.decode("ascii", "replace") if isinstance(value, bytes) else str(value) for value in row]
        for row in rows.tolist()
    ]


@contextlib.contextmanager
def _strict() -> Iterator[None]:
    """What Pillow would warn about is raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def decode(name: str, data: bytes, window: int) -> np.ndarray:
    """(H, W) uint8 of a grey PNG. Raises DataError, with its name, for anything else."""
    if not data.startswith(PNG_MAGIC):
        raise DataError(f"{name} is not a PNG ({len(data)} bytes)")
    try:
        with _strict(), Image.open(io.BytesIO(data), formats=("PNG",)) as image:
            if image.mode != "L" or image.size != (window, window):
                found = f"{image.mode} of {image.width} x {image.height}"
                raise DataError(f"{name} is {found}, expected L (8-bit grey) of {window} x {window}")
            return np.array(image)
    except (*PNG_ERRORS, Warning) as error:
        raise DataError(f"{name} cannot be decoded: {first_line(error)}") from error
