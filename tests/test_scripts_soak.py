"""A leak is seen; a short soak is a real run."""

import contextlib
import runpy
import signal
import sys

import pytest

from scripts import soak
from scripts.soak import Sample, growth
from training.errors import ConfigError


def samples(leak=0, file=0, slower=0.0):
    """Hundred samples; the first ones, of compiling, do not count."""
    flat = [Sample(10**9, 50, 9.0)] * 20
    return flat + [Sample(10**8 + leak * i, 20 + file * i // 40, 1e-3 * (1 + slower * i)) for i in range(80)]


@pytest.mark.parametrize(
    ("grown", "ended"),
    [
        ({}, 0),
        ({"leak": 10**4}, 0),
        ({"leak": 10**5}, 1),
        ({"file": 1}, 1),
        ({"slower": 0.002}, 0),
        ({"slower": 0.01}, 1),
    ],
)
def test_growth_beyond_a_limit_is_seen(monkeypatch, capsys, grown, ended):
    monkeypatch.setattr(soak, "soak", lambda steps, workdir: samples(**grown))
    with pytest.raises(SystemExit, match="1") if ended else contextlib.nullcontext():
        soak.main(["", "--steps=100"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["memory", "files", "seconds"]
    assert ("1.0000" in lines[0], "1.0000" in lines[1]) == ("leak" not in grown, "file" not in grown)


def test_a_soak_without_samples_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        soak.main(["", "--steps=99"])
    assert capsys.readouterr().err == "error: --steps=99: at least 100 are needed, a sample each (--help explains)\n"


def test_what_training_refuses_is_one_line(monkeypatch, capsys):
    def refuse(*_):
        raise ConfigError("no space is left")

    monkeypatch.setattr("training.loop.train", refuse)
    monkeypatch.setattr(sys, "argv", ["soak", "--steps=100"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.delitem(sys.modules, "scripts.soak")
    with pytest.raises(SystemExit, match="2"):
        runpy.run_module("scripts.soak", run_name="__main__")
    assert capsys.readouterr().err == "error: no space is left\n"


@pytest.mark.parametrize("steps", [100, 199, 1_050])
def test_a_sample_is_taken_at_every_hundredth(tmp_path, monkeypatch, steps):
    def train(config, workdir, data_dir, to_stop):
        for done[0] in range(config.train.steps):  # after its last step a run is not asked
            assert not to_stop()

    done, seen = [0], []
    monkeypatch.setattr(soak, "train", train)
    monkeypatch.setattr(soak, "_resident", lambda: seen.append(done[0]) or 1)
    assert len(soak.soak(steps, tmp_path / "run")) == 99
    assert seen == [-(-hundredth * steps // 100) for hundredth in range(1, 100)]


def test_a_short_soak(tmp_path, monkeypatch):
    monkeypatch.setattr(soak, "EVENTS", 4)
    found = soak.soak(100, tmp_path / "run")
    assert len(found) == 99
    assert all(sample.memory > 10**7 and sample.files > 3 and sample.seconds > 0 for sample in found)
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == ["100", "75"]
    assert growth(found)["files"] <= 1
