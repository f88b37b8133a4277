"""Kills what writes files at random moments and checks that it ends as if it had been left alone.

    python -m scripts.kill_test                    30 kills of training, and each other command
    python -m scripts.kill_test --kills=3 --seed=7

Each command (training, scoring, preparing data, a sweep, a report; see `scripts.kill_subjects`) is left alone first.
Others of it are killed with SIGKILL, all their processes, and started again by the same command, until they end. The
moments of training are drawn uniformly from the time that the run took when left alone, with an empty compilation cache
(with the full one once the killed run has saved); then more are aimed at each phase that was hit less than --each
times. What is killed must end with the same files: of a run the same last checkpoint, bit for bit, and the same
metrics.jsonl in every field but ``seconds`` and its check.

Exit code 0: all ended alike. 1: one did not, and the folders are kept. 2: a wrong flag.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from scripts import kill_subjects
from scripts.arguments import Parser, positive
from scripts.kill_subjects import Before, Subject, newest, read

REPOSITORY = Path(__file__).parents[1]
POLL_SECONDS = 0.002
TRIES = 40
"""Aimed starts at most, for each phase; one may miss what lasts for milliseconds."""

Due = Callable[[float, Callable[[], str]], bool]
"""Whether to kill now, given the seconds since the start and what tells the phase, which takes time."""


@dataclass(frozen=True)
class Kill:
    """A kill some ``seconds`` after a start, ``during`` what, and the step that the next start goes on from."""

    seconds: float
    during: str
    step: int


class FailedRun(Exception):
    """A run that ended with an error of its own."""


def check(subject: Subject, folder: Path, kills: int, each: int, seed: int, say: Callable[[str], None]) -> list[str]:
    """Works in ``folder``, left alone and under ``kills`` kills at random moments, and in each phase ``each`` times.

    One that ends before its next kill is compared and another one started, until all kills have been made. Returns what
    differs, a line each.

    Raises:
      FailedRun: one ended with an error of its own, or a phase was not hit.
    """
    rng, hits = random.Random(seed), Counter[str]()
    alone = folder / f"{subject.name}-alone"
    cold = _seconds_alone(subject, alone)
    warm = cold
    differences: list[str] = []
    if cache_folder(alone).exists():
        again = folder / f"{subject.name}-again"
        shutil.copytree(cache_folder(alone), cache_folder(again))
        warm = _seconds_alone(subject, again)
        differences += _compare(subject, alone, again, say)
    say(f"{subject.name}, left alone: {cold:.1f} s with an empty compilation cache, {warm:.1f} s with a full one")
    say("kill  second  during     goes on from step")
    longest = cold

    def moments() -> Iterator[Due]:
        while hits.total() < kills:
            yield partial(_elapsed, rng.uniform(0, longest))
        for phase in subject.phases:
            for _ in range(TRIES):
                if hits[phase] >= each:
                    break
                yield partial(_in_phase, phase)

    due, number = moments(), 0
    while (pending := next(due, None)) is not None:
        number += 1
        longest, workdir, begun = cold, folder / f"{subject.name}-killed-{number}", time.monotonic()
        before = hits.total()
        for kill in until_it_ends(subject, workdir, chain([pending], due)):
            hits[kill.during] += 1
            longest = warm if kill.step else cold  # a run that has saved has compiled all that it needs
            say(f"{hits.total():>4}  {kill.seconds:6.2f}  {kill.during:<9}  {kill.step:>17}")
        differences += _compare(subject, alone, workdir, say)
        if hits.total() == before:  # it ended before its moment: the machine has less to do than when `cold` was taken
            cold = min(cold, time.monotonic() - begun)
    say(
        f"{subject.name}: {hits.total()} kills, " + ", ".join(f"{name} {count}" for name, count in sorted(hits.items()))
    )
    missed = [phase for phase in subject.phases if hits[phase] < each]
    if missed:
        raise FailedRun(f"{subject.name}: {', '.join(missed)} not hit {each} times in {TRIES} aimed starts")
    return differences


def _elapsed(moment: float, seconds: float, _: Callable[[], str]) -> bool:
    return seconds >= moment


def _in_phase(wanted: str, _: float, phase: Callable[[], str]) -> bool:
    return phase() == wanted


def _seconds_alone(subject: Subject, workdir: Path) -> float:
    begun = time.monotonic()
    assert list(until_it_ends(subject, workdir, [])) == []
    return time.monotonic() - begun


def _compare(subject: Subject, alone: Path, workdir: Path, say: Callable[[str], None]) -> list[str]:
    found = subject.differ(alone, workdir)
    say(f"{workdir.name} ended " + ("otherwise" if found else "like the one left alone"))
    return [f"{workdir}: {line}" for line in found]


def until_it_ends(subject: Subject, workdir: Path, kills: Iterable[Due]) -> Iterator[Kill]:
    """Starts the command until it ends by itself, and kills each start but the last when the next of ``kills`` is due.

    Raises:
      FailedRun: it ended with an error of its own.
    """
    subject.prepare(workdir)
    remaining = iter(kills)
    while True:
        due = next(remaining, None)
        before = Before(read(workdir / "train.log"), read(workdir / "metrics.jsonl"), newest(workdir))
        code, seconds = _start(subject, workdir, before, due)
        if code == 0:
            return
        if due is None or code != -signal.SIGKILL:
            *_, last = ["no word", *_output(workdir).read_text().splitlines()]
            raise FailedRun(f"{workdir} ended with exit code {code}: {last}")
        yield Kill(seconds, subject.during(workdir, before), newest(workdir))


def _start(subject: Subject, workdir: Path, before: Before, due: Due | None) -> tuple[int, float]:
    """Exit code and seconds of one start."""
    # A cache of its own: a kill can leave half an entry in it, and others may share the one of the environment.
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(cache_folder(workdir)),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        # Otherwise the folder's path is part of each key, and a copy of the folder serves nobody.
        "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
    }
    begun = time.monotonic()
    with _output(workdir).open("ab") as output:
        child = subprocess.Popen(
            subject.command(workdir),
            cwd=REPOSITORY,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            while due is not None and child.poll() is None:
                if due(time.monotonic() - begun, partial(subject.during, workdir, before)):
                    break
                time.sleep(POLL_SECONDS)
            if due is None:
                child.wait()
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            code = child.wait()
    return code, time.monotonic() - begun


def _output(workdir: Path) -> Path:
    return workdir.with_suffix(".out")


def cache_folder(workdir: Path) -> Path:
    """The folder of jax's compilation cache."""
    return workdir.with_suffix(".cache")


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    parser = Parser("kill_test", __doc__)
    parser.add_argument("--kills", type=positive, default=30, help="at random moments of training (default 30)")
    parser.add_argument("--each", type=positive, default=3, help="in each phase of each command (default 3)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default 0)")
    flags = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="linrec-kill-test-"))

    def say(line: str) -> None:
        print(line, flush=True)

    say(f"runs in {folder}")
    try:
        train = kill_subjects.training("rotrnn")
        differences = [*check(train, folder, flags.kills, flags.each, flags.seed, say)]
        for subject in kill_subjects.others(folder / f"{train.name}-alone"):
            differences += check(subject, folder, flags.each, flags.each, flags.seed, say)
    except FailedRun as error:
        differences = [str(error)]
    if differences:
        print("\n".join(["FAIL", *differences]))
        return 1
    shutil.rmtree(folder)
    print("PASS: whatever was killed ended like what was left alone")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
