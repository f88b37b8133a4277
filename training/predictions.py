"""What a model says of every label of a split, one by one; the means are those that eval.py records.

>>> from training.loading import load_run
>>> from training.predictions import predict
>>> found = predict(load_run("runs/smoke"), "test")
>>> len(found.record), found.logits.shape
(64, (64, 10))
>>> wrong = found.record[found.predicted != found.label]
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from data.batching import evaluation_batches
from data.folders import default_data_dir
from data.spec import NO_LABEL, TaskKind
from data.splits import Batch
from models.build import Params
from models.norm import Stats
from training.errors import ConfigError
from training.loading import LoadedRun
from training.loop import load_data
from training.loss import each_label
from training.workdir import refuse_other_data


class Predictions(NamedTuple):
    """A row for each of n labels, ordered by record and, within one, by step.

    record: place of the record in the split, as `data.splits.Split.gather` counts; of a text, of the window. step: of
    the label in its record; None where a record has one label. label: what is true. predicted: the class of the
    largest logit. nats: -ln p(label). logits: (n, K), K classes; None where steps are labelled, for there are as many
    as tokens of the text times ids.
    """

    record: np.ndarray
    step: np.ndarray | None
    label: np.ndarray
    predicted: np.ndarray
    nats: np.ndarray
    logits: np.ndarray | None


def predict(run: LoadedRun, split: str = "val", data_dir: str | Path | None = None) -> Predictions:
    """The predictions for "train", "val" or "test", read as in training; no dropout.

    The mean of `nats` is the loss that eval.py records for the seed (in float32 sums: to about 1e-6 of it), that of
    `predicted == label` its accuracy. data_dir: see `load_run`.

    Raises:
      ConfigError: another split, or data other than the run was trained on.
      DataError: the data are missing or damaged.
    """
    data = load_data(run.config, default_data_dir() if data_dir is None else Path(data_dir).expanduser())
    if split not in data.splits:
        raise ConfigError(f"split={split}: expected one of {', '.join(data.splits)}")
    refuse_other_data(run.workdir, dict(run.record), data.content_sha256)
    size = run.config.train.eval_batch_size
    step, rows = _step(run), []
    for number, batch in enumerate(evaluation_batches(data.splits[split], size)):
        there = batch["labels"] != NO_LABEL
        there[batch["weight"] == 0] = False  # a filler
        place = np.nonzero(there)
        found = [np.asarray(values)[there] for values in step(run.params, run.stats, batch)]
        rows.append([size * number + place[0], *place[1:], batch["labels"][there], *found])
    columns = [np.concatenate(column) for column in zip(*rows, strict=True)]
    if run.task.kind in (TaskKind.TAGGING, TaskKind.LANGUAGE):
        return Predictions(*columns, logits=None)
    record, *rest = columns
    return Predictions(record, None, *rest)


def _step(run: LoadedRun) -> Callable[[Params, Stats, Batch], tuple[jax.Array, ...]]:
    """(parameters, running averages, batch) -> class, nats and, where a record has one label, logits of each label."""

    def step(params, stats, batch):
        logits = dataclasses.replace(run, params=params, stats=stats).logits(batch["inputs"], batch["lengths"])
        nats, predicted = each_label(logits, batch["labels"])
        return (predicted, nats) if batch["labels"].ndim == 2 else (predicted, nats, logits)

    return jax.jit(step)
