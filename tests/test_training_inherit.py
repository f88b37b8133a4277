"""Runs that start from the weights of another one: what they take, what they record, what they refuse."""

import json
import shutil

import jax
import numpy as np
import pytest
from commands import assert_refused, call
from smoke_run import smoke_config, train_quietly
from tiny import assert_same_bits

from data.registry import task_spec
from data.sealed import sealed
from training import checkpoint
from training.errors import ConfigError, PreemptedError
from training.inherit import inherit
from training.loading import load_run
from training.loop import train
from training.results import score
from training.state import make_program
from training.writers import read_metrics


def further(old, **changes):
    """The config of a run from its weights, at another rate."""
    return smoke_config({"init_from": str(old), "optim.lr": 0.01} | changes)


@pytest.fixture(scope="module")
def stopped(trained, tmp_path_factory):
    """Such a run, stopped after its first step; what it started from is gone since."""
    folder = tmp_path_factory.mktemp("stopped")
    old = shutil.copytree(trained, folder / "old")
    asked = iter([False, True])  # before the first step, and after it
    with pytest.raises(PreemptedError):
        train(further(old), folder / "run", folder, lambda: next(asked))
    shutil.rmtree(old)
    return folder / "run"


@pytest.fixture(scope="module")
def new(stopped, tmp_path_factory):
    """The same run, gone on with to the end."""
    folder = shutil.copytree(stopped, tmp_path_factory.mktemp("new") / "run")
    return train_quietly(further(stopped.parent / "old"), folder)


def taken(config, workdir, begun=None):
    """What a run of a config starts from."""
    found = inherit(make_program(config, task_spec(config.data.request)), workdir, begun)
    assert found is not None
    return found


def leaves(folder, step):
    restored = checkpoint.restore(folder / "checkpoints", None, step)
    assert restored is not None
    return restored.tree


def rows(folder, split, step):
    found = [row for row in read_metrics(folder / "metrics.jsonl") if (row["split"], row["step"]) == (split, step)]
    return {row["seed"]: row for row in found}


def record_of(folder):
    return json.loads((folder / "config.json").read_text())


def of_seed(place, tree):
    return jax.tree.map(lambda leaf: leaf[place], tree)


def test_each_seed_starts_from_the_best_of_its_own_and_with_a_new_optimiser(trained, stopped):
    for seed in (0, 1):
        there, here = load_run(trained, seed), load_run(stopped, seed, 0)
        assert_same_bits((here.params, here.stats), (there.params, there.stats))
    start = leaves(stopped, 0)
    moments = [leaf for path, leaf in start.items() if path.startswith("opt/")]
    assert len(moments) > 10
    assert not any(np.any(leaf) for leaf in moments)


def test_it_scores_at_first_what_the_old_one_scored_best(trained, new):
    for seed, row in rows(new, "val", 0).items():
        before = rows(trained, "val", load_run(trained, seed).step)[seed]
        assert (row["accuracy"], row["loss"]) == (before["accuracy"], before["loss"])


def test_energies_are_measured_against_the_start(trained, new):
    """The gains of the old run have moved; at step 0 of the new one nothing has."""
    assert all(abs(row["state_gain"][0] - 1) > 1e-5 for row in rows(trained, "train", 12).values())
    for row in rows(new, "train", 0).values():
        assert row["state_energy_drift"] == [0.0]
        assert row["state_gain"] == pytest.approx([1.0], abs=1e-7)
    assert all(abs(row["state_gain"][0] - 1) > 1e-5 for row in rows(new, "train", 12).values())


def test_config_and_results_say_what_it_started_from(trained, stopped, new):
    facts, there = record_of(new)["init_from"], record_of(trained)
    old = stopped.parent / "old"
    assert (facts["workdir"], facts["checkpoint"]) == (str(old), "best")
    assert (facts["data_sha256"], facts["git_commit"]) == (there["data_sha256"], there["git_commit"])
    assert facts["seeds"].keys() == {"0", "1"}
    for seed in (0, 1):
        assert facts["seeds"][str(seed)]["seed"] == seed
        assert facts["seeds"][str(seed)]["step"] == load_run(trained, seed).step
    hashes = {facts["config_sha256"], *(values["sha256"] for values in facts["seeds"].values())}
    assert {len(sha256) for sha256 in hashes} == {64}
    assert len(hashes) == 3
    assert score(new, new.parent, "val", "last")["init_from"] == facts
    log = (new / "train.log").read_text()
    assert f"starts from {old}, best checkpoint: seed 0 from 0 at step " in log
    assert "differs from it in optim.lr (0.001 there, 0.01 here)" in log


def test_it_goes_on_when_the_old_run_is_gone(stopped, new):
    """From its checkpoint: step 0 is not done again."""
    assert checkpoint.steps(stopped / "checkpoints") == [0, 1]
    assert checkpoint.steps(new / "checkpoints") == [8, 12]
    found = [(row["step"], row["split"], row["seed"]) for row in read_metrics(new / "metrics.jsonl")]
    assert len(found) == len(set(found))
    assert {step for step, split, _ in found if split == "train"} == set(range(13))


def test_before_its_first_checkpoint_it_needs_the_same_weights_again(trained, new, tmp_path):
    begun, config = record_of(new), further(trained)
    begun["init_from"]["workdir"] = str(trained)
    assert taken(config, tmp_path, begun).facts == begun["init_from"]
    assert inherit(make_program(config, task_spec(config.data.request)), new, begun) is None  # it has one
    other = shutil.copytree(trained, tmp_path / "old")
    (other / "config.json").write_text(json.dumps(sealed(record_of(trained) | {"git_commit": "another"})))
    begun["init_from"]["workdir"] = str(other)
    with pytest.raises(ConfigError) as refused:
        taken(further(other), tmp_path, begun)
    line = f"{other} is not what {tmp_path} was begun from: put that back, or choose another --workdir"
    assert str(refused.value) == line


def test_one_old_seed_starts_all_and_of_several_each_takes_its_own(trained, tmp_path):
    one, record = tmp_path / "one", record_of(trained)
    checkpoint.save(one / "checkpoints", 12, {path: leaf[1:] for path, leaf in leaves(trained, 12).items()}, {})
    record["config"]["seeds"] = [1]
    (one / "config.json").write_text(json.dumps(sealed(record)))
    start = taken(further(one, seeds=(0, 7)), tmp_path)
    for place in (0, 1):
        assert_same_bits(of_seed(place, start.params), load_run(trained, 1).params)
    start = taken(further(trained, seeds=(1,), init_checkpoint="8"), tmp_path)
    assert_same_bits(of_seed(0, start.params), load_run(trained, 1, 8).params)
    assert [(seed, values["seed"], values["step"]) for seed, values in start.facts["seeds"].items()] == [("1", 1, 8)]


def test_a_run_from_a_run_from_a_run_says_so(new, tmp_path):
    facts = taken(further(new), tmp_path).facts
    assert facts["workdir"] == str(new)
    assert facts["init_from"] == record_of(new)["init_from"]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"model.width": 8}, "{old} holds another model: blocks/0/layer/B_im is (16, 16) there, (16, 8) here"),
        ({"model.depth": 2}, "{old} holds another model: blocks/1/layer/B_im is missing there, (16, 16) here"),
        ({"model.norm": "layer"}, "{old} holds another model: blocks/0/norm/mean is (16) there, missing here"),
        ({"seeds": (0, 3)}, "{old} has no seed 3: choose from 0, 1"),
        ({"init_checkpoint": "top"}, "config.init_checkpoint=top: expected best, last or a step"),
        ({"init_checkpoint": "3"}, "checkpoint 3 in {old}/checkpoints does not exist; intact: 8, 12"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(trained, tmp_path, changes, line):
    with pytest.raises(ConfigError) as refused:
        train(further(trained, **changes), tmp_path / "run", tmp_path)
    assert str(refused.value) == line.format(old=trained)
    assert list(tmp_path.iterdir()) == []


def test_the_command_line(trained, tmp_path):
    config = "--config=configs/lra.py:layer=lru,depth=1,direction=forward,smoke"
    ended = call("train.py", config, f"--workdir={tmp_path / 'run'}", "--config.init_from=nowhere")
    assert_refused(ended, "nowhere/config.json: No such file or directory: is nowhere the folder of a run?")
    ended = call("train.py", config, f"--workdir={trained}", f"--config.init_from={trained}")
    assert_refused(ended, "of another config: init_from ('' there, ")
