"""Training on meshes of 8 devices against one device; configs and sizes that do not fit."""

import contextlib
import json
import os
import shutil
from typing import Any, cast

import jax
import numpy as np
import pytest
from commands import TINY, assert_refused, call, on_devices

from tests import meshes
from tests.smoke_run import smoke_config, train_quietly
from tests.tiny import tiny_config
from training import checkpoint
from training.config import MeshConfig
from training.errors import ConfigError
from training.mesh import make_mesh, place_batch, refuse_uneven, share_of
from training.writers import read_metrics


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What the script prints, one process for all cases."""
    return json.loads(on_devices(8, "meshes.py", tmp_path_factory.mktemp("runs")).splitlines()[-1])


@pytest.mark.parametrize("layer", meshes.MODELS)
def test_time_and_records_on_six_devices_give_what_one_gives(found, layer):
    """In float32; and the step gathers nothing of the size of an activation, (B/2) T D."""
    difference, gathered = found["split"][layer]
    assert difference < 2e-4
    assert gathered < meshes.BATCH // 2 * meshes.TASK.length * 16


if meshes.ALL:

    def test_seeds_on_two_devices_give_what_one_gives(found):
        """Not the bits: a program of several devices is compiled otherwise. They exchange nothing."""
        difference, exchanges = found["seeds"]
        assert difference < 2e-4
        assert exchanges == 0


def test_a_run_goes_on_with_another_mesh(found):
    """8 steps with time and seeds split, with one device between, and to the end again; against one device."""
    (changing, still), log = found["resumed"]["rows"], found["resumed"]["log"]
    assert log.count("going on from step") == 2
    assert [row[:3] for row in changing] == [row[:3] for row in still]
    for (*_, loss), (*_, expected) in zip(changing, still, strict=True):
        assert (loss is None) == (expected is None)
        assert loss is None or loss == pytest.approx(expected, rel=1e-4)


@contextlib.contextmanager
def one_core():
    """Processes that are started meanwhile may run on one core only."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(own)})
    try:
        yield len(own)
    finally:
        os.sched_setaffinity(0, own)


def losses(workdir):
    """(step, seed, split) -> loss."""
    return {(r["step"], r["seed"], r["split"]): r["loss"] for r in read_metrics(workdir / "metrics.jsonl")}


def test_a_run_goes_on_where_there_are_eight_devices_and_one_core_and_comes_back(trained, tmp_path):
    """8 steps here, 2 in a process with a record of the batch on each device, and 2 here again: said, and equal to
    rounding from there on."""
    workdir = shutil.copytree(trained, tmp_path / "run")
    shutil.rmtree(workdir / "checkpoints" / "12")
    with one_core() as cores:
        on_devices(8, "go_on.py", workdir, 2)
    assert checkpoint.steps(workdir / "checkpoints") == [8, 10]
    said = (workdir / "train.log").read_text()
    assert said.count("warning: begun on 1 devices, going on with 8: the last bits will differ") == 1
    assert said.count(f"warning: begun on {cores} cores, going on with 1: the last bits will differ") == (cores > 1)
    train_quietly(smoke_config(), workdir)
    found, expected = losses(workdir), losses(trained)
    assert list(found) == list(expected)
    for place, loss in expected.items():
        if place[0] <= 8:
            assert found[place] == loss
        else:
            assert found[place] == pytest.approx(loss, rel=1e-4)


class Device:
    """Of another process."""

    def __init__(self, process_index):
        self.process_index = process_index


def test_a_process_draws_what_lies_on_its_devices(monkeypatch):
    """Four processes with two devices each: two share the seeds, two the records, both devices of each the time."""
    devices = np.array([Device(i // 2) for i in range(8)], object).reshape(2, 2, 2)
    mesh = type("Mesh", (), {"devices": devices})
    for process, (seed, record) in enumerate([(0, 0), (0, 4), (2, 0), (2, 4)]):
        monkeypatch.setattr(jax, "process_index", lambda process=process: process)
        assert share_of(cast(Any, mesh), 4, 8) == (slice(seed, seed + 2), slice(record, record + 4), (4, 8))


def spec_of(values):
    assert isinstance(values.sharding, jax.sharding.NamedSharding)
    return tuple(values.sharding.spec)


def test_the_axes_of_a_batch():
    """Steps are those of inputs and of labels that every step has, behind the second axis of a pair."""
    mesh = make_mesh(4, "batch")
    shapes = {"inputs": (3, 4, 2, 6, 5), "lengths": (3, 4, 2), "labels": (3, 4)}
    share = share_of(mesh, 3, 4)
    placed = place_batch(mesh, {name: np.zeros(shape) for name, shape in shapes.items()}, share, seeds=True)
    specs = {name: spec_of(values) for name, values in placed.items()}
    assert specs["inputs"] == ("seeds", "batch", None, "sequence", None)
    assert specs["labels"] == ("seeds", "batch")
    stepwise = {"inputs": np.zeros((4, 6)), "lengths": np.zeros(4), "labels": np.zeros((4, 6)), "weight": np.zeros(4)}
    placed = place_batch(mesh, stepwise, share, seeds=False)
    assert spec_of(placed["labels"]) == spec_of(placed["inputs"]) == ("batch", "sequence")
    assert spec_of(placed["weight"]) == ("batch",)


@pytest.mark.parametrize(
    ("config", "line"),
    [
        (MeshConfig(seeds=3), r"^mesh.seeds=3 x mesh.batch=0 x mesh.sequence=1 does not fit 8 device\(s\)"),
        (MeshConfig(batch=4, sequence=4), r"^mesh.seeds=1 x mesh.batch=4 x mesh.sequence=4 does not fit 8 device\(s\)"),
        (MeshConfig(sequence=16), "does not fit"),
        (MeshConfig(seeds=2), r"^batch=9 does not divide among 4 devices: choose a multiple of 4$"),
    ],
)
def test_a_mesh_that_does_not_fit_the_devices_is_refused(monkeypatch, config, line):
    monkeypatch.setattr(jax, "devices", lambda: [None] * 8)
    with pytest.raises(ConfigError, match=line):
        make_mesh(9, "batch", config)


def test_steps_that_do_not_divide_are_refused():
    refuse_uneven(12, MeshConfig(sequence=6))
    with pytest.raises(ConfigError, match=r"^mesh.sequence=5 does not divide 12 steps: choose 4$"):
        refuse_uneven(12, MeshConfig(sequence=5))


@pytest.mark.parametrize(
    ("layer", "changes", "line"),
    [
        ("lru", {"mesh.seeds": 2, "seeds": (0, 1, 2)}, "mesh.seeds=2 does not divide 3 seeds: choose a divisor"),
        ("lru", {"mesh.sequence": 0}, "mesh: sequence=0 must be at least 1"),
        ("lru", {"mesh.batch": -1}, "mesh: batch=-1 must be at least 0"),
        (
            "attention",
            {"mesh.sequence": 2},
            "mesh.sequence=2: attention needs all steps on one device: leave it at 1, or choose from rotrnn, lru, s5",
        ),
    ],
)
def test_configs_that_make_no_sense_are_refused(layer, changes, line):
    with pytest.raises(ConfigError, match=line):
        tiny_config(layer, changes)


def test_the_command_says_what_does_not_fit(tmp_path):
    ended = call("train.py", TINY, f"--workdir={tmp_path / 'run'}", "--config.mesh.seeds=2")
    assert_refused(ended, "mesh.seeds=2 x mesh.batch=0 x mesh.sequence=1 does not fit 1 device(s)")
    assert list(tmp_path.iterdir()) == []
