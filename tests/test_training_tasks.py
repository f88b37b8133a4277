"""What a kind of task changes in training: pairs, text, normalised channels; scores, selection and records."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import TASK, fresh_of, stacked_batch, tiny_config, tiny_split

from data.prepared import Opened
from data.spec import InputKind, Normalisation, TaskKind, TaskSpec
from data.splits import MemorySplit
from models.padding import Padding
from training import loop, results
from training.evaluate import bits, guesses_line, selection_values
from training.probe import probe_lengths
from training.start import abstract_state, begin
from training.state import Affine, affine_of, features, initial_params_of_all, make_program
from training.step import FINE, make_eval_step, make_probe_step, make_train_step
from training.writers import read_metrics

PAIRS = dataclasses.replace(TASK, kind=TaskKind.PAIRS, classes=2)
TEXT = TaskSpec("text", TaskKind.LANGUAGE, InputKind.TOKENS, input_width=6, length=8, classes=6)


def small(**changes) -> Any:
    sizes = {"model.width": 4, "model.depth": 1, "model.options.state_size": 4, "train.batch_size": 8}
    return tiny_config("lru", sizes | {"optim.lr": 0.03, "optim.ssm_lr": 0.01, "train.steps": 40} | changes)


def paired(batch: dict) -> dict:
    """Pairs of the records of a batch (S, 2B, ...); the label: whether both have the same."""
    inputs, lengths, labels = (
        batch[key].reshape(1, -1, 2, *batch[key].shape[2:]) for key in ("inputs", "lengths", "labels")
    )
    return {"inputs": inputs, "lengths": lengths, "labels": (labels[..., 0] == labels[..., 1]).astype(np.int32)}


def test_pairs_are_trained_scored_and_probed():
    config = small(**{"model.norm": "batch"})
    program, state = fresh_of(config, PAIRS)
    step, split = make_train_step(program), tiny_split(64)
    batch = paired(stacked_batch(split, (0,), 0, 16))
    assert batch["inputs"].shape == (1, 8, 2, TASK.length)
    losses = []
    for i in range(40):
        state, metrics = step(state, batch, jnp.asarray(i, jnp.int32))
        assert metrics.bad[0] == FINE
        losses.append(float(metrics.loss[0]))
    assert losses[-1] < 0.5 * losses[0]
    one = {key: value[0] for key, value in batch.items()}
    sums = make_eval_step(program)(state.params, state.stats, one | {"weight": np.ones(8, np.float32)})
    assert sums.count.tolist() == [8.0]
    abstract = abstract_state(program)
    begun, (found,) = begin(program, initial_params_of_all(program), make_probe_step(program, (1,)), one)
    shapes = [jax.tree.map(lambda x: (x.shape, x.dtype), tree) for tree in (abstract, begun)]
    assert shapes[0] == shapes[1]
    assert found["finite"].all()
    np.testing.assert_array_equal(probe_lengths(one, Padding.FULL), one["lengths"].ravel())


def test_padding_that_is_input_counts_as_steps_of_the_probe():
    batch = tiny_split().gather([0, 1, 2])
    np.testing.assert_array_equal(probe_lengths(batch, Padding.FULL), batch["lengths"])
    for padding in (Padding.POOL_ONLY, Padding.NONE):
        np.testing.assert_array_equal(probe_lengths(batch, padding), [12, 12, 12])
    assert batch["lengths"].min() < 12


def samples(**changes) -> TaskSpec:
    return TaskSpec("sound", TaskKind.CLASSIFICATION, InputKind.CHANNELS, 2, 4, 3, dtype="int16", **changes)


def test_channels_are_normalised_on_the_device():
    spec = samples(normalisation=Normalisation(255.0, (0.5, 0.25), (0.2, 2.0)))
    program = make_program(small(), spec)
    values = np.array([[[0, 255], [51, 102]]], np.int16)
    found = jax.jit(lambda v: features(program, v))(values)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, (values / 255 - [0.5, 0.25]) / [0.2, 2.0], rtol=1e-5, atol=1e-6)
    assert affine_of(samples()) is None
    assert make_program(small(), samples()).affine is None
    # Constants: no parameter, and statistics of every step may come with the data instead.
    assert "affine" not in str(jax.tree.structure(program.abstract_params))
    given = Affine(np.arange(8, dtype=np.float32).reshape(4, 2), np.ones((4, 2), np.float32))
    own = make_program(small(), spec, given)
    ones = jnp.ones((3, 4, 2), jnp.int16)
    np.testing.assert_array_equal(features(own, ones), np.broadcast_to(given.scale + 1, (3, 4, 2)))


def test_every_program_of_a_run_normalises():
    """Raw samples under a normalisation are what normalised ones are without it: in training, evaluation and probe."""
    raw = np.random.default_rng(0).integers(-900, 900, (6, 4, 2)).astype(np.int16)
    labels, lengths = np.arange(6) % 3, np.array([4, 3, 2, 4, 1, 4])
    plain = ((raw / 1000 - [0.1, 0.2]) / [0.5, 0.4]).astype(np.float32)
    found = []
    for spec, inputs in (
        (samples(normalisation=Normalisation(1000.0, (0.1, 0.2), (0.5, 0.4))), raw),
        (samples(), plain),
    ):
        batch = {"inputs": inputs, "lengths": lengths, "labels": labels, "weight": np.ones(6, np.float32)}
        program, state = fresh_of(small(), spec)
        (block,) = make_probe_step(program, (1,))(state.params, batch)
        # The rest with a layer that is quickly compiled.
        program, state = fresh_of(small(**{"model.layer": "mlp", "model.options": {}}), spec)
        sums = make_eval_step(program)(state.params, state.stats, batch)
        stacked = {key: value[None] for key, value in batch.items()}
        metrics = make_train_step(program)(state, stacked, jnp.asarray(0, jnp.int32))[1]
        found.append((sums.loss, block["energy"], metrics.loss, metrics.grad_norm))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)


def test_text_is_selected_by_its_loss():
    found = {"loss": np.array([1.5, 1.2, np.nan]), "accuracy": np.array([0.4, 0.3, 0.9])}
    np.testing.assert_array_equal(selection_values(TEXT, found), [-1.5, -1.2, np.nan])
    np.testing.assert_array_equal(selection_values(TASK, found), [0.4, 0.3, np.nan])
    assert bits(np.array(math.log(8))) == pytest.approx(3.0)
    assert guesses_line({"unigram": 3.347}, "loss") == "guessing: unigram 3.347 nats"


def windows(seed: int) -> MemorySplit:
    """Texts that count in a circle of 5, each step labelled with its next token."""
    draw = np.random.default_rng(seed)
    texts = [(draw.integers(5) + np.arange(1 + draw.integers(3, 9))) % 5 + 1 for _ in range(32)]
    records = [bytes(text[:-1].astype(np.uint8)) for text in texts]
    return MemorySplit.from_records(records, np.concatenate([text[1:] for text in texts]), TEXT.length, per_step=True)


def test_a_language_model_from_training_to_its_record(tmp_path, monkeypatch):
    splits = {name: windows(i) for i, name in enumerate(("train", "val", "test"))}
    guesses = {name: {"uniform": math.log(6)} for name in ("val", "test")}
    for module in (loop, results):
        monkeypatch.setattr(module, "load_data", lambda *_: Opened(TEXT, splits, "", guesses))
    monkeypatch.setattr(loop, "load_task", lambda *_: (TEXT, None))
    changes = {"model.layer": "mlp", "model.depth": 1, "model.backbone": "language", "model.sublayers": ("mlp", "mlp")}
    own = {"model.options": {"sublayers": 2}, "optim.lr": 0.05, "seeds": (0, 1), "train.profile": (2, 3)}
    config = tiny_config("lru", changes | own)
    loop.train(config, tmp_path, tmp_path)
    assert [path.suffix for path in (tmp_path / "profile").rglob("*.pb")] == [".pb"]  # a run without the key has none

    rows = [row for row in read_metrics(tmp_path / "metrics.jsonl") if row["split"] == "val"]
    assert all(row["bits"] == pytest.approx(row["loss"] / math.log(2)) for row in rows)
    last = [row["loss"] for row in rows if row["step"] == 12]
    assert max(last) < 0.7 * math.log(6)
    assert "validation loss " in (tmp_path / "train.log").read_text()

    record = results.score(tmp_path, tmp_path, "val", "best")
    assert (record["metric"], record["policy"], record["padding"]) == ("loss", "lowest validation loss", "full")
    for seed in ("0", "1"):
        history = {row["step"]: row["loss"] for row in rows if row["seed"] == int(seed)}
        scores = record["seeds"][seed]
        assert scores["best_step"] == min(history, key=lambda step: history[step])
        assert scores["loss"] == pytest.approx(min(history.values()), rel=1e-6)
        assert scores["bits_per_character"] == pytest.approx(scores["loss"] / math.log(2))
        assert not {"interval", "bits_per_byte"} & scores.keys()
        assert (scores["nonfinite_step"], scores["spikes_per_1000"], scores["grad_norm_peak"]) == (None, None, None)
        counts = (windows(1).gather(range(32))["lengths"][:, None] > np.arange(8)).sum(0)
        assert np.dot(scores["loss_by_position"], counts) / counts.sum() == pytest.approx(scores["loss"])
    assert all(row["tokens"] == row["step"] * config.train.batch_size * 8 for row in rows)
    assert (record["window"], record["carried"], record["protocol"]) == (None, False, "windows of 8")
    assert record["mean"] == pytest.approx(np.mean([scores["loss"] for scores in record["seeds"].values()]))
    line = results.summary_line(record)
    assert line.startswith(f"val loss {record['mean']:.3f} +- {record['std']:.3f} nats (")
    assert line.endswith("; guessing: uniform 1.792 nats")
    assert "%" not in line
