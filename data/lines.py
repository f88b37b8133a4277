"""The lines of text files that may be of any size and in any state."""

from collections.abc import Iterator
from typing import BinaryIO

from data.errors import DataError


def numbered_lines(name: str, file: BinaryIO, longest: int) -> Iterator[tuple[int, str]]:
    """Yields (1, first line), (2, second line), ... of UTF-8 text, each with its line feed.

    Raises DataError, with the name and the line, for a line of more than `longest` bytes or one that is not UTF-8.
    """
    number = 0
    while line := file.readline(longest + 1):
        number += 1
        if len(line) > longest:
            raise DataError(f"{name} line {number} is longer than {longest} bytes")
        try:
            yield number, line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{name} line {number} is not UTF-8: byte {error.start} of the line") from error


def without_line_end(line: str) -> str:
    """The line without its LF or CRLF."""
    return line.removesuffix("\n").removesuffix("\r")
