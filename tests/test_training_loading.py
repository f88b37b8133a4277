"""A run opened again from its folder: seeds, checkpoints, predictions that add up, older folders."""

import dataclasses
import json
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
from tests.smoke_run import smoke_config, train_quietly

from configs import lra, probes, shakespeare_char
from data.errors import DataError
from data.prepared import fixed_task
from data.spec import NO_LABEL, DataRequest
from training import checkpoint
from training.errors import ConfigError
from training.loading import load_run, opened
from training.loop import load_data
from training.predictions import predict
from training.results import score
from training.weights import read_saved


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of two seeds with batch norm."""
    return train_quietly(smoke_config("lru", {"model.norm": "batch"}), tmp_path_factory.mktemp("loading") / "run")


@pytest.fixture
def copy(folder, tmp_path):
    """A copy of that run."""
    return shutil.copytree(folder, tmp_path / "run")


@pytest.mark.parametrize(("which", "step", "group"), [("best", None, "best/"), ("last", 4, ""), (2, 2, "")])
def test_the_arrays_are_those_of_the_seed_in_the_checkpoint(folder, which, step, group):
    restored = checkpoint.restore(folder / "checkpoints", None, None if which in ("best", "last") else which)
    assert restored is not None
    leaves = restored.tree
    for place, seed in enumerate((0, 1)):
        run = load_run(folder, seed, which)
        assert run.step == (leaves["best/step"][place] if step is None else step)
        found = {f"params/{path}": leaf for path, leaf in checkpoint.by_path(run.params).items()}
        found |= {f"stats/{path}": leaf for path, leaf in checkpoint.by_path(run.stats).items()}
        saved = {path.removeprefix(group): leaf for path, leaf in leaves.items() if path.startswith(group)}
        wanted = {path: leaf for path, leaf in saved.items() if path.startswith(("params/", "stats/"))}
        assert found.keys() == wanted.keys()
        assert all(np.array_equal(array, wanted[path][place]) for path, array in found.items())
        assert np.array_equal(run.model.blocks[0].layer.nu_log[...], run.params["blocks"][0]["layer"]["nu_log"])


def test_padding_changes_no_logit_and_no_lengths_mean_all_steps(folder):
    run = load_run(folder)
    whole = run.logits([[1, 2, 3, 4]])
    assert np.allclose(run.logits([[1, 2, 3, 4, 9, 9]], [4]), whole, atol=1e-5)
    assert not np.allclose(run.logits([[1, 2, 3, 4, 9, 9]]), whole, atol=1e-3)


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"seed": 7}, "{run} has no seed 7: choose from 0, 1"),
        ({"checkpoint": "newest"}, "checkpoint=newest: expected best, last or a step"),
        ({"checkpoint": 3}, "checkpoint 3 in {run}/checkpoints does not exist; intact: 2, 4"),
        ({"workdir": "nowhere"}, "nowhere/config.json: No such file or directory: is nowhere the folder of a run?"),
    ],
)
def test_what_is_not_there_is_refused(folder, asked, line):
    with pytest.raises(ConfigError) as refused:
        load_run(**{"workdir": folder} | asked)
    assert str(refused.value) == line.format(run=folder)


def test_a_checkpoint_of_another_model_is_refused(copy):
    record = json.loads((copy / "config.json").read_text())
    record["config"]["model"]["width"] = 8
    (copy / "config.json").write_text(json.dumps(record))
    with pytest.raises(ConfigError, match=r"run holds another model: blocks/0/layer/B_im is \(16, 16\) there, \(16, 8\)"):
        load_run(copy)


def test_a_seed_without_a_best_or_that_broke_later_is_said(folder, tmp_path):
    saved = read_saved(folder, "best")
    odd = {"best/step": jnp.array([-1, 2]), "alive": jnp.array([True, False])}
    saved = dataclasses.replace(saved, leaves={**saved.leaves, **odd})
    assert opened(saved, 0, tmp_path).note == "not evaluated yet: initial parameters"
    assert opened(saved, 1, tmp_path).note == "not finite later on"
    assert load_run(folder).note == ""


def test_a_folder_is_opened_without_its_data(copy, tmp_path):
    record = json.loads((copy / "config.json").read_text())
    record["config"]["data"]["smoke"] = False
    (copy / "config.json").write_text(json.dumps(record))
    run = load_run(copy, data_dir=tmp_path / "nowhere")
    assert run.logits([[1, 2]]).shape == (1, 10)
    with pytest.raises(DataError, match="no data in"):
        predict(run, data_dir=tmp_path / "nowhere")
    assert fixed_task(DataRequest("shakespeare_char")) is None  # its vocabulary
    assert fixed_task(DataRequest("sc35")) is None  # its statistics


def text():
    config = shakespeare_char.get_config("model=small_lru,seeds=0:2,smoke")
    config.model.sublayers = ("lru", "mlp")
    return config


KINDS = {
    "one label": lambda: smoke_config("rotrnn"),
    "a pair": lambda: lra.get_config("task=retrieval,layer=lru,depth=1,seeds=0:2,smoke"),
    "some steps": lambda: probes.get_config("task=parity,layer=lru,seeds=0:2,smoke"),
    "a text": text,
}


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_add_up_to_the_results(tmp_path, kind):
    config = KINDS[kind]()
    workdir = train_quietly(config, tmp_path / "run")
    recorded = score(workdir, tmp_path, "val", "best")
    split = load_data(load_run(workdir).config, tmp_path).splits["val"]
    for seed in (0, 1):
        run = load_run(workdir, seed)
        found = predict(run, "val")
        values = recorded["seeds"][str(seed)]
        assert run.step == values["best_step"]
        assert (found.predicted == found.label).mean() == pytest.approx(values["accuracy"], abs=1e-7)
        assert found.nats.mean() == pytest.approx(values["loss"], rel=1e-6)
        labels = split.gather(np.arange(len(split)))["labels"]
        places = found.record if found.step is None else (found.record, found.step)
        assert np.array_equal(labels[places], found.label)
        assert len(found.label) == (labels != NO_LABEL).sum()
        if found.logits is not None:
            assert np.array_equal(found.logits.argmax(-1), found.predicted)
        # The same from logits of some records alone, in float64.
        few = split.gather([3, 5])
        logits = np.asarray(run.logits(few["inputs"], few["lengths"]), np.float64)
        every = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(
            logits, np.maximum(few["labels"], 0)[..., None], -1
        ).squeeze(-1)
        rows = np.isin(found.record, [3, 5])
        assert np.allclose(found.nats[rows], every[few["labels"] != NO_LABEL], atol=1e-4)


def test_an_unknown_split_and_other_data_are_refused(copy):
    run = load_run(copy)
    with pytest.raises(ConfigError, match=r"^split=dev: expected one of train, val, test$"):
        predict(run, "dev")
    with pytest.raises(ConfigError, match="was begun on other data"):
        predict(dataclasses.replace(run, record={**run.record, "data_sha256": "0" * 64}))
