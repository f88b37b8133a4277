"""What a model has to beat: the guess of the most frequent label."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from data.spec import NO_LABEL
from data.splits import MemorySplit


def majority(splits: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Accuracy, on val and test, of the most frequent training label (the smallest of several)."""
    labels = {name: _labels(split) for name, split in splits.items()}
    guess = np.bincount(labels["train"]).argmax()
    return {name: {"majority": float(np.mean(labels[name] == guess))} for name in ("val", "test")}


def _labels(split: Any) -> np.ndarray:
    if isinstance(split, MemorySplit):
        return split.labels[split.labels != NO_LABEL]
    return np.array([example.label for example in split.examples()])
