"""Mirrors of metrics.jsonl in TensorBoard and wandb, each in a process of its own beside the run.

Such a process reads what the run writes to its folder (`training.mirroring`). The run never waits for it, and sends it
nothing but the end: whatever a service does, numbers and speed are those of a run without a mirror.
"""

import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from training.config import Mirrors
from training.errors import ConfigError
from training.folders import runs_below
from training.mirroring import TENSORBOARD, UPLOAD, WANDB

LOG = "mirror.log"
ROOT = Path(__file__).parent.parent

PATIENCE = {TENSORBOARD: 20, WANDB: 20, UPLOAD: 60}
"""Seconds after which a mirror that does not get on is given up, once its run is over."""
REMEDY = {
    TENSORBOARD: "the same command makes it anew",
    WANDB: "train.py --sync uploads it later",
    UPLOAD: "the same command goes on",
}


def kinds(mirrors: Mirrors) -> tuple[str, ...]:
    """The mirrors by name."""
    match mirrors:
        case Mirrors.NONE:
            return ()
        case Mirrors.BOTH:
            return TENSORBOARD, WANDB
        case Mirrors.TENSORBOARD | Mirrors.WANDB:
            return (mirrors.value,)


class Beside:
    """The mirrors of a run in progress. One that is gone is said in a line, once, and changes nothing else.

    Args:
      mirrors: which.
      workdir: the folder of the run, whose metrics.jsonl is open for writing.
      say: takes a line.

    running: the processes by the name of the mirror.
    """

    def __init__(self, mirrors: Mirrors, workdir: Path, say: Callable[[str], None]) -> None:
        self._say = say
        self.running: dict[str, Process] = {}
        for kind in kinds(mirrors):
            try:
                (workdir / kind).mkdir(exist_ok=True)
                self.running[kind] = Process(kind, workdir, workdir / kind)
            except OSError as error:
                self._gone(kind, str(error))

    def check(self) -> None:
        """Says which mirrors have ended before the run."""
        for kind, process in list(self.running.items()):
            if process.has_ended() and (why := self.running.pop(kind).finish()):
                self._gone(kind, why)

    def close(self) -> None:
        """Waits until all is copied, for a mirror that does not get on no longer than its PATIENCE."""
        for kind, process in self.running.items():
            if why := process.finish():
                self._gone(kind, why)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.close()

    def _gone(self, kind: str, why: str) -> None:
        self._say(f"the {kind} mirror is gone ({why}), the run is not: {REMEDY[kind]}")


class Process:
    """One mirror: what it makes and what it prints lies in `folder`."""

    def __init__(self, kind: str, workdir: Path, folder: Path) -> None:
        self._kind, self._log = kind, folder / LOG
        with self._log.open("wb") as log:
            # In a session of its own: Ctrl-C ends the run, and the mirror copies what was left.
            arguments = kind, str(workdir.resolve()), str(folder.resolve()), str(PATIENCE[kind])
            self._process = subprocess.Popen(
                [sys.executable, "-m", "training.mirroring", *arguments],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def finish(self) -> str:
        """Lets it copy what is left. Returns why it did not, "" if it did."""
        process, patience = self._process, PATIENCE[self._kind]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        # It writes when it gets on, and ends by itself soon after its patience, unless it is stopped.
        while select.select([process.stdout], [], [], patience + 2)[0] and process.stdout.read(1):
            pass
        process.kill()
        code = process.wait()
        process.stdout.close()
        lines = self._log.read_text(errors="replace").splitlines()
        if code == -signal.SIGALRM:
            return f"it did not get on for {patience} s"
        if code < 0:
            return f"killed by signal {-code}"
        return (lines or [f"exit code {code}"])[-1] if code else ""


def upload(folder: Path) -> Iterator[str]:
    """Brings every run in and below a folder to wandb from its metrics.jsonl; gives a line about each.

    Raises ConfigError if there is no run, or for the first that could not be uploaded: nothing in it has changed.
    """
    workdirs = list(runs_below(folder))
    if not workdirs:
        raise ConfigError(f"--sync: there is no run in {folder}")
    for workdir in workdirs:
        with tempfile.TemporaryDirectory(prefix="linrec_wandb_") as name:
            why = Process(UPLOAD, workdir, Path(name)).finish()
        if why:
            raise ConfigError(f"--sync: {workdir} was not uploaded ({why}): {REMEDY[UPLOAD]}")
        yield f"{workdir} is uploaded"
