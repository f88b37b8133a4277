"""What the record of a language model says beside the losses that every task has."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data.spec import NO_LABEL
from data.splits import Split
from training.evaluate import bits
from training.spikes import gradient_peak, spikes_per_1000
from training.writers import read_metrics

GATHERED = 64
"""Windows that are looked at together."""


def bytes_per_label(split: Split, token_bytes: np.ndarray) -> float:
    """Bytes of text that a label of the split stands for, in the mean; separators are labels of 0 bytes."""
    total = labels = 0
    for start in range(0, len(split), GATHERED):
        found = split.gather(range(start, min(start + GATHERED, len(split))))["labels"]
        found = found[found != NO_LABEL]
        total, labels = total + int(token_bytes[found].sum()), labels + found.size
    return total / labels


def bits_by_unit(loss: float, label_bytes: float | None) -> dict[str, float | None]:
    """A loss in nats a label, as bits: a character, or a token and a byte of text. label_bytes: see `bytes_per_label`;
    None: labels are characters. All None if the loss is not finite."""
    label = float(bits(np.asarray(loss))) if math.isfinite(loss) else None
    if label_bytes is None:
        return {"bits_per_character": label}
    return {"bits_per_token": label, "bits_per_byte": None if label is None else label / label_bytes}


def metrics_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics.jsonl; none if there is no such file."""
    return read_metrics(path) if path.exists() else []


def smoothness(rows: Sequence[dict[str, Any]], seed: int, last: int, *, alive: bool) -> dict[str, float | int | None]:
    """How one seed trained up to update `last`, from the rows of metrics.jsonl; alive: whether it was after it.

    spikes_per_1000, grad_norm_peak: see `training.spikes`; None if there are not more updates than have to come before
    a judgement, or not every update has a row: train.log_every must be 1, for a spike may last for one update only.
    nonfinite_step: the update that met a value that was not finite, which always has a row; None if none did.
    """
    # A seed at rest after a value that was not finite has rows without a rate.
    updates = [
        row
        for row in rows
        if row.get("seed") == seed and 1 <= row["step"] <= last and math.isfinite(row.get("lr", math.nan))
        if row.get("loss") is not None and "grad_norm" in row
    ]
    stopped = updates.pop()["step"] if updates and not alive else None
    every = [row["step"] for row in updates] == list(range(1, last + 1 if stopped is None else stopped))
    return {
        "spikes_per_1000": spikes_per_1000([row["loss"] for row in updates]) if every else None,
        "nonfinite_step": stopped,
        "grad_norm_peak": gradient_peak([row["grad_norm"] for row in updates]) if every else None,
    }
