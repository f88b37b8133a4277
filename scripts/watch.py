"""A live table of runs in the terminal: how far, how well and how fast they train, read from their files alone.

    python -m scripts.watch runs            again every few seconds, until Ctrl-C
    python -m scripts.watch runs --once     one table

Every folder is searched for runs (folders with a config.json), also for those that begin later. loss and validation are
those of each seed, or mean ± standard deviation of more than three; state energy is the smallest and the largest of all
layers and seeds at the last probe (1 is as designed); tokens/s counts the time steps that all seeds read. A run that is
on another machine is known to be over only when it has written no row for a minute.
"""

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from data.errors import one_line
from scripts.arguments import Parser
from scripts.watched import HEADS, Watched
from training import cli
from training.errors import ConfigError
from training.folders import runs_below

SECONDS_BETWEEN_LOOKS = 3.0


def main(argv: Sequence[str]) -> None:
    """Prints tables."""
    parser = Parser("watch", __doc__)
    parser.add_argument("folders", nargs="+", type=cli.folder, metavar="DIR")
    parser.add_argument("--once", action="store_true")
    arguments = parser.parse_args(argv[1:])
    for folder in arguments.folders:
        if not folder.is_dir():
            raise ConfigError(f"{folder}: there is no such folder")
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    runs = Runs(arguments.folders)
    if arguments.once:
        print("\n".join(runs.table(time.time())))
        return
    screen = Screen()
    while True:
        screen.show(runs.table(time.time()))
        time.sleep(SECONDS_BETWEEN_LOOKS)


class Runs:
    """All runs in and below some folders, as long as they are there."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._known: dict[Path, Watched] = {}

    def table(self, now: float) -> list[str]:
        """Lines: heads, then each run as it is now."""
        paths = dict.fromkeys(path for folder in self._folders for path in runs_below(folder))
        self._known = {path: self._known.get(path) or Watched(path) for path in paths}
        rows = [row for watched in self._known.values() for row in self._row(watched, now)]
        if not rows:
            return [f"no run yet in {', '.join(one_line(str(folder)) for folder in self._folders)}"]
        widths = [max(map(len, column)) for column in zip(HEADS, *rows, strict=True)]
        return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
                for row in (HEADS, *rows)]  # fmt: skip

    def _row(self, watched: Watched, now: float) -> Iterator[tuple[str, ...]]:
        name = one_line(str(watched.folder))
        try:
            watched.look()
            cells = watched.cells(now)
        except FileNotFoundError:
            return  # it has just been removed
        except (OSError, KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            cells = (f"unreadable ({type(error).__name__}: {one_line(str(error))})", *[""] * (len(HEADS) - 2))
        yield name, *cells


class Screen:
    """Where tables appear: on a terminal in place of the one before, else one below the other."""

    def __init__(self) -> None:
        self._height = 0

    def show(self, lines: Sequence[str]) -> None:
        """Prints a table; on a terminal as much of it as there is room for."""
        if not sys.stdout.isatty():
            print("\n".join(lines), flush=True)
            return
        columns, height = shutil.get_terminal_size()
        if len(lines) >= height:
            lines = [*lines[: height - 2], f"and {len(lines) - height + 2} more: --once prints them all"]
        up = f"\x1b[{self._height}F" if self._height else ""
        print(up + "\x1b[J" + "\n".join(line[: columns - 1] for line in lines), flush=True)
        self._height = len(lines)


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv))
