"""Exact means over a whole split."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from data.batching import evaluation_batches
from data.spec import TaskKind, TaskSpec
from data.splits import Split
from data.windows import Windows
from training.loss import Sums
from training.mesh import everywhere, place_batch, share_of


def evaluate(
    eval_step: Callable[[Any, Any, Any], Sums], params: Any, stats: Any, split: Split, batch_size: int, mesh: Mesh
) -> dict[str, np.ndarray]:
    """Mean loss (nats) and accuracy of every seed over all labels of a split, summed in float64.

    Where steps are labelled also `loss_by_step` and `accuracy_by_step` (S, T), NaN at a step without a label.
    """
    share = share_of(mesh, mesh.devices.shape[0], batch_size)
    batches = evaluation_batches(split, batch_size, share.records)
    placed = (place_batch(mesh, batch, share, seeds=False) for batch in batches)
    return _means(everywhere(mesh, eval_step(params, stats, batch)) for batch in placed)


def evaluate_carried(
    start: Callable[[Any], Any], carried_step: Callable[[Any, Any, Any], tuple[Sums, Any]], params: Any, split: Windows
) -> dict[str, np.ndarray]:
    """Mean loss (nats) and accuracy of every seed over all labels of consecutive windows, summed in float64.

    Each window begins with the state in which the one before it ended, the first of a segment with the state before
    any text. Where a label stands in its window means nothing, so there is nothing by step.
    """
    params = jax.device_put(params)
    states = initial = start(params)
    parts = []
    for index in range(len(split)):
        before = initial if split.starts_segment(index) else states
        sums, states = carried_step(params, before, split.gather([index]))
        parts.append(sums)
    return without_steps(_means(parts))


def without_steps(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The means over all labels alone."""
    return {name: found[name] for name in ("loss", "accuracy")}


def listed(values: np.ndarray) -> list[float | None]:
    """For JSON: None at a step without a label, or where the value is not finite."""
    return [float(value) if np.isfinite(value) else None for value in values]


def _means(parts: Iterable[Sums]) -> dict[str, np.ndarray]:
    """What `evaluate` returns, of sums per seed: none is fetched before the last one is under way."""
    loss, correct, count = (
        np.sum([np.asarray(part, np.float64) for part in column], 0) for column in zip(*parts, strict=True)
    )
    totals = [sums.reshape(len(sums), -1).sum(1) for sums in (loss, correct, count)]
    found = {"loss": totals[0] / totals[2], "accuracy": totals[1] / totals[2]}
    if count.ndim == 1:
        return found
    with np.errstate(invalid="ignore"):
        return found | {"loss_by_step": loss / count, "accuracy_by_step": correct / count}


def metric_of(task: TaskSpec) -> str:
    """By what the models of a task are compared: "accuracy", or "loss" where text is predicted."""
    return "loss" if task.kind is TaskKind.LANGUAGE else "accuracy"


def selection_values(task: TaskSpec, found: dict[str, np.ndarray]) -> np.ndarray:
    """What the best evaluation of each seed is chosen by, the larger the better; NaN where the loss is not finite."""
    value = -found["loss"] if metric_of(task) == "loss" else found["accuracy"]
    return np.where(np.isfinite(found["loss"]), value, np.nan)


def bits(loss: np.ndarray) -> np.ndarray:
    """Nats -> bits, per label."""
    return loss / np.log(2)


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


def guesses_line(baselines: Mapping[str, float], metric: str = "accuracy") -> str:
    """What simple guesses score, to stand beside every accuracy, or beside every loss in nats."""
    written = {
        name: f"{100 * value:.1f} %" if metric == "accuracy" else f"{value:.3f} nats"
        for name, value in baselines.items()
    }
    return "guessing: " + ", ".join(f"{name.replace('_', ' ')} {text}" for name, text in written.items())
