"""Every number of results.json and of the validation rows again, of one run of each kind of task: in NumPy and float64,
from the logits of records that were padded here, with other padding, and from labels read off the data themselves."""

import dataclasses
import json
import shutil
import statistics
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from configs import lra, probes, tinystories
from data import tinystories as stories
from data.registry import data_set
from data.sealed import sealed
from data.spec import NO_LABEL, TaskKind
from tests.smoke_run import train_quietly
from training.config import from_config_dict
from training.loading import load_run
from training.predictions import predict
from training.results import score
from training.workdir import read_config
from training.writers import read_metrics

UNEVEN = 24
"""Records that are evaluated at once: the last batch of 64 is filled up."""


def trained_here(family, row, workdir):
    """A short run of two seeds."""
    plain = family.get_config(f"{row},smoke").to_dict()
    plain["seeds"], plain["model"]["depth"] = (0, 1), 1
    if "sublayers" in plain["model"]["options"]:
        plain["model"]["options"]["sublayers"] = len(plain["model"].get("sublayers", ())) or 1
    plain["train"] |= {"steps": 4, "eval_every": 2, "checkpoint_every": 2, "probe_every": 4, "eval_batch_size": UNEVEN}
    return train_quietly(from_config_dict(plain), workdir)


@pytest.fixture(params=[kind.value for kind in TaskKind])
def finished(request, trained, tmp_path, monkeypatch):
    """The folder of a finished run."""
    monkeypatch.setattr(stories, "SMOKE_STORIES", {"train": 10, "val": 10})
    workdir = tmp_path / "run"
    match TaskKind(request.param):
        case TaskKind.CLASSIFICATION:
            shutil.copytree(trained, workdir)
            record = json.loads((workdir / "config.json").read_text())
            record["config"]["train"]["eval_batch_size"] = UNEVEN  # only how many are read at once
            (workdir / "config.json").write_text(json.dumps(sealed(record)))
        case TaskKind.TAGGING:
            trained_here(probes, "task=copy,layer=mlp", workdir)
        case TaskKind.PAIRS:
            trained_here(lra, "task=retrieval,layer=mlp", workdir)
        case TaskKind.LANGUAGE:
            trained_here(tinystories, "task=tinystories_small,model=small_mlp", workdir)
    return workdir


class Record(NamedTuple):
    """What a model reads at once, of a pair two sequences; step -> label."""

    sequences: list[np.ndarray]
    labels: dict[int, int]


def records_of(config, kind, split) -> list[Record]:
    """Those of a split, as the data set makes them."""
    request = config.data.request
    examples = list(data_set(request).smoke(request)["val" if kind is TaskKind.LANGUAGE else split])
    if kind is TaskKind.LANGUAGE:
        text, window = np.concatenate([example.values for example in examples]), config.data.steps
        pieces = [text[start : start + window + 1] for start in range(0, len(text) - 1, window)]
        return [Record([piece[:-1]], dict(enumerate(piece[1:].tolist()))) for piece in pieces]
    found = []
    for values, label, second in examples:
        labels = np.atleast_1d(np.asarray(label)).tolist()
        sequences = [values] if second is None else [values, second]
        cut = [sequence[: config.data.steps or None] for sequence in sequences]
        found.append(Record(cut, {step: label for step, label in enumerate(labels) if label != NO_LABEL}))
    return found


def padded(records: list[Record]) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and lengths, behind each of which stand ones, and more of them than in training."""
    lengths = np.array([[len(sequence) for sequence in record.sequences] for record in records], np.int32)
    inputs = np.ones((*lengths.shape, lengths.max() + 5), records[0].sequences[0].dtype)
    for row, record in zip(inputs, records, strict=True):
        for place, sequence in zip(row, record.sequences, strict=True):
            place[: len(sequence)] = sequence
    return (inputs, lengths) if lengths.shape[1] == 2 else (inputs[:, 0], lengths[:, 0])


class Found(NamedTuple):
    """Of every label, by record and step: what `training.predictions` says too."""

    record: np.ndarray
    step: np.ndarray
    label: np.ndarray
    predicted: np.ndarray
    nats: np.ndarray

    @property
    def hits(self):
        return self.predicted == self.label


def found_in(logits: np.ndarray, records: list[Record]) -> Found:
    """nats = ln sum_k exp(z_k) - z_label in float64, predicted = argmax z."""
    rows = []
    for number, record in enumerate(records):
        for step, label in record.labels.items():
            z = np.asarray(logits[number] if logits.ndim == 2 else logits[number, step], np.float64)
            rows.append((number, step, label, int(z.argmax()), np.log(np.exp(z - z.max()).sum()) + z.max() - z[label]))
    return Found(*map(np.array, zip(*rows, strict=True)))


def assert_by_step(listed: list[float | None], values: np.ndarray, steps: np.ndarray) -> None:
    """The mean at every step, None where there is no label."""
    means = [values[steps == step].mean() if (steps == step).any() else np.nan for step in range(len(listed))]
    np.testing.assert_allclose(np.array(listed, np.float64), means, rtol=1e-5, atol=1e-6)


def same(expected: Any) -> Any:
    return pytest.approx(expected, rel=1e-5, abs=1e-6)


def assert_scores(values: dict, found: Found, kind: TaskKind, count: int) -> None:
    """What results.json says of one seed."""
    assert values["accuracy"] == pytest.approx(found.hits.mean(), rel=1e-12)
    assert values["loss"] == same(found.nats.mean())
    if kind is TaskKind.LANGUAGE:
        bits = found.nats.sum() / np.log(2)
        assert values["bits_per_token"] == same(bits / len(found.nats))
        assert values["bits_per_byte"] == same(bits / (found.label != 0).sum()), "an end of text is no byte"
        assert_by_step(values["loss_by_position"], found.nats, found.step)
    else:
        z = statistics.NormalDist().inv_cdf(0.975)
        for end in values["interval"]:  # Wilson: the shares from which what was found is z deviations away
            assert (found.hits.mean() - end) ** 2 == pytest.approx(z**2 * end * (1 - end) / count, abs=1e-12)
        low, high = values["interval"]
        assert low < found.hits.mean() < high or found.hits.mean() in (0, 1)
    if kind in (TaskKind.TAGGING, TaskKind.LANGUAGE):
        assert_by_step(values["accuracy_by_step"], found.hits, found.step)
    assert ("accuracy_by_step" in values) == (kind in (TaskKind.TAGGING, TaskKind.LANGUAGE))


def assert_row(rows: list[dict], step: int, seed: int, found: Found, kind: TaskKind) -> None:
    """What metrics.jsonl says of the validation after a step."""
    (row,) = [row for row in rows if (row["step"], row["seed"], row["split"]) == (step, seed, "val")]
    assert row["accuracy"] == pytest.approx(found.hits.mean(), rel=1e-12)
    assert row["loss"] == same(found.nats.mean())
    assert ("bits" in row) == (kind is TaskKind.LANGUAGE)
    if "bits" in row:
        assert row["bits"] == same(found.nats.mean() / np.log(2))


def test_every_number_is_that_of_numpy(finished):
    config, rows = read_config(finished)[0], read_metrics(finished / "metrics.jsonl")
    run = load_run(finished)
    kind = run.task.kind
    apply = jax.jit(lambda params, stats, *batch: dataclasses.replace(run, params=params, stats=stats).logits(*batch))
    records = {split: records_of(config, kind, split) for split in ("train", "val", "test")}

    def found_of(seed: int, checkpoint: str, split: str) -> tuple[Found, int]:
        of_seed = load_run(finished, seed, checkpoint)
        logits = np.asarray(apply(of_seed.params, of_seed.stats, *padded(records[split])))
        return found_in(logits, records[split]), of_seed.step

    for split, checkpoint in (("val", "last"), ("test", "best")):
        record, scores = score(finished, finished.parent, split, checkpoint), []
        assert record["count"] == len(records[split])
        assert record["count"] % UNEVEN, "the last batch is short"
        for seed in config.seeds:
            (found, step), values = found_of(seed, checkpoint, split), record["seeds"][str(seed)]
            assert_scores(values, found, kind, record["count"])
            assert values["best_step" if checkpoint == "best" else "step"] == step
            assert_row(rows, step, seed, found_of(seed, checkpoint, "val")[0], kind)
            scores.append(found.nats.mean() if kind is TaskKind.LANGUAGE else found.hits.mean())
        assert (record["mean"], record["std"]) == (same(statistics.mean(scores)), same(statistics.stdev(scores)))
        if kind is not TaskKind.LANGUAGE:
            trained_on, asked = ([x for r in records[name] for x in r.labels.values()] for name in ("train", split))
            most = np.bincount(trained_on).argmax()
            assert record["baselines"]["majority"] == pytest.approx(np.mean(np.array(asked) == most), rel=1e-12)

    seed = config.seeds[-1]
    said, (found, _) = predict(load_run(finished, seed, "best"), "test"), found_of(seed, "best", "test")
    assert np.array_equal(said.record, found.record)
    assert said.step is None or np.array_equal(said.step, found.step)
    assert np.array_equal(said.label, found.label)
    assert np.array_equal(said.predicted, found.predicted)
    assert np.allclose(said.nats, found.nats, rtol=1e-5, atol=1e-5)
