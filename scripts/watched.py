"""What the files of one run say of it while it trains; nothing in its folder is opened for writing or locked."""

import math
import os
import statistics
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from training.files import read_sealed, time_text
from training.folders import CONFIG, LOCK, METRICS
from training.writers import Follower

LOOK_BACK = 2**23
"""Bytes of a metrics.jsonl that are read at first: the last evaluation and probe of any run are in there."""

ROWS_OF_A_RATE = 50
SILENT = 60
"""Seconds without a row after which it is said."""

SHORT = 3
"""Up to so many seeds have their own numbers in the table."""

HEADS = ("run", "state", "step", "loss", "validation", "state energy", "updates/s", "tokens/s", "left")
LOCKS = Path("/proc/locks")

Row = dict[str, Any]


class Sizes(NamedTuple):
    """Of a config.json: updates, and the time steps that all seeds read for one; 0 in a file that does not say it."""

    steps: int
    inputs: int


class Watched:
    """One run. `look` reads what is new; `cells` says it, in the order of HEADS.

    Args:
      folder: that of the run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._follower = Follower(folder / METRICS, LOOK_BACK)
        self._sizes: Sizes | None = None
        self._forget()

    def _forget(self) -> None:
        self._train: dict[int, Row] = {}
        self._validation: dict[int, Row] = {}
        self._probe: dict[int, Row] = {}
        self._moments: deque[tuple[int, float]] = deque(maxlen=ROWS_OF_A_RATE)

    def look(self) -> None:
        """Raises OSError, KeyError, TypeError or ValueError for files that are not those of a run, or just going."""
        if self._sizes is None:
            self._sizes = _sizes(read_sealed(self.folder / CONFIG))
        for afresh, rows in self._follower.batches():
            if afresh:
                self._forget()
            for row in rows:
                self._take(row)

    def _take(self, row: Row) -> None:
        if row["split"] == "val":
            self._validation[row["seed"]] = row
            return
        if "state_energy" in row:
            self._probe[row["seed"]] = row
        if row["step"] == 0:
            return
        self._train[row["seed"]] = row
        if self._moments and row["seconds"] < self._moments[-1][1]:
            self._moments.clear()  # another process went on
        if not self._moments or row["step"] > self._moments[-1][0]:
            self._moments.append((row["step"], row["seconds"]))

    def cells(self, now: float) -> tuple[str, ...]:
        """now: seconds of the epoch."""
        assert self._sizes is not None
        step = max((row["step"] for row in self._train.values()), default=0)
        rate = self._rate()
        state = self._state(step, now)
        going = state.startswith("running") and step < self._sizes.steps
        return (
            state,
            f"{step}/{self._sizes.steps}",
            _numbers(row["loss"] for row in self._train.values()),
            self._score(),
            self._energies(),
            f"{rate:.3g}" if rate else "",
            f"{rate * self._sizes.inputs:,.0f}" if rate and self._sizes.inputs else "",
            time_text((self._sizes.steps - step) / rate) if rate and going else "",
        )

    def _rate(self) -> float:
        """Updates a second over the last rows, evaluations and saves included; 0 if it is not known yet."""
        if len(self._moments) < 2:
            return 0.0
        (first, began), (last, ended) = self._moments[0], self._moments[-1]
        return (last - first) / (ended - began) if ended > began else 0.0

    def _state(self, step: int, now: float) -> str:
        assert self._sizes is not None
        path = self.folder / METRICS
        age = now - (path if path.exists() else self.folder / CONFIG).stat().st_mtime
        held = is_locked(self.folder / LOCK)
        dead = [str(seed) for seed, row in self._train.items() if row["loss"] is not None and math.isnan(row["loss"])]
        if held or (age < SILENT and step < self._sizes.steps):
            state = "running" if age < SILENT else f"running, no row for {time_text(age)}"
        else:
            state = "finished" if step == self._sizes.steps else "stopped"
        return f"{state}, dead seeds {' '.join(dead)}" if dead else state

    def _score(self) -> str:
        rows = self._validation.values()
        if any("bits" in row for row in rows):
            return f"loss {_numbers(row['loss'] for row in rows)}" if rows else ""
        return f"{_numbers((100 * row['accuracy'] for row in rows), 1)} %" if rows else ""

    def _energies(self) -> str:
        """The smallest and the largest of all layers and seeds."""
        lists = (row["state_energy"] for row in self._probe.values())
        found = [e for energies in lists for e in energies if e is not None and math.isfinite(e)]
        return f"{min(found):.3g} to {max(found):.3g}" if found else ""


def _sizes(record: Row) -> Sizes:
    config = record["config"]
    records = len(config["seeds"]) * config["train"]["batch_size"]
    return Sizes(config["train"]["steps"], records * record.get("steps_per_record", 0))


def _numbers(values: Iterable[float | None], digits: int = 4) -> str:
    """Each of a few; of more the mean and the standard deviation of those that are finite."""
    known = [value for value in values if value is not None]
    if len(known) <= SHORT:
        return " ".join(f"{value:.{digits}f}" for value in known)
    finite = [value for value in known if math.isfinite(value)]
    if len(finite) < 2:
        return " ".join(f"{value:.{digits}f}" for value in finite or [math.nan])
    return f"{statistics.mean(finite):.{digits}f} ± {statistics.stdev(finite):.{digits}f}"


def is_locked(path: Path) -> bool:
    """Whether a process of this machine holds the lock by which `training.workdir.alone` keeps a folder.

    Asked of the kernel's list: who tries the lock may be in the way of a run that starts just then. False where there
    is no such list.
    """
    if not path.exists():
        return False
    stat = path.stat()
    place = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}:{stat.st_ino}"
    try:
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return False
    return any(" FLOCK " in line and f" {place} " in line for line in lines)
