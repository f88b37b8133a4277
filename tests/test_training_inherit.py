"""Runs that start from the weights of another one: what they take, what they record, what they refuse."""

import json
import shutil

import numpy as np
import pytest
from commands import assert_refused, call
from tiny import assert_same_bits

from tests.smoke_run import smoke_config, train_quietly
from training import checkpoint
from training.errors import ConfigError, PreemptedError
from training.loading import load_run
from training.loop import train
from training.results import score
from training.writers import read_metrics

BATCH = {"model.norm": "batch"}


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """A run of seeds 0 and 1 with batch norm."""
    return train_quietly(smoke_config("rotrnn", BATCH), tmp_path_factory.mktemp("old") / "run")


def further(old, **changes):
    """The config of a run from its weights, at another rate."""
    return smoke_config("rotrnn", BATCH | {"init_from": str(old), "optim.lr": 0.01} | changes)


@pytest.fixture(scope="module")
def new(old, tmp_path_factory):
    """Such a run."""
    return train_quietly(further(old), tmp_path_factory.mktemp("new") / "run")


def rows(folder, split, step):
    found = [row for row in read_metrics(folder / "metrics.jsonl") if (row["split"], row["step"]) == (split, step)]
    return {row["seed"]: row for row in found}


def stopped_at(config, workdir, step):
    """Trains until a step, saves and stops, as a scheduler asks for."""
    asked = iter(range(1, 100))
    with pytest.raises(PreemptedError):
        train(config, workdir, workdir.parent, lambda: next(asked) == step)


def leaves(folder, step):
    restored = checkpoint.restore(folder / "checkpoints", None, step)
    assert restored is not None
    return restored.tree


def test_each_seed_starts_from_the_best_of_its_own(old, tmp_path):
    stopped_at(further(old), tmp_path / "run", 1)
    for seed in (0, 1):
        there, here = load_run(old, seed), load_run(tmp_path / "run", seed, 0)
        assert_same_bits((here.params, here.stats), (there.params, there.stats))
    start = leaves(tmp_path / "run", 0)
    counts = [leaf for path, leaf in start.items() if path.startswith("opt/") and path.endswith("count")]
    assert counts
    assert not np.any(counts)
    assert not any(np.any(leaf) for path, leaf in start.items() if "/mu/" in path or "/nu/" in path)


def test_it_scores_at_first_what_the_old_one_scored_best(old, new):
    for seed, row in rows(new, "val", 0).items():
        before = rows(old, "val", load_run(old, seed).step)[seed]
        assert (row["accuracy"], row["loss"]) == (before["accuracy"], before["loss"])


def test_energies_are_measured_against_the_start(old, new):
    """At step 0 nothing has moved; gains over both runs multiply."""
    assert any(row["state_gain_max"][0] > 1.001 for row in rows(old, "train", 4).values()) is False  # xi holds it
    for row in rows(new, "train", 0).values():
        assert row["state_energy_drift"] == [0.0]
        assert row["state_gain"] == pytest.approx([1.0], abs=1e-6)


def test_config_and_results_say_what_it_started_from(old, new):
    facts = json.loads((new / "config.json").read_text())["init_from"]
    assert (facts["workdir"], facts["checkpoint"]) == (str(old), "best")
    assert facts["seeds"].keys() == {"0", "1"}
    for seed in (0, 1):
        assert facts["seeds"][str(seed)]["seed"] == seed
        assert facts["seeds"][str(seed)]["step"] == load_run(old, seed).step
    there = json.loads((old / "config.json").read_text())
    assert (facts["data_sha256"], facts["git_commit"]) == (there["data_sha256"], there["git_commit"])
    assert len({facts["config_sha256"], *(values["sha256"] for values in facts["seeds"].values())}) == 3
    assert score(new, new.parent, "val", "last")["init_from"] == facts
    assert "init_from" not in score(old, old.parent, "val", "last")
    log = (new / "train.log").read_text()
    assert f"starts from {old}, best checkpoint: seed 0 from 0 at step " in log
    assert "differs from it in optim.lr (0.001 there, 0.01 here)" in log


def test_it_goes_on_when_the_old_run_is_gone(old, new, tmp_path):
    """Bit for bit like the one that was left alone."""
    there = shutil.copytree(old, tmp_path / "old")
    config = further(there)
    for step in (1, 2):
        stopped_at(config, tmp_path / "run", step)
        shutil.rmtree(there, ignore_errors=True)
    train_quietly(config, tmp_path / "run")
    assert_same_bits(leaves(tmp_path / "run", 4), leaves(new, 4))
    kept = [
        [{key: value for key, value in row.items() if key != "seconds"} for row in read_metrics(path / "metrics.jsonl")]
        for path in (tmp_path / "run", new)
    ]
    assert kept[0] == kept[1]


def test_before_its_first_checkpoint_it_needs_the_same_weights_again(old, new, tmp_path):
    there, run = shutil.copytree(old, tmp_path / "old"), tmp_path / "run"
    stopped_at(further(there), run, 1)
    shutil.rmtree(run / "checkpoints")  # as if it had been killed while it compiled
    record = json.loads((there / "config.json").read_text())
    (there / "config.json").write_text(json.dumps(record | {"git_commit": "another"}))
    with pytest.raises(ConfigError, match=f"^{there} is not what {run} was begun from: put that back, or choose"):
        train(further(there), run, tmp_path)
    (there / "config.json").write_text(json.dumps(record))
    train_quietly(further(there), run)
    assert_same_bits(leaves(run, 4), leaves(new, 4))


def test_one_old_seed_starts_all_and_of_several_each_takes_its_own(old, tmp_path):
    one = train_quietly(smoke_config("rotrnn", BATCH | {"seeds": (5,), "train.steps": 2}), tmp_path / "one")
    train_quietly(further(one, seeds=(0, 7), **{"train.steps": 2}), tmp_path / "all")
    for seed in (0, 7):
        assert_same_bits(load_run(tmp_path / "all", seed, 0).params, load_run(one).params)
    stopped_at(further(old, seeds=(1,), init_checkpoint="2"), tmp_path / "second", 1)
    assert_same_bits(load_run(tmp_path / "second", 1, 0).params, load_run(old, 1, 2).params)
    facts = json.loads((tmp_path / "second" / "config.json").read_text())["init_from"]["seeds"]
    assert [(seed, values["seed"], values["step"]) for seed, values in facts.items()] == [("1", 1, 2)]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"model.width": 8}, "{old} holds another model: blocks/0/layer/B is (16, 16) there, (16, 8) here"),
        ({"model.depth": 2}, "{old} holds another model: blocks/1/layer/B is missing there, (16, 16) here"),
        ({"model.norm": "layer"}, "{old} holds another model: blocks/0/norm/mean is (16) there, missing here"),
        ({"seeds": (0, 3)}, "{old} has no seed 3: choose from 0, 1"),
        ({"init_checkpoint": "top"}, "config.init_checkpoint=top: expected best, last or a step"),
        ({"init_checkpoint": "3"}, "checkpoint 3 in {old}/checkpoints does not exist; intact: 2, 4"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(old, tmp_path, changes, line):
    with pytest.raises(ConfigError) as refused:
        train(further(old, **changes), tmp_path / "run", tmp_path)
    assert str(refused.value) == line.format(old=old)
    assert list(tmp_path.iterdir()) == []


def test_the_command_line(old, tmp_path):
    config = "--config=configs/lra.py:layer=rotrnn,depth=1,direction=forward,smoke"
    ended = call("train.py", config, f"--workdir={tmp_path / 'run'}", "--config.init_from=nowhere")
    assert_refused(ended, "nowhere/config.json: No such file or directory: is nowhere the folder of a run?")
    ended = call("train.py", config, f"--workdir={old}", f"--config.init_from={old}")
    assert_refused(ended, "of another config: init_from ('' there, ")


def test_a_run_from_a_run_from_a_run_says_so(new, tmp_path):
    train_quietly(further(new, **{"train.steps": 2}), tmp_path / "run")
    facts = json.loads((tmp_path / "run" / "config.json").read_text())["init_from"]
    assert facts["workdir"] == str(new)
    assert facts["init_from"] == json.loads((new / "config.json").read_text())["init_from"]
