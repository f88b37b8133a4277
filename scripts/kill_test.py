"""Kills a small training run at random moments and checks that it ends as if it had been left alone.

    python -m scripts.kill_test                    20 kills
    python -m scripts.kill_test --kills=3 --seed=7

A run is left alone, twice: with an empty compilation cache and with a full one. Others, each with an empty cache of its
own, are killed with SIGKILL and started again by the same command, until they end. The moments are drawn uniformly from
the time that the run took when left alone (with the full cache once the killed run has compiled and saved), so that
they fall into start, compilation, steps, evaluations and saves. Each run must end with the same last checkpoint, bit
for bit, and the same metrics.jsonl in every field but ``seconds``.

Exit code 0: all runs ended alike. 1: one did not, and the runs are kept. 2: a wrong flag.
"""

import argparse
import itertools
import json
import operator
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from training import checkpoint

REPOSITORY = Path(__file__).parents[1]
POLL_SECONDS = 0.002


Due = Callable[[float], bool]
"""Whether to kill now, given the seconds since the start."""


@dataclass(frozen=True)
class _Before:
    """What a start finds."""

    log: bytes
    metrics: bytes
    step: int


@dataclass(frozen=True)
class Kill:
    """A kill some ``seconds`` after a start, ``during`` what, and the step that the next start goes on from."""

    seconds: float
    during: str
    step: int


class FailedRun(Exception):
    """A run that ended with an error of its own."""


def command(layer: str) -> list[str]:
    """A run of a minute at most that uses all that a resume must get right: two seeds, dropout, many saves."""
    return [
        sys.executable,
        "train.py",
        f"--config=configs/lra.py:task=listops,layer={layer},depth=1,direction=forward,seeds=0:2,smoke",
        "--config.model.dropout=0.1",
        "--config.train.steps=60",
        "--config.train.eval_every=6",
        "--config.train.checkpoint_every=4",
    ]


def check(command: list[str], folder: Path, kills: int, seed: int, say: Callable[[str], None]) -> list[str]:
    """Runs ``command`` left alone and under ``kills`` kills; returns what differs, a line each.

    A run that ends before its next kill is compared and a new one started, until all kills have been made.

    Raises:
      FailedRun: a run ended with an error of its own.
    """
    rng = random.Random(seed)
    alone, again = folder / "alone", folder / "again"
    cold = _seconds_alone(command, alone)
    shutil.copytree(cache_folder(alone), cache_folder(again))
    warm = _seconds_alone(command, again)
    say(f"left alone: {cold:.1f} s with an empty compilation cache, {warm:.1f} s with a full one")
    differences = _compare(alone, again, say)
    say("kill  second  during                goes on from step")
    made = run = 0
    longest = cold

    def moments() -> Iterator[Due]:
        while made < kills:
            yield partial(operator.le, rng.uniform(0, longest))

    while made < kills:
        run += 1
        made_before, begun, longest = made, time.monotonic(), cold
        workdir = folder / f"killed-{run}"
        for kill in until_it_ends(command, workdir, moments()):
            made += 1
            longest = warm if kill.step else cold  # a run that has saved has compiled all that it needs
            say(f"{made:>4}  {kill.seconds:6.2f}  {kill.during:<20}  {kill.step:>17}")
        differences += _compare(alone, workdir, say)
        if made == made_before:  # it ended before its moment: the machine has less to do than when `cold` was measured
            cold = min(cold, time.monotonic() - begun)
    return differences


def _seconds_alone(command: list[str], workdir: Path) -> float:
    begun = time.monotonic()
    assert list(until_it_ends(command, workdir, [])) == []
    return time.monotonic() - begun


def _compare(alone: Path, workdir: Path, say: Callable[[str], None]) -> list[str]:
    found = differ(alone, workdir)
    say(f"{workdir.name} ended " + ("otherwise" if found else "like the one left alone"))
    return [f"{workdir}: {line}" for line in found]


def until_it_ends(command: list[str], workdir: Path, kills: Iterable[Due]) -> Iterator[Kill]:
    """Starts ``command`` until it ends by itself, and kills each start but the last when the next of ``kills`` is due.

    Raises:
      FailedRun: it ended with an error of its own.
    """
    remaining = iter(kills)
    while True:
        due = next(remaining, None)
        before = _Before(_read(workdir / "train.log"), _read(workdir / "metrics.jsonl"), _newest(workdir))
        code, seconds = _start(command, workdir, due)
        if code == 0:
            return
        if due is None or code != -signal.SIGKILL:
            *_, last = ["no word", *_output(workdir).read_text().splitlines()]
            raise FailedRun(f"{workdir} ended with exit code {code}: {last}")
        yield Kill(seconds, _during(workdir, before), _newest(workdir))


def _start(command: list[str], workdir: Path, due: Due | None) -> tuple[int, float]:
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
            [*command, f"--workdir={workdir}"],
            cwd=REPOSITORY,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            while due is not None and child.poll() is None and not due(time.monotonic() - begun):
                time.sleep(POLL_SECONDS)
            if due is None:
                child.wait()
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
    return child.wait(), time.monotonic() - begun


def _during(workdir: Path, before: _Before) -> str:
    """What the run was doing, by what it has left in its folder since it was started."""
    if not (workdir / "config.json").exists():
        return "start"
    if _read(workdir / "train.log") == before.log:
        return "start or compilation"
    rows = _rows(workdir)
    if _read(workdir / "metrics.jsonl") == before.metrics or all(row["step"] <= before.step for row in rows):
        return "compilation"
    if not all((path / checkpoint.MANIFEST).exists() for path in (workdir / "checkpoints").glob("[0-9]*")):
        return "save"
    train = json.loads(_read(workdir / "config.json"))["config"]["train"]
    last = rows[-1]
    evaluating = last["step"] % train["eval_every"] == 0 or last["step"] == train["steps"]
    return "evaluation" if evaluating and last["split"] == "train" else "step"


def differ(reference: Path, workdir: Path) -> list[str]:
    """What the ends of two runs differ in: final checkpoint (bits) and metrics (all but ``seconds``)."""
    differences = []
    (step, leaves), (other_step, other_leaves) = _final_state(reference), _final_state(workdir)
    if (step, list(leaves)) != (other_step, list(other_leaves)):
        differences.append(f"the last checkpoint is {other_step} with {len(other_leaves)} leaves, not {step}")
    else:
        changed = [path for path in leaves if leaves[path].tobytes() != other_leaves[path].tobytes()]
        if changed:
            differences.append(f"checkpoint {step} has other bits in {', '.join(changed)}")
    for number, (row, other) in enumerate(itertools.zip_longest(_rows(reference), _rows(workdir), fillvalue={}), 1):
        if row != other:
            names = [name for name in row | other if row.get(name) != other.get(name)]
            differences.append(f"metrics.jsonl differs from line {number} on, there in {', '.join(names)}")
            break
    return differences


def _final_state(workdir: Path) -> tuple[int, dict[str, np.ndarray]]:
    folder, step = workdir / "checkpoints", _newest(workdir)
    restored = checkpoint.restore(folder, None, step)
    assert restored is not None
    return step, jax.device_get(restored.tree)


def _newest(workdir: Path) -> int:
    return max(checkpoint.steps(workdir / "checkpoints"), default=0)


def _rows(workdir: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl without their seconds; NaN stays null, so that rows can be compared."""
    *lines, _ = _read(workdir / "metrics.jsonl").split(b"\n")
    return [{name: value for name, value in json.loads(line).items() if name != "seconds"} for line in lines]


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _output(workdir: Path) -> Path:
    return workdir.with_suffix(".out")


def cache_folder(workdir: Path) -> Path:
    """The folder of jax's compilation cache."""
    return workdir.with_suffix(".cache")


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m scripts.kill_test", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="how many kills (default 20)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default 0)")
    flags = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="linrec-kill-test-"))
    print(f"runs in {folder}", flush=True)
    try:
        differences = check(command("rotrnn"), folder, flags.kills, flags.seed, lambda line: print(line, flush=True))
    except FailedRun as error:
        differences = [str(error)]
    if differences:
        print("\n".join(["FAIL", *differences]))
        return 1
    shutil.rmtree(folder)
    print(f"PASS: {flags.kills} kills, every run ended like the one left alone")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
