"""A run that is killed and started again ends bit for bit like one left alone."""

import contextlib
import io
import shutil
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from scripts import kill_test
from tests.smoke_run import smoke_config
from training import checkpoint
from training.loop import train
from training.writers import MetricsLog, read_metrics


def test_three_kills_change_nothing(tmp_path):
    """In a compilation, in the middle of a save, and between two steps."""
    command, alone, killed = kill_test.command("lru"), tmp_path / "alone", tmp_path / "killed"
    assert list(kill_test.until_it_ends(command, alone, [])) == []
    shutil.copytree(kill_test.cache_folder(alone), kill_test.cache_folder(killed))

    def compiling(_: float) -> bool:
        return (killed / "train.log").exists()

    def saving(_: float) -> bool:
        committed = [(path / checkpoint.MANIFEST).exists() for path in (killed / "checkpoints").glob("[0-9]*")]
        return any(committed) and not all(committed)

    def beyond_step_40(_: float) -> bool:
        metrics = killed / "metrics.jsonl"
        return metrics.exists() and b'"step": 42' in metrics.read_bytes()

    kills = list(kill_test.until_it_ends(command, killed, [compiling, saving, beyond_step_40]))
    first, second, third = (kill.step for kill in kills)
    assert first == 0
    assert 4 <= second < 40 <= third
    assert kill_test.differ(alone, killed) == []


def test_clocks_that_jump_change_nothing_but_the_seconds(trained, tmp_path, monkeypatch):
    """Thirty years back and forth, those for the time of day and those that should never go back, after every step."""
    shift = [0.0]
    for name, clock in {"time": time.time, "monotonic": time.monotonic, "perf_counter": time.perf_counter}.items():
        monkeypatch.setattr(time, name, lambda clock=clock: clock() + shift[0])

    def to_stop() -> bool:
        shift[0] = 1e9 if shift[0] <= 0 else -1e9
        return False

    with contextlib.redirect_stdout(io.StringIO()):
        train(smoke_config(), tmp_path / "run", tmp_path, to_stop)
    assert kill_test.differ(trained, tmp_path / "run") == []
    seconds = [row["seconds"] for row in read_metrics(tmp_path / "run" / "metrics.jsonl")]
    assert min(seconds) < -9e8
    assert max(seconds) > 9e8


STAND_IN = """
import os, pathlib, sys, time
workdir = pathlib.Path(sys.argv[-1].removeprefix("--workdir="))
workdir.mkdir(exist_ok=True)
pathlib.Path(os.environ["JAX_COMPILATION_CACHE_DIR"]).mkdir(exist_ok=True)
again = (workdir / "begun").exists()
(workdir / "begun").touch()
time.sleep(1)
(workdir / "result").write_text("began again" if again and "forgetful" in sys.argv else "went on")
"""


@pytest.mark.parametrize("kind", ["faithful", "forgetful"])
def test_random_kills_are_all_made_and_every_run_is_compared(tmp_path, monkeypatch, kind):
    def differ(alone: Path, workdir: Path) -> list[str]:
        return ["result"] if (alone / "result").read_text() != (workdir / "result").read_text() else []

    monkeypatch.setattr(kill_test, "differ", differ)
    lines: list[str] = []
    command = [sys.executable, "-c", STAND_IN, kind]
    found = kill_test.check(command, tmp_path, kills=4, seed=0, say=lines.append)
    assert [line.split()[0] for line in lines if line.strip()[0].isdigit()] == ["1", "2", "3", "4"]
    runs = {path.parent for path in tmp_path.glob("killed-*/result")}
    assert {line.split()[0] for line in lines if line.startswith("killed-")} == {path.name for path in runs}
    if kind == "faithful":
        assert found == []
    else:
        assert found
        assert set(found) <= {f"{path}: result" for path in runs}


def finished_run(workdir: Path, *, steps: int = 3, loss: float = 0.5, parameter: float = 1.0, seconds: float = 1.0):
    workdir.mkdir()
    with MetricsLog(workdir / "metrics.jsonl", None) as metrics:
        for step in range(steps + 1):
            metrics.write({"step": step, "loss": np.nan if step == 0 else np.float32(loss), "seconds": seconds})
    tree = {"params": {"theta": jnp.asarray([parameter, 2.0], jnp.float32)}, "alive": jnp.asarray([True])}
    checkpoint.save(workdir / "checkpoints", steps, tree, {})
    return workdir


@pytest.fixture
def reference(tmp_path):
    return finished_run(tmp_path / "reference")


def test_equal_runs_do_not_differ_whatever_time_they_took(tmp_path, reference):
    assert kill_test.differ(reference, finished_run(tmp_path / "other", seconds=2.0)) == []


def test_one_bit_of_a_parameter_is_a_difference(tmp_path, reference):
    other = finished_run(tmp_path / "other", parameter=float(np.nextafter(np.float32(1), np.float32(2))))
    assert kill_test.differ(reference, other) == ["checkpoint 3 has other bits in params/theta"]


def test_a_metric_is_a_difference(tmp_path, reference):
    other = finished_run(tmp_path / "other", loss=float(np.nextafter(np.float32(0.5), np.float32(1))))
    assert kill_test.differ(reference, other) == ["metrics.jsonl differs from line 2 on, there in loss"]


def test_a_missing_step_is_a_difference(tmp_path, reference):
    other = finished_run(tmp_path / "other", steps=2)
    assert kill_test.differ(reference, other) == [
        "the last checkpoint is 2 with 2 leaves, not 3",
        "metrics.jsonl differs from line 4 on, there in step, loss",
    ]


COUNTS_ITS_STARTS = """
import pathlib, sys, time
workdir = pathlib.Path(sys.argv[-1].removeprefix("--workdir="))
workdir.mkdir(exist_ok=True)
with (workdir / "train.log").open("a") as log:
    log.write("start\\n")
if len((workdir / "train.log").read_text().splitlines()) < 3:
    time.sleep(60)
time.sleep(0.5)
"""


def test_a_run_is_killed_at_each_moment_and_then_left_to_end(tmp_path):
    command = [sys.executable, "-c", COUNTS_ITS_STARTS]
    log = tmp_path / "run" / "train.log"

    def begun(_: float) -> bool:
        return log.exists() and log.read_text().endswith("start\n")

    def begun_again(seconds: float) -> bool:
        return seconds > 0.5 and len(log.read_text().splitlines()) == 2

    kills = list(kill_test.until_it_ends(command, tmp_path / "run", [begun, begun_again]))
    assert [(kill.during, kill.step) for kill in kills] == [("start", 0), ("start", 0)]
    assert 0.5 < kills[1].seconds < 60
    assert (tmp_path / "run" / "train.log").read_text() == "start\n" * 3


def test_a_run_that_fails_by_itself_is_not_a_difference_but_an_error(tmp_path):
    command = [sys.executable, "-c", "import sys; sys.exit('error: no such task')"]
    with pytest.raises(kill_test.FailedRun, match=r"ended with exit code 1: error: no such task$"):
        list(kill_test.until_it_ends(command, tmp_path / "run", []))


def test_the_command_says_pass_or_fail(tmp_path, monkeypatch, capsys):
    found: list[str] = []
    monkeypatch.setattr(kill_test.tempfile, "mkdtemp", lambda prefix: str(tmp_path / "runs"))
    monkeypatch.setattr(kill_test, "check", lambda *_: found)
    (tmp_path / "runs").mkdir()
    assert kill_test.main(["--kills=5"]) == 0
    assert "PASS: 5 kills" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()
    (tmp_path / "runs").mkdir()
    found.append("killed-1: metrics.jsonl differs")
    assert kill_test.main([]) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == ["FAIL", "killed-1: metrics.jsonl differs"]
    assert (tmp_path / "runs").exists()
