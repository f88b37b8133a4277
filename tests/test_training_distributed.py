"""Two processes that train as one: the same losses, one folder, one writer, one refusal."""

import json
import os
import socket

import jax
import numpy as np
import pytest
from commands import PATIENT, TINY, Ended, assert_refused, call, run, start

from training.distributed import agreed, copied, together, told
from training.errors import ConfigError
from training.writers import read_metrics


def two_processes(workdirs, *arguments):
    """How train.py ended in each of two processes on this machine."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    processes = [
        start("train.py", TINY, f"--workdir={workdir}", *arguments, f"--coordinator=localhost:{port}", "--processes=2",
              f"--process={i}")
        for i, workdir in enumerate(workdirs)
    ]  # fmt: skip
    ended = []
    for process in processes:
        out, err = process.communicate(timeout=240)
        ended.append(Ended(process.returncode, out, err))
    return ended


def losses(workdir):
    """(step, seed, split) -> loss."""
    return {(r["step"], r["seed"], r["split"]): r["loss"] for r in read_metrics(workdir / "metrics.jsonl")}


def assert_close(found, expected, tolerance):
    assert found.keys() == expected.keys()
    for key, loss in expected.items():
        assert (found[key] is None) == (loss is None)
        assert loss is None or found[key] == pytest.approx(loss, rel=tolerance), key


def test_two_processes_train_as_one(tmp_path, undisturbed):
    (tmp_path / "other").mkdir()
    first, second = two_processes((tmp_path / "run", tmp_path / "other"), "--config.mirrors=tensorboard")
    assert (first.code, second.code) == (0, 0), (first, second)
    assert list((tmp_path / "other").iterdir()) == []
    assert len(list((tmp_path / "run" / "tensorboard").glob("events*"))) == 1
    assert "step" not in second.out
    assert "step 12: validation accuracy" in first.out
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == ["12", "8"]
    record = json.loads((tmp_path / "run" / "config.json").read_text())
    assert len(record["devices"]) == 2

    # One device sums a batch in another order.
    assert_close(losses(tmp_path / "run"), losses(undisturbed), 1e-4)
    # One of the processes alone goes on with what both saved.
    again = call("train.py", TINY, f"--workdir={tmp_path / 'run'}")
    assert again.code == 0
    assert "finished already: 12 steps" in again.out


@pytest.mark.thorough
def test_two_processes_give_the_digits_of_two_devices_of_one(tmp_path, monkeypatch):
    """They run the same program."""
    (tmp_path / "other").mkdir()
    ended = two_processes((tmp_path / "run", tmp_path / "other"))
    assert [process.code for process in ended] == [0, 0]
    two = f"--xla_force_host_platform_device_count=2 {PATIENT}"
    monkeypatch.setenv("XLA_FLAGS", f"{os.environ.get('XLA_FLAGS', '')} {two}")
    assert run("train.py", TINY, f"--workdir={tmp_path / 'two'}").code == 0
    assert_close(losses(tmp_path / "run"), losses(tmp_path / "two"), 1e-6)


def test_what_one_process_refuses_all_refuse(monkeypatch):
    with together():
        pass
    with pytest.raises(ConfigError, match=r"^mine$"), together():
        raise ConfigError("mine")
    gather = "jax.experimental.multihost_utils.process_allgather"
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    monkeypatch.setattr(gather, lambda mine: np.array([*mine, False, True])[:, None])
    with pytest.raises(ConfigError, match=r"^process 2 of 3 has refused: its line says why$"), together():
        pass


def test_one_process_tells_itself():
    facts = [4, {"repairs": ["ä"], "stopped": []}, None]
    assert told(facts) == facts
    assert told(None) is None
    assert copied({"a": np.arange(3)})["a"].tolist() == [0, 1, 2]
    assert agreed(lambda: True)() is True


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--coordinator=here:1"], "--processes and --process is missing"),
        (["--coordinator=here:1", "--processes=2", "--process=2"], "--process=2 of --processes=2: they are counted"),
        (["--distributed"], "nothing here says how many processes there are"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(tmp_path, monkeypatch, flags, line):
    def refuse(*_):
        raise ValueError("coordinator_address should be defined.")

    monkeypatch.setattr("jax.distributed.initialize", refuse)
    assert_refused(call("train.py", TINY, f"--workdir={tmp_path / 'run'}", *flags), line)
    assert list(tmp_path.iterdir()) == []
