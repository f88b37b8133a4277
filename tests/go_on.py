"""Run on forced devices by test_training_mesh.py: goes on with the run in a folder for some steps, saves and stops."""

import contextlib
import pathlib
import sys

from training.errors import PreemptedError
from training.loop import train
from training.workdir import read_config

if __name__ == "__main__":
    workdir, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    calls = iter(range(steps + 1))  # before the first step, and after each
    with contextlib.suppress(PreemptedError):
        train(read_config(workdir)[0], workdir, workdir, lambda: next(calls) == steps)
