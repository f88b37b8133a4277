"""The published rows of configs/reference_results.json, and both rules of their averages."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import configs
from configs.published import Row

REFERENCE = Path(configs.__file__).with_name("reference_results.json")
ARENA = ("listops", "text", "retrieval", "image", "pathfinder", "pathx")
HEADS = {
    "listops": "ListOps", "text": "Text", "retrieval": "Retrieval", "image": "Image", "pathfinder": "Pathfinder",
    "pathx": "Path-X", "path256": "Path-256", "sc35": "SC35, 16 kHz",
    "sc35_8k": "SC35, zero-shot 8 kHz", "sc10": "SC10", "scifar": "CIFAR-10 in colour", "smnist": "sMNIST",
    "psmnist": "psMNIST", "fsdd": "spoken digits",
}  # fmt: skip

CHANCE = 50.0
"""What a failed Path-X counts in a mean over six tasks, in per cent."""


@dataclass(frozen=True)
class Value:
    """A published accuracy in per cent; None: failed, or not reported, as the caveat says."""

    accuracy: float | None
    std: float | None
    caveat: str

    @property
    def failed(self) -> bool:
        return self.accuracy is None and self.caveat.startswith("failed")


@dataclass(frozen=True)
class Published:
    """All values of one model, by task, and where they are from."""

    model: str
    values: Mapping[str, Value]
    source: str

    def arena(self, task: str) -> tuple[Value | None, bool]:
        """The value of a column of the arena, and whether it is one of colour images, which some sources put there."""
        value = self.values.get(task)
        in_colour = self.values.get("scifar")
        absent = value is None or value.accuracy is None
        if task == "image" and absent and in_colour is not None and "colour CIFAR-10" in in_colour.caveat:
            return in_colour, True
        return value, False


def published() -> list[Published]:
    """Every model, in the order of the file."""
    rows: dict[str, list[Row]] = {}
    for row in json.loads(REFERENCE.read_text())["rows"]:
        rows.setdefault(row["model"], []).append(row)
    return [
        Published(
            model,
            {row["task"]: Value(row["accuracy"], row["std"], row["caveat"] or "") for row in found},
            "; ".join(dict.fromkeys(row["source"] for row in found)),
        )
        for model, found in rows.items()
    ]


def five_task_mean(values: Sequence[float | None]) -> float | None:
    """Of the six values of the arena in its order, Path-X left out; None if one of the five is not there."""
    five = values[:5]
    return None if any(value is None for value in five) else sum(v for v in five if v is not None) / 5


def six_task_mean(values: Sequence[float | None], pathx_failed: bool = False) -> float | None:
    """Of all six; a failed Path-X counts as 50. None if one is not there."""
    path_x = CHANCE if pathx_failed else values[5]
    six = [*values[:5], path_x]
    return None if any(value is None for value in six) else sum(v for v in six if v is not None) / 6
