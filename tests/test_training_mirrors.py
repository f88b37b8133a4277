"""Mirrors hold what metrics.jsonl holds, each step once. Whatever happens to one, the run ends as if it had none."""

import json
import math
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from commands import ROOT, TINY, assert_refused, call
from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
from wandb_server import service

from scripts.kill_subjects import differ_runs
from training import mirrors
from training.config import Mirrors
from training.mirroring import Steps, TensorBoard, follow, run_id, scalars
from training.mirrors import Beside
from training.writers import Follower, MetricsLog, read_metrics

ENVIRONMENT = {"WANDB_API_KEY": "a" * 40, "WANDB_ERROR_REPORTING": "false"}
"""No test may reach out, and a user's own settings must not matter."""


@pytest.fixture(autouse=True)
def wandb_settings(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    for name, value in {**ENVIRONMENT, "WANDB_CONFIG_DIR": str(tmp_path / "settings")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")


def rows_of(step, seconds=None):
    """A step of two seeds and two layers; the second seed dies at step 3."""
    rows = []
    for seed in (0, 1):
        loss = math.nan if seed == 1 and step >= 3 else None if step == 0 else 1 / (step + seed)
        row = {"step": step, "seed": seed, "split": "train", "loss": loss, "data": "smoke"}
        row |= {"state_energy": [1.0 + seed, None], "state_energy_t": [[1.0, 2.0], None]} if step % 2 == 0 else {}
        rows.append(row | {"seconds": float(step if seconds is None else seconds)})
    return rows


def names_of(step):
    """What a mirror has of that step, by hand."""
    rows = rows_of(step)
    named = {f"train/loss/seed{row['seed']}": row["loss"] for row in rows if row["loss"] is not None}
    if named:
        named["train/loss"] = rows[0]["loss"] if step >= 3 else (rows[0]["loss"] + rows[1]["loss"]) / 2
    if step % 2 == 0:
        named |= {"train/state_energy/layer0/seed0": 1.0, "train/state_energy/layer0/seed1": 2.0}
    return named | {f"train/seconds{end}": float(step) for end in ("", "/seed0", "/seed1")}


@pytest.fixture
def workdir(tmp_path):
    """A run of two seeds with the steps 0 to 4."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"config": {"seeds": [0, 1], "optim": {"lr": 0.5}}}))
    os.utime(folder / "config.json", (1e9, 1e9))
    write(folder, range(5))
    return folder


def write(folder, steps, after=None):
    with MetricsLog(folder / "metrics.jsonl", after) as log:
        for step in steps:
            for row in rows_of(step):
                log.write(row)


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-7, nan_ok=True), name


def test_numbers_have_one_name_each():
    for step in range(5):
        assert_same(scalars(rows_of(step)), names_of(step))


def test_a_step_that_was_cut_is_left_out_and_time_goes_on_over_a_resume():
    steps = Steps(2)
    given = [*rows_of(1), rows_of(2)[0], *rows_of(2, seconds=1.5), *rows_of(3, seconds=4.0)]
    assert [found[0]["step"] for row in given if (found := steps.add(row))] == [1, 2, 3]
    assert steps.seconds == 2.0 + 4.0


def test_rows_are_followed_while_they_are_written(tmp_path):
    path = tmp_path / "metrics.jsonl"
    follower, fresh = Follower(path), Follower(path, look_back=100)
    assert list(follower.batches()) == []
    content = b"".join(json.dumps({"step": step, "loss": step / 3}).encode() + b"\n" for step in range(50))
    seen = []
    for end in range(1, len(content) + 1, 13):
        path.write_bytes(content[:end])
        seen += [row["step"] for _, rows in follower.batches() for row in rows]
        assert seen == list(range(content[:end].count(b"\n"))), "whole lines, each once"
    path.write_bytes(content)
    list(follower.batches())
    assert list(follower.batches()) == []
    ((afresh, rows),) = fresh.batches()
    assert afresh
    assert [row["step"] for row in rows] == [48, 49], "what a glance back at the end holds"
    path.write_bytes(b'{"step": 1, "loss": null, "nonfinite": ["loss"]}\n')
    ((afresh, (row,)),) = follower.batches()
    assert afresh, "shorter than before: another file"
    assert math.isnan(row["loss"])


def events_of(folder):
    """Every event below a folder that has a summary, read from the bytes of its records."""
    events = []
    for path in sorted(folder.glob("events.out.tfevents.*")):
        content = path.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            events.append(Event.FromString(content[12 : 12 + length]))
            content = content[16 + length :]
    return [event for event in events if event.HasField("summary")]


def tensorboard_of(folder):
    """step -> names and numbers, after a check that no step is there twice."""
    events = events_of(folder)
    assert len({event.step for event in events}) == len(events)
    return {event.step: {value.tag: value.simple_value for value in event.summary.value} for event in events}


def test_tensorboard_has_every_step_once_whatever_was_there_before(workdir):
    over, folder = threading.Event(), workdir / "tensorboard"
    over.set()
    folder.mkdir()
    follow(workdir, TensorBoard(workdir, folder), over, lambda: None)
    expected = {step: names_of(step) for step in range(5)}
    assert tensorboard_of(folder).keys() == expected.keys()
    for step, found in tensorboard_of(folder).items():
        assert_same(found, {name: float(np.float32(value)) for name, value in expected[step].items()})
    assert [event.wall_time for event in events_of(folder)] == [1e9 + step for step in range(5)]
    # A kill, and a resume from step 2 that is now at step 7.
    write(workdir, range(3, 8), after=2)
    follow(workdir, TensorBoard(workdir, folder), over, lambda: None)
    assert list(tensorboard_of(folder)) == list(range(8))


def test_a_clock_that_jumps_loses_no_step(workdir):
    over = threading.Event()
    over.set()
    (workdir / "metrics.jsonl").unlink()
    (workdir / "tensorboard").mkdir()
    with MetricsLog(workdir / "metrics.jsonl", None) as log:
        for step, seconds in enumerate((1.0, -1e9, 1e9, 0.0, 1e12)):
            for row in rows_of(step, seconds):
                log.write(row)
    follow(workdir, TensorBoard(workdir, workdir / "tensorboard"), over, lambda: None)
    found = tensorboard_of(workdir / "tensorboard")
    assert list(found) == list(range(5))
    assert found[1]["train/loss/seed0"] == 1


def offline_of(workdir):
    """step -> names and numbers, of the one offline run of wandb; by wandb's own reader."""
    (path,) = (workdir / "wandb").glob("offline-run-*/run-*.wandb")
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(path)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    items = [json.loads(line)["history"]["item"] for line in lines if '"type":"history"' in line]
    assert len({item["_step"] for item in items}) == len(items)
    return path.stem, {item.pop("_step"): with_nan(item) for item in items}


def with_nan(item):
    return {name: math.nan if x == "NaN" else x for name, x in item.items() if not name.startswith("_")}


def mirrored(workdir, which):
    """What is said by the mirrors of a run that is over at once."""
    lines = []
    with Beside(which, workdir, lines.append):
        pass
    return lines


def test_wandb_is_offline_by_default_and_a_resume_replaces_what_was_there(workdir):
    assert mirrored(workdir, Mirrors.BOTH) == []
    name, found = offline_of(workdir)
    assert found.keys() == tensorboard_of(workdir / "tensorboard").keys() == set(range(5))
    for step in range(5):
        assert_same(found[step], names_of(step))
    write(workdir, range(3, 7), after=2)
    assert mirrored(workdir, Mirrors.WANDB) == []
    again, found = offline_of(workdir)
    assert (again, list(found)) == (name, list(range(7))), "the same run of wandb"


def wait_for(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children(pid):
    """The processes that a process has started."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def test_a_service_process_that_is_killed_is_said_once_and_the_other_mirror_goes_on(workdir):
    lines = []
    with Beside(Mirrors.BOTH, workdir, lines.append) as beside:
        wandb = beside.running["wandb"]
        wait_for(lambda: list((workdir / "wandb").glob("offline-run-*/*.wandb")) and children(wandb.pid))
        beside.check()
        assert lines == []
        for child in children(wandb.pid):
            os.kill(child, signal.SIGKILL)
        write(workdir, [5], after=4)
        wait_for(wandb.has_ended)
        beside.check()
        beside.check()
    (line,) = lines
    # By which call it is noticed is chance.
    gone = r"the wandb mirror is gone \((ConnectionResetError|HandleAbandonedError): .*\)"
    assert re.fullmatch(f"{gone}, the run is not: train.py --sync uploads it later", line)
    assert list(tensorboard_of(workdir / "tensorboard")) == list(range(6))


@pytest.fixture
def deaf():
    """The address of a service that accepts every connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_run_with_a_service_that_never_answers_ends_bit_for_bit_like_one_without(
    undisturbed, tmp_path, deaf, monkeypatch
):
    assert sorted(path.name for path in undisturbed.iterdir() if path.is_dir()) == ["checkpoints"]
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_BASE_URL", deaf)
    monkeypatch.setitem(mirrors.PATIENCE, "wandb", 1)
    ended = call("train.py", TINY, f"--workdir={tmp_path / 'run'}", "--config.mirrors=both")
    assert (ended.code, ended.err) == (0, "")
    told = [line for line in ended.out.splitlines() if "mirror" in line]
    assert told == [
        "the wandb mirror is gone (it did not get on for 1 s), the run is not: train.py --sync uploads it later"
    ]
    assert differ_runs(undisturbed, tmp_path / "run") == []
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    events = events_of(tmp_path / "run" / "tensorboard")
    found = {(event.step, value.tag): value.simple_value for event in events for value in event.summary.value}
    assert len(found) == sum(len(event.summary.value) for event in events), "each once"
    for row in rows:
        assert found[row["step"], f"{row['split']}/seconds/seed{row['seed']}"] == np.float32(row["seconds"])
        for layer, energy in enumerate(row.get("state_energy", [])):
            name = f"train/state_energy/layer{layer}/seed{row['seed']}"
            assert found[row["step"], name] == np.float32(energy)


def test_a_service_that_is_not_there_is_said_while_the_run_goes_on(workdir, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_INIT_TIMEOUT", "1")
    lines = []
    with Beside(Mirrors.WANDB, workdir, lines.append) as beside:
        wait_for(beside.running["wandb"].has_ended)
        beside.check()
        assert len(lines) == 1
    (line,) = lines
    assert "CommError" in line
    assert line.count("\n") == 0


def test_a_folder_that_cannot_be_written_is_said(workdir):
    (workdir / "tensorboard").write_text("")
    (line,) = mirrored(workdir, Mirrors.TENSORBOARD)
    assert line.startswith("the tensorboard mirror is gone (")
    assert "File exists" in line


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"config": {"seeds": [0', "JSONDecodeError: "),
        ("[" * 2_000, "ValueError: more than 32 lists and objects in one another"),
        ('{"config": {"seeds": [0]}, "sha256": "0"}', "ValueError: it was altered after it was written"),
        ('{"config": {}}', "KeyError: 'seeds'"),
        ('{"config": {"seeds": 2}}', "TypeError: seeds is 2"),
    ],
)
def test_a_damaged_config_json_is_said_with_the_file(workdir, content, why):
    (workdir / "config.json").write_text(content)
    (line,) = mirrored(workdir, Mirrors.TENSORBOARD)
    assert f"(ConfigError: {workdir / 'config.json'} is damaged ({why}" in line
    assert line.endswith(": put back a copy), the run is not: the same command makes it anew")


def uploaded(folder, *more):
    return call("train.py", "--sync", f"--workdir={folder}", *more)


def test_sync_uploads_what_the_service_has_not_from_the_record_alone(workdir, monkeypatch):
    record = {path.name: path.read_bytes() for path in workdir.iterdir()}
    with service() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_MODE", "offline")
        ended = uploaded(workdir.parent)
        assert (ended.code, ended.out) == (0, f"{workdir} is uploaded\n"), ended
        rows = {row["_step"]: with_nan(row) for row in server.history[run_id(workdir)]}
        assert list(rows) == list(range(5))
        for step, row in rows.items():
            assert_same(row, names_of(step))
        sent = json.dumps(server.history)
        assert uploaded(workdir).code == 0
        assert json.dumps(server.history) == sent, "nothing twice"
        write(workdir, [5, 6], after=4)
        assert uploaded(workdir).code == 0
        assert [row["_step"] for row in server.history[run_id(workdir)]] == list(range(7))
    write(workdir, [], after=4)
    assert {path.name: path.read_bytes() for path in workdir.iterdir() if path.is_file()} == record
    assert [path.name for path in (workdir / "wandb").iterdir()] == ["run_id"]


def test_sync_refuses_when_the_service_is_not_there_or_there_is_no_run(workdir, monkeypatch):
    monkeypatch.setenv("WANDB_INIT_TIMEOUT", "1")
    ended = uploaded(workdir)
    assert_refused(ended, f"--sync: {workdir} was not uploaded (CommError: ")
    assert "the same command goes on" in ended.err
    shutil.rmtree(workdir)
    assert_refused(uploaded(workdir), f"--sync: there is no run in {workdir}")


IMPATIENT = """
import pathlib, sys
from training import mirroring
mirroring.TRIES = 1
sys.exit(mirroring.main("upload", *map(pathlib.Path, sys.argv[1:]), 60))
"""


def test_rows_that_the_service_silently_refuses_are_no_success(workdir, tmp_path, monkeypatch):
    with service() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        server.refuses = 403
        command = [sys.executable, "-c", IMPATIENT, workdir, tmp_path]
        ended = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "RuntimeError: the service has no rows of step 4, its last is -1"
