"""A long run in short: are memory, open files and speed the same at its end as at its beginning?

    python -m scripts.soak                 50,000 updates, 500 evaluations, 500 checkpoints of a tiny model
    python -m scripts.soak --steps=5000

Samples are taken at every hundredth of the run but the last. Its second fifth, when all is compiled, is compared with
its last one: the resident memory (largest of each) may grow by 2 %, the number of open files by none, the time of an
update (median of each) by a quarter, for other work on the machine is in it.

Exit code 0: flat. 1: not. 2: refused.
"""

import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from configs import lra
from scripts.arguments import Parser, positive
from training import cli
from training.config import ExperimentConfig, from_config_dict
from training.loop import train

SAMPLES = 100
EVENTS = 500
"""Evaluations, and checkpoints."""

GROWTH = {"memory": 1.02, "files": 1.0, "seconds": 1.25}


class Sample(NamedTuple):
    """Resident bytes, open files, seconds of an update since the sample before."""

    memory: int
    files: int
    seconds: float


def main(argv: Sequence[str]) -> None:
    """Runs it in a temporary folder and prints a line for each quantity. Raises SystemExit if one has grown."""
    parser = Parser("soak", __doc__)
    parser.add_argument("--steps", type=positive, default=50_000, metavar="N", help="updates (default 50,000)")
    steps = parser.parse_args(argv[1:]).steps
    if steps < SAMPLES:
        parser.error(f"--steps={steps}: at least {SAMPLES} are needed, a sample each")
    with tempfile.TemporaryDirectory(prefix="linrec-soak-") as folder:
        samples = soak(steps, Path(folder) / "run")
    grown = growth(samples)
    for name, ratio in grown.items():
        print(f"{name}: {ratio:.4f} of what it was, at most {GROWTH[name]}")
    if any(ratio > GROWTH[name] for name, ratio in grown.items()):
        sys.exit(1)


def soak(steps: int, workdir: Path) -> list[Sample]:
    """Trains and takes samples."""
    samples: list[Sample] = []
    done, seen, began = -1, 0, time.monotonic()  # asked once before the first step

    def look() -> bool:
        nonlocal done, seen, began
        done += 1
        if done * SAMPLES // steps > len(samples):
            now = time.monotonic()
            samples.append(Sample(_resident(), len(os.listdir("/proc/self/fd")), (now - began) / (done - seen)))
            seen, began = done, now
        return False

    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        train(config(steps), workdir, workdir.parent, look)
    return samples


def config(steps: int) -> ExperimentConfig:
    """One block of an LRU on short sequences."""
    tiny = from_config_dict(
        lra.get_config("task=listops,layer=lru,depth=1,direction=forward,seeds=0:1,smoke").to_dict()
    )
    often = max(steps // EVENTS, 1)
    changed = replace(
        tiny.train, steps=steps, batch_size=2, eval_every=often, checkpoint_every=often, probe_every=often, log_every=10
    )
    return replace(tiny, train=changed)


def growth(samples: Sequence[Sample]) -> dict[str, float]:
    """What each quantity is in the last fifth, in parts of what it was in the second one."""
    fifth = len(samples) // 5
    early, late = samples[fifth : 2 * fifth], samples[-fifth:]
    ratios = {name: max(_of(late, name)) / max(_of(early, name)) for name in ("memory", "files")}
    return ratios | {"seconds": statistics.median(_of(late, "seconds")) / statistics.median(_of(early, "seconds"))}


def _of(samples: Sequence[Sample], name: str) -> list[float]:
    return [getattr(sample, name) for sample in samples]


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv))
