"""train.py and eval.py as a user calls them, in this process or in one of their own."""

import io
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

import pytest
from absl import flags

ROOT = pathlib.Path(__file__).parent.parent
TINY = "--config=configs/lra.py:layer=lru,direction=forward,depth=1,seeds=0:2,smoke"

FLAGS = {
    "distributed",
    "coordinator",
    "processes",
    "process",
    "config",
    "workdir",
    "data_dir",
    "print",
    "sync",
    "split",
    "checkpoint",
    "step_rescale",
    "every",
    "window",
    "carried",
}
"""What the two scripts define."""


PATIENT = "--xla_cpu_collective_call_terminate_timeout_seconds=240"
"""On a busy machine the threads of forced devices wait long for each other; XLA would abort after 40 s."""


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def call(script: str, *arguments: object) -> Ended:
    """Runs a script in this process, which has its imports already; whatever is no exit is raised."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the load_module", DeprecationWarning)  # how ml_collections loads a config
        patch.setattr(sys, "argv", [script, *map(str, arguments)])
        patch.chdir(ROOT)
        handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}
        try:
            with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
                runpy.run_path(str(ROOT / script), run_name="__main__")
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            for name in [name for name in flags.FLAGS if name.split(".")[0] in FLAGS]:
                delattr(flags.FLAGS, name)
            sys.modules.pop("config_config", None)  # the next config file would be executed on top of it
    assert isinstance(end.value.code, int)
    return Ended(end.value.code, out.getvalue(), err.getvalue())


def start(script: str, *arguments: object) -> subprocess.Popen:
    """Starts a script in a process of its own."""
    environment = os.environ | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command = [sys.executable, script, *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def on_devices(count: int, script: str, *arguments: object) -> str:
    """What a script of this folder prints in a process of its own that has so many devices."""
    tests = ROOT / "tests"
    environment = os.environ | {
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count} {PATIENT}",
        "PYTHONPATH": f"{ROOT}:{tests}",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    command = [sys.executable, str(tests / script), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(script: str, *arguments: object) -> Ended:
    """Runs a script in a process of its own."""
    process = start(script, *arguments)
    out, err = process.communicate(timeout=240)
    return Ended(process.returncode, out, err)


def assert_refused(ended: Ended, line: str) -> None:
    """Exit 2, and exactly one line on stderr, which contains `line`."""
    assert ended.code == 2, ended
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1, ended.err
    assert line in ended.err
