"""What a run tells the world: ``metrics.jsonl`` (its record), ``train.log`` and the terminal.

``metrics.jsonl`` holds one JSON object a line. JSON has no NaN: such a value is written as null and its name listed in
the row's ``nonfinite``; ``read_metrics`` gives the NaN back. Its last entry is the CRC-32 of the rest, so that a line
in which a bit was flipped is no row; lines without one are those of older runs.
"""

import contextlib
import itertools
import json
import math
import os
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, BinaryIO, Self

import numpy as np

from data import strict_json
from training.errors import ConfigError
from training.files import time_text, write_atomically
from training.terminal import unread

SECONDS_BETWEEN_LINES = 5.0
BYTES_OF_A_BATCH = 2**20
CHECK = b', "crc32": "'
NUMBERS = ("loss", "accuracy", "bits", "lr", "grad_norm", "seconds")
"""Entries of a row that are numbers, if they are there; the loss is null where none was computed."""


class MetricsLog:
    """``metrics.jsonl``, opened to go on after ``step``.

    Rows of later steps are dropped, since the run will write them again, and a file that a crash has damaged is
    repaired: a last line cut in the middle is dropped, and so is any other line that is not a row. Each kind of damage
    gives one line in ``repairs``, to be said and recorded. ``count``: of the rows in the file. ``end``: the last step
    of those that were there.

    Args:
      path: the file; made if missing.
      step: the step that the run goes on from; None if it starts from nothing, which drops every row.
      expected: how many rows there were at that step; None if that is not known.

    Raises:
      OSError: the folder is missing, full or unwritable.
    """

    def __init__(self, path: Path, step: int | None, expected: int | None = None) -> None:
        content = path.read_bytes() if path.exists() else b""
        rows, self.repairs = _intact_lines(content, path.name, step or 0, expected)
        self.end = max((row["step"] for _, row in rows), default=0)
        lines = [line + b"\n" for line, row in rows if step is not None and row["step"] <= step]
        self.count, kept = len(lines), b"".join(lines)
        if kept != content:
            write_atomically(path, kept)
        self._file = path.open("ab")

    def write(self, row: dict[str, Any]) -> None:
        """Appends one row: JSON values and NumPy or jax scalars and arrays, by name, among them ``step``.

        The row has left the process when this returns: a kill loses none. A float32 is written as the decimal fraction
        that it is, so equal values give equal lines.

        Raises:
          ConfigError: the disk does not take it.
          TypeError: a value that is none of these.
        """
        plain = {name: _plain(value) for name, value in row.items()}
        finite = {name: _nulled(value) for name, value in plain.items()}
        nonfinite = [name for name in plain if plain[name] != finite[name]]
        if nonfinite:
            finite["nonfinite"] = nonfinite
        line = _checked(json.dumps(finite, allow_nan=False).encode()) + b"\n"
        with _written(self._file):
            self._file.write(line)
            self._file.flush()
        self.count += 1

    def sync(self) -> None:
        """Waits until all rows are on the disk: a checkpoint must not outlive the rows of its past.

        Raises:
          ConfigError: the disk does not take them.
        """
        with _written(self._file):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        _close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a ``metrics.jsonl``, NaN where a value was not finite; damaged lines are left out.

    Raises:
      OSError: the file is missing or unreadable.
    """
    rows, _ = _intact_lines(path.read_bytes(), path.name)
    return [_values(row) for _, row in rows]


class Follower:
    """Reads the rows of a ``metrics.jsonl`` while a run writes it, each once.

    Args:
      path: the file, which may not be there yet.
      look_back: at how many bytes before its end to begin; None begins at its start.
    """

    def __init__(self, path: Path, look_back: int | None = None) -> None:
        self._path, self._look_back = path, look_back
        self._file: tuple[int, int] | None = None
        self._offset = 0

    def batches(self) -> Iterator[tuple[bool, list[dict[str, Any]]]]:
        """Whether the file is another one than before, as after a resume, and then its rows since the last call.

        The last line is left for the next call until it is complete; damaged lines are left out, as by
        ``read_metrics``. What is read at once is limited, so that a large file is many batches.

        Raises:
          OSError: the file cannot be read.
        """
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return
        with file:
            afresh = self._found(os.fstat(file.fileno()))
            while lines := self._lines(file):
                rows = [row for line in lines if (row := _row(line)) is not None]
                yield afresh, [_values(row) for row in rows]
                afresh = False

    def _found(self, stat: os.stat_result) -> bool:
        if self._file == (stat.st_dev, stat.st_ino) and stat.st_size >= self._offset:
            return False
        self._file = stat.st_dev, stat.st_ino
        self._offset = 0 if self._look_back is None else max(0, stat.st_size - self._look_back)
        return True

    def _lines(self, file: BinaryIO) -> list[bytes]:
        """The complete lines that come next, as many as a batch holds."""
        file.seek(self._offset)
        content = file.read(BYTES_OF_A_BATCH) + file.readline()
        whole = content.rfind(b"\n") + 1
        self._offset += whole
        return content[:whole].split(b"\n")[:-1]


@contextlib.contextmanager
def _written(file: IO[Any]) -> Iterator[None]:
    """Turns what the disk refuses into one line."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"cannot write {file.name}: {error.strerror}; when it can be written the same command goes on"
        ) from error


def _close(file: IO[Any]) -> None:
    with contextlib.suppress(OSError):  # every write is flushed: only what was refused is left, and that was said
        file.close()


def damage(path: Path, step: int = 0, expected: int | None = None) -> tuple[str, ...]:
    """One line about each kind of damage in a ``metrics.jsonl``: what `read_metrics` leaves out of it, and rows that
    are lost, if there were ``expected`` of them at the checkpoint of ``step``; None: that is not known."""
    content = path.read_bytes() if path.exists() else b""
    return _intact_lines(content, path.name, step, expected)[1]


def _lost(file_name: str, rows: Sequence[dict[str, Any] | None], step: int, expected: int | None) -> Iterator[str]:
    """A line if there are not as many rows as there were at ``step``, and those that are damaged, here None, do not
    account for all that are missing."""
    found = sum(row is not None and row["step"] <= step for row in rows)
    # Behind the first row of a later step there were none of them.
    damaged = list(itertools.takewhile(lambda row: row is None or row["step"] <= step, rows)).count(None)
    if expected is None:
        return
    if found > expected:
        yield f"{file_name}: {found} rows where there were {expected}: some stand there twice"
    elif found + damaged < expected:
        yield f"{file_name}: {found} of {expected} rows are left; nothing can bring the others back"


def _intact_lines(
    content: bytes, file_name: str, step: int = 0, expected: int | None = None
) -> tuple[list[tuple[bytes, dict[str, Any]]], tuple[str, ...]]:
    """The lines that are rows, each with its row, and one line about each kind of damage, see `damage`."""
    *lines, tail = content.split(b"\n")
    rows = [(line, _row(line)) for line in lines]
    damaged = [number for number, (_, row) in enumerate(rows, start=1) if row is None]
    repairs = []
    if damaged:
        repairs.append(f"{file_name}: dropped {len(damaged)} damaged line(s), the first is line {damaged[0]}")
    if tail:
        last = _row(tail)
        rows.append((tail, last))
        # An object cut short never parses, so a row that does parse lacks nothing but its line end.
        fate = "dropped it" if last is None else "it lacked only its line end"
        repairs.append(f"{file_name}: the last line, {len(lines) + 1}, was cut: {fate}")
    repairs += _lost(file_name, [row for _, row in rows], step, expected)
    return [(line, row) for line, row in rows if row is not None], tuple(repairs)


def _checked(line: bytes) -> bytes:
    """The JSON of a row with the CRC-32 of it as last entry."""
    return line[:-1] + CHECK + b'%08x"}' % zlib.crc32(line)


def _row(line: bytes) -> dict[str, Any] | None:
    """The row of a line, without its check; None if it is none, or not what was written."""
    head, check, _ = line.rpartition(CHECK)
    if not check and re.search(rb'"[0-9a-f]{8}"\}$', line):
        return None  # the name of its check was hit
    if check:
        written, line = line, head + b"}"
        if written != _checked(line):
            return None
    try:
        row = strict_json.parse(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and _is_row(row) else None


def _is_row(row: dict[str, Any]) -> bool:
    """Whether it has what readers take for granted: a step, and every entry that they know of its kind."""
    nonfinite = row.get("nonfinite", [])
    if not isinstance(nonfinite, list):
        return False
    null = ("loss", *nonfinite)
    numbers = [row[name] for name in NUMBERS if name in row and not (row[name] is None and name in null)]
    layers = [value for name, value in row.items() if name.startswith("state_") and value is not None]
    return (
        all(type(number) is int and _is_number(number) for number in (row.get("step"), row.get("seed", 0)))
        and isinstance(row.get("split", ""), str)
        and all(map(_is_number, numbers))
        and all(isinstance(value, list) and _are_numbers(value) for value in layers)
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63)


def _are_numbers(values: list[Any]) -> bool:
    """Of layers, also over time; null where there is none."""
    return all(
        _are_numbers(value) if isinstance(value, list) else value is None or _is_number(value) for value in values
    )


def _values(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the NaN back."""
    return {name: _with_nan(value) if name in row.get("nonfinite", ()) else value for name, value in row.items()}


def _plain(value: Any) -> Any:
    """Lists, dicts, numbers, strings, booleans and None instead of arrays and tuples."""
    if hasattr(value, "tolist"):
        return np.asarray(value).tolist()
    if isinstance(value, list | tuple):
        return [_plain(element) for element in value]
    if isinstance(value, dict):
        return {key: _plain(element) for key, element in value.items()}
    return value


def _nulled(value: Any) -> Any:
    return _replace(value, lambda leaf: None if isinstance(leaf, float) and not math.isfinite(leaf) else leaf)


def _with_nan(value: Any) -> Any:
    return _replace(value, lambda leaf: math.nan if leaf is None else leaf)


def _replace(value: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return [_replace(element, function) for element in value]
    if isinstance(value, dict):
        return {key: _replace(element, function) for key, element in value.items()}
    return function(value)


class RunLog:
    """``train.log`` and the terminal.

    Args:
      path: the file, appended to.

    Raises:
      OSError: the folder is missing, full or unwritable.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1, encoding="utf-8")

    def say(self, message: str) -> None:
        """Prints ``message`` above the progress bar, if there is one, and appends it to the file with the time."""
        from tqdm import tqdm

        with unread():
            tqdm.write(message, file=sys.stdout)
            sys.stdout.flush()
        self.record(message)

    def record(self, message: str) -> None:
        """Appends ``message`` to the file only. Raises ConfigError if the disk does not take it."""
        with _written(self._file):
            self._file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}\n")

    def close(self) -> None:
        _close(self._file)


class Nowhere:
    """Stands for both logs in a process that writes none."""

    repairs, count, end = (), 0, 0

    def write(self, row: dict[str, Any]) -> None: ...

    def sync(self) -> None: ...

    def say(self, message: str) -> None: ...

    def record(self, message: str) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None): ...


class Progress:
    """How far a run is: one rewritten line on a terminal; else plain lines, at most one in five seconds.

    ``train.log`` gets the plain lines in both cases. Rate and time left are measured from the first update on, so that
    compiling does not count as training.

    Args:
      log: where plain lines go.
      start: the step the run goes on from.
      total: the step it ends at.
      clock: gives seconds.
    """

    def __init__(
        self, log: RunLog | Nowhere, start: int, total: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log, self._total, self._clock = log, total, clock
        self._first: tuple[int, float] | None = None
        self._said_at = -math.inf
        self._bar = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            form = "{percentage:3.0f}% |{bar}| {desc}"
            self._bar = tqdm(total=total, initial=start, bar_format=form, dynamic_ncols=True)

    def update(self, step: int, loss: float) -> None:
        """Shows that ``step`` steps are done, the last with ``loss``."""
        now = self._clock()
        if self._first is None:
            self._first = step, now
        line = self._line(step, loss, now)
        if self._bar is not None:
            self._bar.set_description_str(line, refresh=False)
            self._bar.update(step - self._bar.n)
        if not 0 <= now - self._said_at < SECONDS_BETWEEN_LINES or step == self._total:  # a clock may jump back
            self._said_at = now
            if self._bar is None:
                self._log.say(line)
            else:
                self._log.record(line)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def _line(self, step: int, loss: float, now: float) -> str:
        assert self._first is not None
        seconds = now - self._first[1]
        rate = (step - self._first[0]) / seconds if seconds > 0 else 0.0
        left = f"  {rate:.1f} steps/s  {time_text((self._total - step) / rate)} left" if rate else ""
        return f"step {step}/{self._total}  loss {loss:.4f}{left}"
