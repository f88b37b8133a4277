"""One cell of a sweep: train.py, then eval.py, each as a process of its own.

What is done stands in the folder of the run. log/NAME.log holds what the processes said, and is the lock of the cell:
they hold it too, through their output, so that nobody begins what they still work on, even if whoever started them was
killed. log/NAME.json says how the last try ended.
"""

import contextlib
import fcntl
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NamedTuple

from data import strict_json
from scripts.cells import is_trained, records_of_the_end
from scripts.sweep_plan import LOGS, Cell
from scripts.workers import ALLOCATOR
from training import checkpoint
from training.cli import DONE, INTERRUPTED, NOT_FINITE, REFUSED
from training.errors import ConfigError
from training.files import write_json
from training.results import find_record
from training.workdir import CHECKPOINTS

TRAIN, EVAL = "train.py", "eval.py"
SECONDS_BETWEEN_LOOKS = 0.1
EMPTY: Mapping[str, str] = {}
SECONDS_TO_SAVE = 60.0
"""After which a process that was asked to end is killed."""


class Settings(NamedTuple):
    """What all cells share. splits: on which each is scored. retries: of one that was killed or crashed."""

    out: Path
    data_dir: Path
    splits: tuple[str, ...]
    retries: int

    def folder(self, cell: Cell) -> Path:
        """The folder of its run."""
        return self.out / cell.name

    def log(self, cell: Cell, suffix: str = ".log") -> Path:
        """What its processes said, or (.json) how they ended."""
        return self.out / LOGS / f"{cell.name}{suffix}"


class End(NamedTuple):
    """How a cell ended: an exit code (negative: a signal), and the last line that was said."""

    code: int
    said: str

    @property
    def is_final(self) -> bool:
        """Whether to try again at once would be of no use."""
        return self.code in (DONE, REFUSED, NOT_FINITE, INTERRUPTED)

    def __str__(self) -> str:
        if self.code >= 0:
            return self.said if self.code == DONE else f"exit {self.code}: {self.said}"
        out_of_memory = ", as it is when memory runs out" if self.code == -signal.SIGKILL else ""
        return f"killed by {signal.Signals(-self.code).name}{out_of_memory}"


def unscored(cell: Cell, settings: Settings) -> list[str]:
    """The splits that are still to be scored. Raises ConfigError for damaged results."""
    records = records_of_the_end(cell.config, settings.folder(cell))
    return [split for split in settings.splits if find_record(records, split, "best") is None]


def commands(cell: Cell, settings: Settings) -> list[tuple[str, ...]]:
    """What is left to be run of a cell; nothing if it is finished. Raises ConfigError for damaged results."""
    folder = settings.folder(cell)
    where = (f"--workdir={folder}", f"--data_dir={settings.data_dir}")
    scores = [(EVAL, f"--split={split}", *where) for split in unscored(cell, settings)]
    return scores if is_trained(cell.config, folder) else [(TRAIN, *cell.flags, *where), *scores]


def steps_done(cell: Cell, settings: Settings) -> int:
    """The updates from which its training would go on."""
    return max(checkpoint.steps(settings.folder(cell) / CHECKPOINTS), default=0)


def found(cell: Cell, settings: Settings) -> End | None:
    """How a cell ended that is not to be run again: finished, or not finite, which the same flags would give again."""
    if not commands(cell, settings):
        return End(DONE, "finished")
    end = _last(cell, settings)
    return end if end is not None and end.code == NOT_FINITE else None


def _last(cell: Cell, settings: Settings) -> End | None:
    """How the last try with these flags ended, if any has and it can be read."""
    try:
        last = strict_json.parse(settings.log(cell, ".json").read_bytes())
        return End(last["code"], last["said"]) if last["flags"] == [*cell.flags] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def run_cell(
    cell: Cell, settings: Settings, stopping: threading.Event | None = None, environment: Mapping[str, str] = EMPTY
) -> End:
    """Runs what is left of a cell, again if it is killed or crashes, and says how it ended.

    stopping: ends its processes when set, and it with INTERRUPTED. environment: added to that of the processes.
    """
    stopping = stopping or threading.Event()
    settings.log(cell).parent.mkdir(parents=True, exist_ok=True)
    with settings.log(cell).open("ab") as log:
        if not _lock(log, cell, stopping):
            return End(INTERRUPTED, "interrupted")
        end, tries = _try(cell, settings, log, stopping, environment), 1
        while not end.is_final and tries <= settings.retries:
            end, tries = _try(cell, settings, log, stopping, environment), tries + 1
        write_json(settings.log(cell, ".json"), {"code": end.code, "said": end.said, "flags": cell.flags})
    return end


def _lock(log: IO[bytes], cell: Cell, stopping: threading.Event) -> bool:
    """Waits until no other process works on the cell; False if it was stopped before."""
    told = False
    while not stopping.is_set():
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if not told:
            print(f"{cell.name}: waiting for the process that works on it", flush=True)
        told = True
        stopping.wait(SECONDS_BETWEEN_LOOKS)
    return False


def _try(
    cell: Cell, settings: Settings, log: IO[bytes], stopping: threading.Event, environment: Mapping[str, str]
) -> End:  # fmt: skip
    try:
        if (end := found(cell, settings)) is not None:
            return end
        end = End(DONE, "finished")
        for command in commands(cell, settings):
            end = _run(command, log, stopping, surroundings(settings) | {**environment})
            if end.code != DONE:
                break
    except ConfigError as error:
        return End(REFUSED, f"error: {error}")
    return end


def surroundings(settings: Settings) -> dict[str, str]:
    """The environment of the processes: what is set already goes before what suits them."""
    cache = {"JAX_COMPILATION_CACHE_DIR": str((settings.out / "compiled").absolute())}
    return ALLOCATOR | cache | os.environ


def _run(command: tuple[str, ...], log: IO[bytes], stopping: threading.Event, environment: dict[str, str]) -> End:
    log.write(f"$ python {shlex.join(command)}\n".encode())
    log.flush()
    begin = os.fstat(log.fileno()).st_size
    child = subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
    )
    while child.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(SECONDS_BETWEEN_LOOKS)
        if stopping.is_set():
            _end(child)
    if stopping.is_set():
        return End(INTERRUPTED, "interrupted")
    return End(child.returncode, _last_line(Path(log.name), begin))


def _end(child: subprocess.Popen) -> None:
    """Asks a process to save and end, and does not wait for ever."""
    child.terminate()
    try:
        child.wait(SECONDS_TO_SAVE)
    except subprocess.TimeoutExpired:
        child.kill()


def _last_line(log: Path, begin: int) -> str:
    """The last line that a process said, from that byte on."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def standing(cell: Cell, settings: Settings) -> str:
    """How far a cell is, in words, and how its last try ended."""
    if not commands(cell, settings):
        return "finished"
    done, end = steps_done(cell, settings), _last(cell, settings)
    said = f"step {done} of {cell.config.train.steps}" if done else "not begun"
    return said if end is None or end.code == DONE else f"{said}, {end}"
