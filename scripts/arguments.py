"""Command lines of scripts: what is wrong with them is said in one line."""

import argparse
from collections.abc import Callable
from typing import NoReturn

from data.errors import said


class Parser(argparse.ArgumentParser):
    """An argument parser that refuses with one line and exit code 2; no abbreviations."""

    def __init__(self, program: str, description: str | None, package: str = "scripts.") -> None:
        super().__init__(
            prog=f"python -m {package}{program}",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Prints the line and exits."""
        self.exit(2, f"error: {said(message)} (--help explains)\n")


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} should be a whole number of at least 1")
    return int(text)


def some_of(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    """Names of `known`, separated by commas."""

    def parse(text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(text.split(",")))
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"unknown {unknown[0]!r}: expected some of {', '.join(known)}")
        return names

    return parse
