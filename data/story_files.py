"""The text files of TinyStories: stories, each followed by a line `<|endoftext|>`. A story is what lies between two
separators without the newlines around it; empty ones are no stories. Nothing else is changed, and a separator is never
text. A file is read in blocks of stories, so that it is nowhere in memory and many processes can read it.
"""

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data.errors import DataError
from data.parallel import Progress

SEPARATOR = b"<|endoftext|>"
NEWLINES = b"\r\n"
PIECE = 2**23
LONGEST_STORY = 2**20


class Block(NamedTuple):
    """Stories first..first+count-1 of a file, which are in its bytes start..stop-1."""

    path: Path
    first: int
    count: int
    start: int
    stop: int


def story_starts(path: Path, most: int | None, progress: Progress) -> np.ndarray:
    """(S + 1,) int64: story i of the first `most` lies in the bytes starts[i]..starts[i + 1]-1.

    Raises DataError if there is none, or one of more than a mebibyte: then the file has no separators.
    """
    size, starts = path.stat().st_size, array("q")
    rest, at, stop = b"", 0, 0
    with path.open("rb") as file:
        while (piece := file.read(PIECE)) or rest:
            *between, rest = (rest + piece).split(SEPARATOR) if piece else (rest, b"")
            for text in between:
                _require_short(path, at, text)
                if text.strip(NEWLINES):
                    starts.append(at)
                    stop = at + len(text)
                at += len(text) + len(SEPARATOR)
                if len(starts) == most:
                    return np.array([*starts, stop])
            _require_short(path, at, rest)
            progress("find stories", min(at, size), size)
    if not starts:
        raise DataError(f"{path} holds no story")
    return np.array([*starts, stop])


def _require_short(path: Path, at: int, text: bytes) -> None:
    if len(text) > LONGEST_STORY:
        raise DataError(f"{path}: no {SEPARATOR.decode()} in {len(text)} bytes from byte {at} on")


def blocks(path: Path, starts: np.ndarray, first: int, stop: int, size: int) -> list[Block]:
    """Stories first..stop-1 in blocks of `size`, the last one smaller."""
    firsts = range(first, stop, size)
    lasts = [min(number + size, stop) for number in firsts]
    return [
        Block(path, number, last - number, int(starts[number]), int(starts[last]))
        for number, last in zip(firsts, lasts, strict=True)
    ]


def stories(block: Block) -> Iterator[str]:
    """The texts of a block. Raises DataError for one that is not UTF-8."""
    with block.path.open("rb") as file:
        file.seek(block.start)
        data = file.read(block.stop - block.start)
    texts = [text for raw in data.split(SEPARATOR) if (text := raw.strip(NEWLINES))]
    if len(texts) != block.count:
        raise DataError(f"{block.path} changed while it was read: {len(texts)} stories instead of {block.count}")
    for number, text in enumerate(texts, block.first):
        try:
            yield text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{block.path}: story {number} is not UTF-8 at its byte {error.start}") from error
