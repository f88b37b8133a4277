"""A run opened again from its folder: seeds, checkpoints, predictions that add up, older folders."""

import dataclasses
import json
import pathlib
import shutil
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from data.errors import DataError
from data.prepared import Opened, fixed_task
from data.sealed import sealed
from data.spec import NO_LABEL, DataRequest, TaskKind
from data.splits import MemorySplit
from data.windows import Packing, evaluation_windows
from tests.tiny import TASK, tiny_config, tiny_split
from training import checkpoint
from training.errors import ConfigError
from training.loading import LoadedRun, load_run, opened
from training.predictions import predict
from training.results import score
from training.state import initial_params_of_all, make_program
from training.weights import read_saved

OLD = pathlib.Path(__file__).parent / "old_run"


@pytest.fixture
def copy(trained, tmp_path):
    """A copy of that run."""
    return shutil.copytree(trained, tmp_path / "run")


@pytest.mark.parametrize(("which", "step", "group"), [("best", None, "best/"), ("last", 12, ""), (8, 8, "")])
def test_the_arrays_are_those_of_the_seed_in_the_checkpoint(trained, which, step, group):
    restored = checkpoint.restore(trained / "checkpoints", None, None if which in ("best", "last") else which)
    assert restored is not None
    leaves = restored.tree
    for place, seed in enumerate((0, 1)):
        run = load_run(trained, seed, which)
        assert run.step == (leaves["best/step"][place] if step is None else step)
        found = {f"params/{path}": leaf for path, leaf in checkpoint.by_path(run.params).items()}
        found |= {f"stats/{path}": leaf for path, leaf in checkpoint.by_path(run.stats).items()}
        saved = {path.removeprefix(group): leaf for path, leaf in leaves.items() if path.startswith(group)}
        wanted = {path: leaf for path, leaf in saved.items() if path.startswith(("params/", "stats/"))}
        assert found.keys() == wanted.keys()
        assert all(np.array_equal(array, wanted[path][place]) for path, array in found.items())
        assert all(map(np.array_equal, jax.tree.leaves(nnx.state(run.model)), jax.tree.leaves(run.params)))


def test_padding_changes_no_logit_and_no_lengths_mean_all_steps(trained):
    run = load_run(trained)
    whole = run.logits([[1, 2, 3, 4]])[0]
    padded, longer = run.logits([[1, 2, 3, 4, 9, 9]] * 2, [4, 6])
    assert np.allclose(padded, whole, atol=1e-5)
    assert not np.allclose(longer, whole, atol=1e-3)


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"seed": 7}, "{run} has no seed 7: choose from 0, 1"),
        ({"checkpoint": "newest"}, "checkpoint=newest: expected best, last or a step"),
        ({"checkpoint": 3}, "checkpoint 3 in {run}/checkpoints does not exist; intact: 8, 12"),
        ({"workdir": "nowhere"}, "nowhere/config.json: No such file or directory: is nowhere the folder of a run?"),
    ],
)
def test_what_is_not_there_is_refused(trained, asked, line):
    with pytest.raises(ConfigError) as refused:
        load_run(**{"workdir": trained} | asked)
    assert str(refused.value) == line.format(run=trained)


def test_a_checkpoint_of_another_model_is_refused(copy):
    record = json.loads((copy / "config.json").read_text())
    record["config"]["model"]["width"] = 8
    (copy / "config.json").write_text(json.dumps(sealed(record)))
    with pytest.raises(ConfigError) as refused:
        load_run(copy)
    assert str(refused.value) == f"{copy} holds another model: blocks/0/layer/B_im is (16, 16) there, (16, 8) here"


def test_a_seed_without_a_best_or_that_broke_later_is_said(trained, tmp_path):
    saved = read_saved(trained, "best")
    odd = {"best/step": jnp.array([-1, 2]), "alive": jnp.array([True, False])}
    saved = dataclasses.replace(saved, leaves={**saved.leaves, **odd})
    assert opened(saved, 0, tmp_path).note == "not evaluated yet: initial parameters"
    assert opened(saved, 1, tmp_path).note == "not finite later on"
    assert load_run(trained).note == ""


def test_a_folder_is_opened_without_its_data(copy, tmp_path):
    record = json.loads((copy / "config.json").read_text())
    record["config"]["data"]["smoke"] = False
    (copy / "config.json").write_text(json.dumps(sealed(record)))
    run = load_run(copy, data_dir=tmp_path / "nowhere")
    assert jax.eval_shape(run.logits, np.zeros((3, 7), np.uint8)).shape == (3, 10)
    with pytest.raises(DataError, match="no data in"):
        predict(run, data_dir=tmp_path / "nowhere")
    assert fixed_task(DataRequest("shakespeare_char")) is None  # its vocabulary
    assert fixed_task(DataRequest("sc35")) is None  # its statistics


def test_predictions_add_up_to_the_results(trained):
    recorded = score(trained, trained.parent, "val", "best")
    run = load_run(trained, 1)
    found, values = predict(run, "val"), recorded["seeds"]["1"]
    assert run.step == values["best_step"]
    assert (found.predicted == found.label).mean() == values["accuracy"]
    assert found.nats.mean() == pytest.approx(values["loss"], rel=1e-6)


def windows():
    """A text of windows of 8 tokens, the last one partial."""
    stream = np.random.default_rng(0).integers(0, 6, 60).astype(np.uint8)
    return evaluation_windows(lambda start, stop: stream[start:stop], np.array([0, 33, 60]), 8, Packing.SEPARATED)


def pairs():
    return Pairs(tiny_split(22))


class Pairs(NamedTuple):
    """Each record beside the next but ten, labelled by the first."""

    split: MemorySplit

    def __len__(self):
        return 11

    def gather(self, indices):
        first, second = (self.split.gather(np.asarray(indices) + start) for start in (0, 11))
        both = {key: np.stack([first[key], second[key]], 1) for key in ("inputs", "lengths")}
        return both | {"labels": first["labels"]}


KINDS = {
    "one label": (TASK, lambda: tiny_split(21)),
    "a pair": (dataclasses.replace(TASK, kind=TaskKind.PAIRS), pairs),
    "a text": (dataclasses.replace(TASK, kind=TaskKind.LANGUAGE, length=8, classes=6), windows),
}


def loaded(task, folder):
    """A model of a few parameters as it is before training."""
    config = tiny_config("lru", {"model.width": 4, "model.depth": 1, "model.options.state_size": 4})
    program = make_program(config, task)
    params = jax.tree.map(lambda leaf: leaf[0], initial_params_of_all(program))
    return LoadedRun(folder, program, 0, 0, params, (None,), {"data_sha256": "a"}, "")


def scores(classes, per_step):
    """In place of a model: how often an input of each remainder is there, or which one is."""

    def logits(_, inputs, lengths):
        found = jax.nn.one_hot(jnp.asarray(inputs) % classes, classes)
        return found if per_step else found.reshape(len(inputs), -1, classes).mean(1)

    return logits


@pytest.mark.parametrize("kind", KINDS)
def test_there_is_one_row_for_every_label(monkeypatch, tmp_path, kind):
    """Each is what that record alone gives, in float64; what fills up the last batch leaves no row."""
    task, make = KINDS[kind]
    split, logits_of = make(), scores(task.classes, task.kind is TaskKind.LANGUAGE)
    run = loaded(task, tmp_path)
    monkeypatch.setattr("training.predictions.load_data", lambda *_: Opened(task, {"val": split}, "a", {}))
    monkeypatch.setattr(LoadedRun, "logits", logits_of)
    assert len(split) % run.config.train.eval_batch_size
    found, batch = predict(run), split.gather(np.arange(len(split)))
    place = np.nonzero(batch["labels"] != NO_LABEL)
    logits = np.asarray(logits_of(run, batch["inputs"], batch["lengths"]), np.float64)[place]
    label = batch["labels"][place]
    nats = np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(label)), label]
    assert np.array_equal(found.record, place[0])
    assert (found.step is None, found.logits is None) == (len(place) == 1, len(place) == 2)
    if found.step is not None:
        assert np.array_equal(found.step, place[1])
    assert np.array_equal(found.label, label)
    assert np.array_equal(found.predicted, logits.argmax(-1))
    assert np.allclose(found.nats, nats, atol=1e-5)
    if found.logits is not None:
        assert np.allclose(found.logits, logits, atol=1e-5)


def test_logits_of_pairs_and_texts(tmp_path):
    """Without lengths all steps count, of both documents of a pair."""
    for kind, shape, expected in (("a pair", (3, 2, 5), (3, 3)), ("a text", (3, 5), (3, 5, 6))):
        assert jax.eval_shape(loaded(KINDS[kind][0], tmp_path).logits, np.zeros(shape, np.uint8)).shape == expected


def test_a_folder_of_before_most_keys_were_known_is_opened():
    """tests/old_run: schema 2 at its first commit, d879108, before batch norm, padding modes, meshes and more."""
    known = json.loads((OLD / "config.json").read_text())["config"]
    assert "norm" not in known["model"]
    assert not {"mesh", "init_from"} & known.keys()
    before = json.loads((OLD / "logits.json").read_text())  # of the code of that commit
    for which in ("best", "last"):
        run = load_run(OLD, 3, which)
        assert run.step == before[which]["step"]
        assert np.allclose(run.logits(before["inputs"], before["lengths"]), before[which]["logits"], atol=1e-6)
    assert run.config.init_checkpoint == "best"
    # The sample made in memory is another one since then, and that is said.
    with pytest.raises(ConfigError, match="was begun on other data"):
        predict(run)


def test_an_unknown_split_and_other_data_are_refused(copy):
    run = load_run(copy)
    with pytest.raises(ConfigError, match=r"^split=dev: expected one of train, val, test$"):
        predict(run, "dev")
    with pytest.raises(ConfigError, match="was begun on other data"):
        predict(dataclasses.replace(run, record={**run.record, "data_sha256": "0" * 64}))
