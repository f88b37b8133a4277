"""Exact means over a whole split."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from data.batching import evaluation_batches
from data.splits import Split
from training.loss import Sums
from training.mesh import split_batch


def evaluate(
    eval_step: Callable[[Any, Any], Sums], params: Any, split: Split, batch_size: int, mesh: Mesh
) -> dict[str, np.ndarray]:
    """Mean loss and accuracy of every seed over all labels of a split, summed in float64.

    Where steps are labelled also `accuracy_by_step` (S, T), NaN at a step without a label.
    """
    placed = split_batch(mesh, seeds=False)
    pending = [eval_step(params, jax.device_put(b, placed)) for b in evaluation_batches(split, batch_size)]
    loss, correct, count = (
        np.sum([np.asarray(part, np.float64) for part in column], 0) for column in zip(*pending, strict=True)
    )
    labels = count.reshape(len(loss), -1).sum(1)
    found = {"loss": loss / labels, "accuracy": correct.reshape(len(loss), -1).sum(1) / labels}
    if count.ndim == 1:
        return found
    with np.errstate(invalid="ignore"):
        return found | {"accuracy_by_step": correct / count}


def binomial_interval(accuracy: float, count: int) -> tuple[float, float]:
    """95 % Wilson interval of an accuracy measured on `count` records (Wilson, J. Am. Stat. Assoc. 22, 1927)."""
    z = 1.959963984540054
    centre = (accuracy + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * np.sqrt(accuracy * (1 - accuracy) / count + z * z / (4 * count * count))
    return centre - half, centre + half


def interval_text(accuracy: float, count: int) -> str:
    """What one evaluation on `count` records leaves open about an accuracy near this one."""
    low, high = binomial_interval(accuracy, count)
    return f"95 % interval of one test on {count} records {100 * low:.1f} to {100 * high:.1f} %"


def guesses_line(baselines: Mapping[str, float]) -> str:
    """What simple guesses score, to stand beside every accuracy."""
    scores = ", ".join(f"{name.replace('_', ' ')} {100 * value:.1f} %" for name, value in baselines.items())
    return f"guessing: {scores}"
