"""A run that is killed and started again ends bit for bit like one left alone."""

import contextlib
import io
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from scripts import kill_subjects, kill_test
from scripts.kill_subjects import Subject, differ_runs
from tests.smoke_run import smoke_config
from training import checkpoint
from training.loop import train
from training.writers import MetricsLog, read_metrics


def test_three_kills_change_nothing(tmp_path):
    """In a compilation, in the middle of a save, and between two steps."""
    train, alone, killed = kill_subjects.training("lru"), tmp_path / "alone", tmp_path / "killed"
    assert list(kill_test.until_it_ends(train, alone, [])) == []
    shutil.copytree(kill_test.cache_folder(alone), kill_test.cache_folder(killed))

    def compiling(_: float, phase: Callable[[], str]) -> bool:
        return phase() == "compile"

    def saving(_: float, phase: Callable[[], str]) -> bool:
        return phase() == "save" and len(checkpoint.steps(killed / "checkpoints")) > 0

    def beyond_step_40(_: float, phase: Callable[[], str]) -> bool:
        return phase() == "step" and b'"step": 42' in (killed / "metrics.jsonl").read_bytes()

    kills = list(kill_test.until_it_ends(train, killed, [compiling, saving, beyond_step_40]))
    first, second, third = (kill.step for kill in kills)
    assert first == 0
    assert 4 <= second < 40 <= third
    assert differ_runs(alone, killed) == []


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
    assert differ_runs(trained, tmp_path / "run") == []
    seconds = [row["seconds"] for row in read_metrics(tmp_path / "run" / "metrics.jsonl")]
    assert min(seconds) < -9e8
    assert max(seconds) > 9e8


STAND_IN = """
import os, pathlib, sys, time
workdir = pathlib.Path(sys.argv[-1])
workdir.mkdir(exist_ok=True)
pathlib.Path(os.environ["JAX_COMPILATION_CACHE_DIR"]).mkdir(exist_ok=True)
again = (workdir / "begun").exists()
(workdir / "begun").touch()
time.sleep(1)
(workdir / "late").touch()
time.sleep(0.1)
(workdir / "result").write_text("began again" if again and "forgetful" in sys.argv else "went on")
"""


def stand_in(kind: str, phases: tuple[str, ...] = ()) -> Subject:
    """A command of a second that is, to its end, in the phase "late"."""
    return Subject(
        "stand_in",
        lambda folder: [sys.executable, "-c", STAND_IN, kind, str(folder)],
        lambda folder, _: "late" if (folder / "late").exists() else "early",
        lambda one, other: ["result"] if (one / "result").read_text() != (other / "result").read_text() else [],
        phases,
    )


@pytest.mark.parametrize("kind", ["faithful", "forgetful"])
def test_random_kills_are_all_made_and_every_run_is_compared(tmp_path, kind):
    lines: list[str] = []
    found = kill_test.check(stand_in(kind, ("late",)), tmp_path, kills=4, each=2, seed=0, say=lines.append)
    numbers = [line.split()[0] for line in lines if line.strip()[0].isdigit()]
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    assert len(numbers) >= 4
    assert sum(line.split()[2] == "late" for line in lines if line.strip()[0].isdigit()) >= 2
    runs = {path.parent for path in tmp_path.glob("stand_in-killed-*/result")}
    assert {line.split()[0] for line in lines if line.startswith("stand_in-killed-")} == {path.name for path in runs}
    if kind == "faithful":
        assert found == []
    else:
        assert found
        assert set(found) <= {f"{path}: result" for path in runs}


def test_a_phase_that_cannot_be_hit_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(kill_test, "TRIES", 1)
    with pytest.raises(kill_test.FailedRun, match=r"^stand_in: never not hit 1 times in 1 aimed starts$"):
        kill_test.check(stand_in("faithful", ("never",)), tmp_path, kills=0, each=1, seed=0, say=lambda _: None)


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
    assert differ_runs(reference, finished_run(tmp_path / "other", seconds=2.0)) == []


def test_one_bit_of_a_parameter_is_a_difference(tmp_path, reference):
    other = finished_run(tmp_path / "other", parameter=float(np.nextafter(np.float32(1), np.float32(2))))
    assert differ_runs(reference, other) == ["checkpoint 3 has other bits in params/theta"]


def test_a_metric_is_a_difference(tmp_path, reference):
    other = finished_run(tmp_path / "other", loss=float(np.nextafter(np.float32(0.5), np.float32(1))))
    assert differ_runs(reference, other) == ["metrics.jsonl differs from line 2 on, there in loss"]


def test_a_missing_step_is_a_difference(tmp_path, reference):
    other = finished_run(tmp_path / "other", steps=2)
    assert differ_runs(reference, other) == [
        "the last checkpoint is 2 with 2 leaves, not 3",
        "metrics.jsonl differs from line 4 on, there in step, loss",
    ]


COUNTS_ITS_STARTS = """
import pathlib, sys, time
workdir = pathlib.Path(sys.argv[-1])
workdir.mkdir(exist_ok=True)
with (workdir / "train.log").open("a") as log:
    log.write("start\\n")
if len((workdir / "train.log").read_text().splitlines()) < 3:
    time.sleep(60)
time.sleep(0.5)
"""


def with_code(code: str) -> Subject:
    return Subject("code", lambda folder: [sys.executable, "-c", code, str(folder)], lambda *_: "on", differ_runs, ())


def test_a_run_is_killed_at_each_moment_and_then_left_to_end(tmp_path):
    log = tmp_path / "run" / "train.log"

    def begun(_: float, __: object) -> bool:
        return log.exists() and log.read_text().endswith("start\n")

    def begun_again(seconds: float, _: object) -> bool:
        return seconds > 0.5 and len(log.read_text().splitlines()) == 2

    kills = list(kill_test.until_it_ends(with_code(COUNTS_ITS_STARTS), tmp_path / "run", [begun, begun_again]))
    assert [(kill.during, kill.step) for kill in kills] == [("on", 0), ("on", 0)]
    assert 0.5 < kills[1].seconds < 60
    assert (tmp_path / "run" / "train.log").read_text() == "start\n" * 3


ENDS_UNLESS_IT_STARTS_TO_BE_KILLED = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[-1])
folder.mkdir(exist_ok=True)
with (folder / "train.log").open("a") as log:
    log.write("start\\n")
if "killed" in folder.name and len((folder / "train.log").read_text().splitlines()) < 3:
    time.sleep(60)
"""


def test_kills_go_on_in_another_folder_when_one_has_ended(tmp_path, monkeypatch):
    def during(folder, before):
        log = kill_test.read(folder / "train.log")
        return "on" if log != before.log and log.count(b"start") < 3 else "start"

    code = with_code(ENDS_UNLESS_IT_STARTS_TO_BE_KILLED)
    subject = replace(code, during=during, differ=lambda *_: [], phases=("on",))
    monkeypatch.setattr(kill_test, "_elapsed", lambda moment, seconds, phase: phase() == "on")
    said = []
    assert kill_test.check(subject, tmp_path, kills=3, each=4, seed=0, say=said.append) == []
    ended = [line.partition(" ")[0] for line in said if line.endswith("like the one left alone")]
    assert ended == ["code-killed-1", "code-killed-2"]
    assert said[-1] == "code: 4 kills, on 4"


def test_a_run_that_fails_by_itself_is_not_a_difference_but_an_error(tmp_path):
    subject = with_code("import sys; sys.exit('error: no such task')")
    with pytest.raises(kill_test.FailedRun, match=r"ended with exit code 1: error: no such task$"):
        list(kill_test.until_it_ends(subject, tmp_path / "run", []))


@pytest.mark.parametrize("flag", ["--kills=-3", "--each=0", "--kills=x"])
def test_counts_that_are_none_are_refused(capsys, flag):
    with pytest.raises(SystemExit, match="2"):
        kill_test.main([flag])
    assert capsys.readouterr().err.startswith(f"error: argument {flag.partition('=')[0]}: ")


def test_the_command_says_pass_or_fail(tmp_path, monkeypatch, capsys):
    found: list[str] = []
    monkeypatch.setattr(kill_test.tempfile, "mkdtemp", lambda prefix: str(tmp_path / "runs"))
    monkeypatch.setattr(kill_test, "check", lambda *_: found)
    (tmp_path / "runs").mkdir()
    assert kill_test.main(["--kills=5"]) == 0
    assert "PASS: whatever was killed" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()
    (tmp_path / "runs").mkdir()
    found.append("killed-1: metrics.jsonl differs")
    assert kill_test.main([]) == 1
    assert capsys.readouterr().out.splitlines()[-6:] == ["FAIL", *["killed-1: metrics.jsonl differs"] * 5]
    assert (tmp_path / "runs").exists()
