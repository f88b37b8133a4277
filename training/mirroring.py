"""Copies the rows of a metrics.jsonl to TensorBoard or wandb: in a process beside a run, or later.

`training.mirrors` starts it as `python -m training.mirroring KIND WORKDIR FOLDER PATIENCE`; it ends soon after its
stdin does. A mirror is made from the whole record each time, so that after a kill it has every step once. A number has
one name, whatever the run: SPLIT/NAME/seedS, or SPLIT/NAME/layerL/seedS for a list over layers (both as the record
counts them), and SPLIT/NAME for the mean over the seeds that are finite. Lists over time are left out, and so are steps
that a kill has cut.
"""

import contextlib
import fcntl
import math
import os
import secrets
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol

from training.errors import ConfigError
from training.files import read_sealed, write_atomically
from training.folders import CONFIG, METRICS
from training.writers import Follower

TENSORBOARD, WANDB, UPLOAD = "tensorboard", "wandb", "upload"
ENVIRONMENT = {
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_INIT_TIMEOUT": "30",
    "WANDB_MODE": "offline",
    "WANDB_PROJECT": "linrec",
    "WANDB_SILENT": "true",
}
"""What wandb reads, unless the user has set it."""
TRIES = 30
"""Seconds within which the service should know what it was sent."""

RUN_ID = "run_id"
NICENESS = 10
GONE = 1

SECONDS_BETWEEN_LOOKS = 1.0
PLACES = ("step", "seed", "split")
"""What says where a row belongs."""

Row = dict[str, Any]


class Mirror(Protocol):
    """Where rows are copied to."""

    def write(self, step: int, seconds: float, scalars: dict[str, float]) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class Steps:
    """Puts the rows of a step and split together; seconds: of training since the run was begun, over its processes."""

    def __init__(self, seeds: int) -> None:
        self._seeds = seeds
        self._rows: list[Row] = []
        self._before = self._latest = 0.0

    def add(self, row: Row) -> list[Row] | None:
        """The rows of all seeds once `row` is the last of them."""
        if row["seconds"] < self._latest:
            self._before += self._latest
        self._latest = row["seconds"]
        if self._rows and any(row[name] != self._rows[0][name] for name in ("step", "split")):
            self._rows = []
        self._rows.append(row)
        if len(self._rows) < self._seeds:
            return None
        rows, self._rows = self._rows, []
        return rows

    @property
    def seconds(self) -> float:
        return self._before + self._latest


def scalars(rows: list[Row]) -> dict[str, float]:
    """The numbers of a step by their names in a mirror. Null is left out, NaN is kept."""
    named: dict[str, float] = {}
    of_all: dict[str, list[float]] = {}
    for row in rows:
        split, seed = row["split"], f"seed{row['seed']}"
        for name, value in row.items():
            if name in PLACES:
                continue
            if _is_number(value):
                named[f"{split}/{name}/{seed}"] = value
                of_all.setdefault(f"{split}/{name}", []).append(value)
            elif isinstance(value, list):
                numbers = ((layer, number) for layer, number in enumerate(value) if _is_number(number))
                named |= {f"{split}/{name}/layer{layer}/{seed}": number for layer, number in numbers}
    return named | {name: _mean(values) for name, values in of_all.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _mean(values: list[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else math.nan


class TensorBoard:
    """Event files below the folder of a run; those of an earlier mirror are replaced.

    The time of an event is when the run was begun and for how many seconds it has trained since, over all its
    processes: it is that of the record, whenever the mirror was made.
    """

    def __init__(self, workdir: Path, folder: Path) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        for path in folder.glob("events.out.tfevents.*"):
            path.unlink()
        self._event, self._summary = Event, Summary
        self._began = (workdir / CONFIG).stat().st_mtime
        # Not SummaryWriter: its thread would swallow what the disk says, and then wait for ever.
        self._writer = EventsWriter(str(folder / "events"))
        # A TensorBoard that is open forgets what it has read.
        start = SessionLog(status=SessionLog.START)
        self._writer.write_event(Event(wall_time=self._began, step=0, session_log=start))

    def write(self, step: int, seconds: float, scalars: dict[str, float]) -> None:
        summary = self._summary(value=[self._summary.Value(tag=tag, simple_value=x) for tag, x in scalars.items()])
        self._writer.write_event(self._event(wall_time=self._began + seconds, step=step, summary=summary))

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class Wandb:
    """A run of wandb: offline, in a folder `wandb` of the run, unless $WANDB_MODE says otherwise.

    An offline run replaces the one before; online, steps that the service has are left out.
    """

    def __init__(self, workdir: Path, folder: Path) -> None:
        for path in folder.glob(f"*run-*-{run_id(workdir)}"):
            shutil.rmtree(path)
        self._run = _begun(workdir, folder.parent)

    def write(self, step: int, seconds: float, scalars: dict[str, float]) -> None:
        if step >= self._run.starting_step:
            self._run.log(scalars, step=step)

    def flush(self) -> None: ...

    def close(self) -> None:
        self._run.finish()


class Upload(Wandb):
    """The same run on the service; nothing in its folder changes but for the id, if there was none."""

    def __init__(self, workdir: Path, folder: Path) -> None:
        self._run, self._last = _begun(workdir, folder, "online"), -1

    def write(self, step: int, seconds: float, scalars: dict[str, float]) -> None:
        super().write(step, seconds, scalars)
        self._last = step

    def close(self) -> None:
        """Raises RuntimeError if the service has not kept all rows, of which wandb says nothing."""
        import wandb

        super().close()
        there = wandb.Api().run(self._run.path)
        for _ in range(TRIES):
            if there.lastHistoryStep >= self._last:
                return
            time.sleep(1)
        raise RuntimeError(f"the service has no rows of step {self._last}, its last is {there.lastHistoryStep}")


def _begun(workdir: Path, folder: Path, mode: Literal["online"] | None = None) -> Any:
    """The run of wandb for the run in `workdir`; its files lie in `folder`/wandb."""
    import wandb

    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    settings = wandb.Settings(console="off", disable_code=True, disable_git=True, x_disable_stats=True)
    config = _config(workdir)
    name = os.environ.get("WANDB_NAME", workdir.name)
    return wandb.init(
        config=config, dir=folder, id=run_id(workdir), mode=mode, name=name, resume="allow", settings=settings
    )


def _config(workdir: Path) -> dict[str, Any]:
    """As config.json holds it. Raises ConfigError if that is damaged."""
    path = workdir / CONFIG
    try:
        config = read_sealed(path)["config"]
        if not isinstance(config["seeds"], list):
            raise TypeError(f"seeds is {config['seeds']!r}")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(f"{path} is damaged ({type(error).__name__}: {error}): put back a copy") from error
    return config


def run_id(workdir: Path) -> str:
    """By which wandb knows a run; drawn once, unless $WANDB_RUN_ID says it."""
    path = workdir / WANDB / RUN_ID
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, os.environ.get("WANDB_RUN_ID", secrets.token_hex(4)).encode())
    return path.read_text()


MIRRORS: dict[str, Callable[[Path, Path], Mirror]] = {TENSORBOARD: TensorBoard, WANDB: Wandb, UPLOAD: Upload}


def follow(workdir: Path, mirror: Mirror, over: threading.Event, progress: Callable[[], None]) -> None:
    """Copies rows until the run is over, and then what is left; `progress` is called now and then."""
    steps, follower, last = Steps(len(_config(workdir)["seeds"])), Follower(workdir / METRICS), False
    while not last:
        last = over.wait(SECONDS_BETWEEN_LOOKS)
        for _, rows in follower.batches():
            for row in rows:
                if found := steps.add(row):
                    mirror.write(row["step"], steps.seconds, scalars(found))
            mirror.flush()
            progress()
    mirror.close()


def main(kind: str, workdir: Path, folder: Path, patience: int) -> int:
    """Copies into `folder`. Returns the exit code: 0, or 1 after a last line on stderr that says why.

    patience: for how many seconds the process may not get on once its stdin has ended, before SIGALRM ends it. When it
    does get on then, it says so on stdout.
    """
    heard, over = os.dup(1), threading.Event()
    os.dup2(2, 1)  # whatever prints here, its processes included, does it into the log
    os.nice(max(0, NICENESS - os.nice(0)))

    def wait() -> None:
        sys.stdin.buffer.read()
        signal.alarm(patience)
        over.set()

    def progress() -> None:
        if over.is_set():
            signal.alarm(patience)
            with contextlib.suppress(BrokenPipeError):
                os.write(heard, b".")

    threading.Thread(target=wait, daemon=True).start()
    try:
        fcntl.flock(2, fcntl.LOCK_EX)  # the mirror of a run that was killed may still be at work
        follow(workdir, MIRRORS[kind](workdir, folder), over, progress)
    except Exception as error:  # noqa: BLE001 - whatever a library raises, the run is told in a line
        line = (str(error).splitlines() or [""])[0]
        print(f"{type(error).__name__}: {line}", file=sys.stderr, flush=True)
        return GONE
    return 0


if __name__ == "__main__":
    if code := main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])):
        os._exit(code)  # what wandb does at the end would wait for a service that is gone
