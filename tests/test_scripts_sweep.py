"""Sweeps: which cells are run, skipped, tried again or listed; kills of a worker and of the runner; executors."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import sweep_stand_in
from commands import ROOT

from scripts import sweep, sweep_cell, sweep_executors, sweep_plan
from scripts.sweep_cell import End, Settings, commands, run_cell, standing
from scripts.sweep_estimate import Estimate, Stopwatch, kind, measure
from training import cli
from training.errors import ConfigError

pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")  # how ml_collections loads configs

STAND_IN = str(Path(__file__).with_name("sweep_stand_in.py"))
CONFIG = "configs/lra.py:task=listops,layer=lru,direction=forward,depth=1,smoke"


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch):
    """Handlers and threads as they were: a sweep takes SIGINT and SIGTERM."""
    monkeypatch.chdir(ROOT)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def stand_in(monkeypatch):
    """Cells of milliseconds."""
    monkeypatch.setattr(sweep_cell, "TRAIN", STAND_IN)
    monkeypatch.setattr(sweep_cell, "EVAL", STAND_IN)


def run(out, grid, *more):
    """The exit code of a sweep in this process."""
    try:
        return cli.guarded(sweep.main, ["sweep", f"--config={CONFIG}", f"--out={out}", f"--grid={grid}", *more])
    except SystemExit as end:
        return end.code


def begun(folder):
    """How often training was begun in a folder."""
    path = folder / "begun.txt"
    return len(path.read_text().splitlines()) if path.exists() else 0


def steps(folder):
    return [int(line) for line in (folder / "steps.txt").read_text().splitlines()]


def test_cells_are_run_tried_again_or_listed_and_the_same_command_goes_on(tmp_path, stand_in, capsys):
    grid = "config.optim.lr=0.1,0.2,0.3,0.4,0.5"
    assert run(tmp_path, grid, "--splits=val,test", "--workers=2", "--retries=1") == 1
    fine, refused, not_finite, killed_once, killed = (tmp_path / f"optim.lr=0.{i}" for i in range(1, 6))
    assert [begun(folder) for folder in (fine, refused, not_finite, killed_once, killed)] == [1, 1, 1, 2, 2]
    assert steps(fine) == steps(killed_once) == [*range(1, 13)], "it goes on from its checkpoint"
    for folder in (fine, killed_once):
        assert [r["split"] for r in json.loads((folder / "results.json").read_text())] == ["val", "test"]
    assert capsys.readouterr().out.splitlines()[-4:] == [
        f"2 of 5 cells finished: {tmp_path}",
        "failed: optim.lr=0.2: exit 2: error: a rate that is too high",
        "failed: optim.lr=0.3: exit 3: stopped: seed 0, step 5: the loss is not finite",
        "failed: optim.lr=0.5: killed by SIGKILL, as it is when memory runs out",
    ]
    # Again: what is finished or not finite is not begun, what was refused or killed is.
    assert run(tmp_path, grid, "--splits=val,test", "--retries=0") == 1
    assert [begun(folder) for folder in (fine, refused, not_finite, killed_once, killed)] == [1, 2, 1, 2, 3]
    # More cells, and a split less: only the new one is run.
    assert run(tmp_path, grid + ",0.8", "--retries=0") == 1
    assert [begun(folder) for folder in (fine, not_finite, killed_once, tmp_path / "optim.lr=0.8")] == [1, 1, 2, 1]
    # A smaller plan is refused before anything is run.
    assert run(tmp_path, "config.optim.lr=0.1") == 2
    assert "that is not in this sweep" in capsys.readouterr().err


def test_one_row_ends_like_its_cell(tmp_path, stand_in, capsys):
    grid = "config.optim.lr=0.1,0.3,0.5"
    assert [run(tmp_path, grid, f"--index={i}", "--retries=0") for i in (0, 1, 2, 3, -1)] == [0, 3, 137, 2, 2]
    assert begun(tmp_path / "optim.lr=0.1") == begun(tmp_path / "optim.lr=0.5") == 1
    said = capsys.readouterr()
    assert said.out == "optim.lr=0.1: val accuracy 50.0 %\n"
    assert "error: --index=3: the sweep has cells 0 to 2\n" in said.err


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--grid=layer=gru"], "error: cell layer=gru: layer is given twice after the colon"),
        (["--random=depth=1:2"], "error: --random and --trials=N go together"),
        (["--trials=2", "--grid=depth=1"], "error: --random and --trials=N go together"),
        ([], "error: nothing to sweep: give --grid, --list or --random"),
        (["--grid=config.data.smoke=false"], "error: no data in "),
        (
            ["--grid=config.optim.lr=0.1", "--executor=slurm", "--submitit=timeout_min"],
            "error: 'timeout_min': expected",
        ),
    ],
)
def test_refused_before_anything_runs(tmp_path, stand_in, capsys, flags, line):
    out, nowhere = f"--out={tmp_path / 'out'}", f"--data_dir={tmp_path / 'nowhere'}"
    assert cli.guarded(sweep.main, ["sweep", f"--config={CONFIG}", out, nowhere, *flags]) == 2
    found_lines = capsys.readouterr().err.splitlines()
    assert len(found_lines) == 1
    assert found_lines[0].startswith(line)
    assert not [path for path in tmp_path.glob("out/*/*") if path.parent.name != "log"]


def test_a_folder_of_another_run_is_refused(tmp_path, stand_in, capsys):
    (cell,) = sweep_plan.resolve(CONFIG, None, [{"config.optim.lr": "0.1"}])
    (tmp_path / cell.name).mkdir()
    (tmp_path / cell.name / "config.json").write_text("{}")
    assert run(tmp_path, "config.optim.lr=0.1") == 2
    assert f"{tmp_path / cell.name / 'config.json'} is damaged" in capsys.readouterr().err


RUNNER = f"""
import sys
from scripts import sweep, sweep_cell
from training import cli
sweep_cell.TRAIN = sweep_cell.EVAL = {STAND_IN!r}
sys.exit(cli.guarded(sweep.main, sys.argv))
"""


def wait_for(true):
    """Polls: what is waited for happens in other processes."""
    end = time.monotonic() + 200
    while not true():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


def test_twelve_cells_survive_the_kill_of_a_worker_and_of_the_runner(tmp_path):
    """0.6 and 0.7 stop at step 3 until they are killed, so the kills fall where they should."""
    rates = "0.11,0.6,0.12,0.13,0.14,0.7,0.15,0.16,0.17,0.18,0.19,0.21"
    command = [sys.executable, "-c", RUNNER, f"--config={CONFIG}", f"--out={tmp_path}", "--workers=2"]
    command += [f"--grid=config.optim.lr={rates}"]
    folders = [tmp_path / f"optim.lr={rate}" for rate in rates.split(",")]
    worker, orphan = folders[1], folders[5]

    def start():
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def finished():
        return [folder for folder in folders if (folder / "results.json").exists()]

    def stopped(folder):
        return (folder / "checkpoints" / "2" / "sha256.json").exists()

    def kill(folder):
        os.kill(int((folder / "begun.txt").read_text()), signal.SIGKILL)

    runner = start()
    wait_for(lambda: stopped(worker))
    kill(worker)
    wait_for(lambda: worker in finished() and stopped(orphan))
    runner.kill()
    runner.communicate()
    done = {folder: (folder / "results.json").stat().st_mtime_ns for folder in finished()}
    assert 2 <= len(done) < 12
    runner = start()
    wait_for(lambda: len(finished()) == 11)
    assert begun(orphan) == 1, "the process that the killed runner had begun still has it"
    kill(orphan)
    out, _ = runner.communicate()
    assert (runner.returncode, out.splitlines()[-1]) == (0, f"12 of 12 cells finished: {tmp_path}")
    assert f"{orphan.name}: waiting for the process that works on it" in out.splitlines()
    assert {folder: (folder / "results.json").stat().st_mtime_ns for folder in done} == done
    for folder in folders:
        assert steps(folder) == [*range(1, 13)], f"{folder}: every step once, over the kills"
        assert begun(folder) == 1 + (folder in (worker, orphan))


def test_what_is_trained_is_only_scored_and_what_is_damaged_trained_again(tmp_path):
    """As when a sweep is killed between the two."""
    (cell,) = sweep_plan.resolve(CONFIG, None, [{"config.optim.lr": "0.1"}])
    settings = Settings(tmp_path, tmp_path, ("val",), 0)
    sweep_stand_in.train(settings.folder(cell), None)
    assert [command[0] for command in commands(cell, settings)] == ["eval.py"]
    (settings.folder(cell) / "checkpoints" / "12" / "meta.json").write_text("{ }")
    assert [command[0] for command in commands(cell, settings)] == ["train.py", "eval.py"]


def test_an_interrupt_ends_what_runs_and_the_same_command_goes_on(tmp_path, stand_in, capsys):
    grid, folder = "config.optim.lr=0.6,0.1", tmp_path / "optim.lr=0.6"

    def interrupt():
        wait_for(lambda: (folder / "checkpoints" / "2" / "sha256.json").exists())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    assert run(tmp_path, grid) == 130
    thread.join()
    assert capsys.readouterr().err.splitlines()[-1] == "interrupted: the same command goes on where this one stopped"
    assert not begun(tmp_path / "optim.lr=0.1")
    assert run(tmp_path, grid) == 0
    assert steps(folder) == [*range(1, 13)]


def test_a_cell_that_a_process_still_works_on_is_waited_for(tmp_path, stand_in, capsys):
    (cell,) = sweep_plan.resolve(CONFIG, None, [{"config.optim.lr": "0.1"}])
    settings = Settings(tmp_path, tmp_path, ("val",), retries=0)
    (tmp_path / "log").mkdir()
    with settings.log(cell).open("ab") as log:
        held, stopping, ends = threading.Event(), threading.Event(), []
        assert sweep_cell._lock(log, cell, stopping)
        thread = threading.Thread(target=lambda: (held.set(), ends.append(run_cell(cell, settings, stopping))))
        thread.start()
        held.wait()
        time.sleep(3 * sweep_cell.SECONDS_BETWEEN_LOOKS)
        assert not begun(settings.folder(cell))
    thread.join()
    assert ends == [End(0, "val accuracy 50.0 %")]
    assert "waiting for the process that works on it" in capsys.readouterr().out
    stopping.set()
    assert run_cell(cell, settings, stopping).code == cli.INTERRUPTED


def test_every_worker_has_its_share():
    assert [sweep_executors.share_of([0, 1, 2, 3, 4], i, 2) for i in (0, 1)] == [[0, 1], [2, 3, 4]]
    assert [sweep_executors.share_of([0, 1], i, 3) for i in (0, 1, 2)] == [[0], [0], [1]]
    four = {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    assert sweep_executors.share_of_devices(1, 2, four) == {"CUDA_VISIBLE_DEVICES": "2,3"}
    assert sweep_executors.share_of_devices(1, 2, {}) == {}


def test_a_real_cell_through_submitit(tmp_path):
    """train.py and eval.py in an array job of submitit's local executor; then it is finished for every executor."""
    cells = sweep_plan.resolve(CONFIG, "0+1", [{"real_state_size": "8"}])
    settings = Settings(tmp_path, tmp_path, ("val",), retries=0)
    (job,) = sweep_executors.submit(cells, settings, "local", {"timeout_min": "60"})
    end = job.result()
    assert end.code == 0, end
    assert end.said.startswith("val accuracy "), "the line of eval.py"
    assert commands(cells[0], settings) == []
    assert standing(cells[0], settings) == "finished"
    (record,) = json.loads((settings.folder(cells[0]) / "results.json").read_text())
    assert record["seeds"].keys() == {"0", "1"}
    again = sweep_executors.Requeued(settings).checkpoint(cells[0])
    assert again.function(*again.args, **again.kwargs) == End(0, "finished"), "what a requeued job does"


@pytest.mark.parametrize(
    ("cluster", "options", "line"),
    [("local", {"timout_min": "5"}, "submitit: .*timout_min"), ("slurm", {}, "submitit: .*srun")],
)
def test_what_submitit_refuses_is_one_line(tmp_path, cluster, options, line):
    settings = Settings(tmp_path, tmp_path, ("val",), retries=0)
    with pytest.raises(ConfigError, match=line) as error:
        sweep_executors.submit([], settings, cluster, options)
    assert "\n" not in str(error.value)


def test_without_submitit_it_is_said_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ConfigError, match=r"needs submitit: pip install -r requirements-dev\.txt"):
        sweep_executors.submit([], Settings(tmp_path, tmp_path, ("val",), 0), "slurm", {})


def config_of(*overrides):
    (cell,) = sweep_plan.resolve(CONFIG, "0:2", [dict(overrides)])
    return cell.config


def test_an_estimate_adds_up():
    """Of 12 updates, every 5 an evaluation and every 4 a probe and a save: what comes after update 4."""
    config = config_of(("config.train.eval_every", "5"))
    guess = Estimate(100.0, 60.0, 1.0, 0.1, 1e-3, 1e-5, {"val": 4, "test": 5}, memory=0)
    scores = 2 * (100 - 60) + 0.9
    whole = 100 + 12 + 0.1 * 4 * 4 + 3e-3 + 3e-5 + scores  # evaluations at 0, 5, 10, 12
    assert guess.seconds(config, 0, ("val", "test")) == pytest.approx(whole, abs=1e-9)
    rest = 100 + 8 + 0.1 * 4 * 3 + 2e-3 + 2e-5 + scores
    assert guess.seconds(config, 4, ("val", "test")) == pytest.approx(rest, abs=1e-9)
    assert guess.seconds(config, 12, ("val",)) == pytest.approx(40.4)


def test_calls_are_timed_after_the_first_which_compiles():
    now, seconds = 0.0, iter([60.0, 1.0, 2.0, 3.0, 100.0])

    def calls():
        nonlocal now
        for took in seconds:
            now += took
            yield None

    watch = Stopwatch(lambda: now)
    assert watch.per_call(calls()) == 2
    assert watch.spent == 6


def test_cells_of_one_program_are_of_one_kind():
    same = {kind(config_of(change)) for change in [("config.optim.lr", "0.1"), ("config.train.steps", "40")]}
    others = {kind(config_of(change)) for change in [("config.model.width", "8"), ("config.train.batch_size", "4")]}
    assert len(same) == 1
    assert len(same | others) == 3


def test_a_measurement_runs_the_programs_of_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("scripts.sweep_estimate.SECONDS", 0.0)
    watch = Stopwatch(time.perf_counter)
    found_estimate = measure(config_of(), tmp_path, watch)
    per_call = [getattr(found_estimate, name) for name in ("update", "batch", "probe", "save")]
    assert watch.spent == pytest.approx(3 * sum(per_call))
    assert min(per_call) > 0
    assert found_estimate.batches == {"train": 16, "val": 4, "test": 4}
    assert found_estimate.memory > 2**26


def test_a_dry_run_shows_all_and_writes_nothing(tmp_path, stand_in, capsys, monkeypatch):
    measured = []

    def estimate(config, data_dir, environment):
        measured.append(config.model.width)
        guess = Estimate(10.0, 5.0, 1.0, 0.0, 0.0, 0.0, {"val": 1}, memory=2**30)
        return guess if config.model.width == 16 else "error: too wide"

    monkeypatch.setattr(sweep, "estimate", estimate)
    assert run(tmp_path / "out", "config.model.width=16,8; config.optim.lr=0.1,0.3", "--dry_run", "--seeds=0:2") == 0
    assert measured == [16, 8], "cells of one program are measured once"
    assert list(tmp_path.iterdir()) == []
    lines = capsys.readouterr().out.splitlines()
    folder = tmp_path / "out" / "model.width=16,optim.lr=0.1"
    assert lines[0] == "[0] model.width=16,optim.lr=0.1: 2 seeds, 1 blocks of 32 real numbers of state, not begun"
    flags = f"--config={CONFIG},seeds=0:2 --config.model.width=16 --config.optim.lr=0.1"
    where = f"--workdir={folder} --data_dir={cli.data_dir(None)}"
    assert lines[1:4] == [
        f"    python {STAND_IN} {flags} {where}",
        f"    python {STAND_IN} --split=val {where}",
        "    about 0:00:27, 1.1 GB",
    ]
    assert "    no estimate: error: too wide" in lines
    assert lines[-1] == "4 of 4 cells to run: about 0:00:54, 1.1 GB without the 2 that could not be measured"
    assert run(tmp_path / "out", "config.optim.lr=0.1,0.3", "--retries=0") == 1
    capsys.readouterr()
    assert run(tmp_path / "out", "config.optim.lr=0.1,0.3", "--dry_run") == 0
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.endswith("state, finished")
    assert second.endswith("state, step 4 of 12, exit 3: stopped: seed 0, step 5: the loss is not finite")
    assert last == "0 of 2 cells to run: about 0:00:00, 0 B"
