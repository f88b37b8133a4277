"""What a run leaves of a step that met a value that was not finite: `nonfinite/seed-S-step-N.json` in its folder.

The seed is held from there on, so every later checkpoint has its parameters and its optimiser as they were before that
step, and `training.replay` can take it once more.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data import strict_json
from data.sealed import SEAL
from training.checkpoint import by_path
from training.config import ExperimentConfig
from training.errors import ConfigError
from training.files import read_sealed, write_sealed

FOLDER = "nonfinite"

Layers = dict[str, dict[str, float | None]]


class Incident(NamedTuple):
    """seed, step: of the update, counted from 1. tensor: the first that was not finite (`training.step.tensor_names`).

    block: the first whose output was not finite, None if all were. records: places in the train split of its batch.
    layers: sizes before the update, see `sizes`; None for what was not finite.
    """

    seed: int
    step: int
    tensor: str
    block: int | None
    records: list[int]
    layers: Layers

    @property
    def line(self) -> str:
        """In words."""
        where = "" if self.block is None else f", first in the output of blocks/{self.block}"
        return f"seed {self.seed}, step {self.step}: {self.tensor} is not finite{where}"


def write(workdir: Path, incident: Incident) -> None:
    """Raises OSError if the folder is full or unwritable."""
    path = _path(workdir, incident)
    path.parent.mkdir(exist_ok=True)
    write_sealed(path, incident._asdict())


def read(workdir: Path, config: ExperimentConfig) -> list[Incident]:
    """Those of a run of that config, the earliest first. Raises ConfigError for a damaged file."""
    found = []
    for path in (workdir / FOLDER).glob("seed-*-step-*.json"):
        try:
            if SEAL not in strict_json.parse(path.read_bytes()):
                raise ValueError(f"it has no {SEAL}")
            incident = Incident(**read_sealed(path))
            _refuse_impossible(incident, config)
            if path != _path(workdir, incident):
                raise ValueError(f"it is that of seed {incident.seed}, step {incident.step}")
        except (OSError, ValueError, TypeError) as error:
            raise _damaged(path, error) from error
        found.append(incident)
    return sorted(found, key=lambda incident: (incident.step, incident.seed))


def refuse_unknown_records(workdir: Path, incident: Incident, count: int) -> None:
    """Raises ConfigError, as `read` does, unless a train split of `count` records has all those of the batch."""
    if max(incident.records) >= count:
        raise _damaged(_path(workdir, incident), f"it has record {max(incident.records)} of {count}")


def _path(workdir: Path, incident: Incident) -> Path:
    return workdir / FOLDER / f"seed-{incident.seed}-step-{incident.step}.json"


def _damaged(path: Path, why: object) -> ConfigError:
    return ConfigError(f"{path} is damaged ({why}): put back a copy, or remove it")


def _refuse_impossible(incident: Incident, config: ExperimentConfig) -> None:
    """Raises ValueError for what no step of such a run leaves, also where its hash is right."""
    seed, step, tensor, block, records, layers = incident
    possible = {
        "seed": type(seed) is int and seed in config.seeds,
        "step": _is_in(step, range(1, config.train.steps + 1)),
        "tensor": isinstance(tensor, str) and tensor.isprintable(),
        "block": block is None or _is_in(block, range(len(config.model.layers))),
        "records": isinstance(records, list)
        and len(records) == config.train.batch_size
        and all(_is_in(record, range(2**63)) for record in records),
        "layers": isinstance(layers, dict) and all(map(_are_sizes, layers.values())),
    }
    if wrong := [name for name, good in possible.items() if not good]:
        raise ValueError(f"its {wrong[0]} cannot be {getattr(incident, wrong[0])!r}")


def _is_in(value: Any, allowed: range) -> bool:
    return type(value) is int and value in allowed


def _are_sizes(values: Any) -> bool:
    return isinstance(values, dict) and all(value is None or type(value) is float for value in values.values())


def sizes(trees: Mapping[str, Any], blocks: Sequence[Mapping[str, Any]]) -> Layers:
    """By layer: the Euclidean norm of each of `trees`, which have the form of one seed's parameters, under its name;
    and of its `blocks` (diagnostics of `training.probe`) the `state_energy`, the mean of |x_t|^2, if it has a state."""
    found: Layers = {}
    for name, tree in trees.items():
        for layer, square in _squares(tree).items():
            found.setdefault(layer, {})[name] = _finite(math.sqrt(square))
    for depth, block in enumerate(blocks):
        if "energy" in block:
            found[f"blocks/{depth}"]["state_energy"] = _finite(float(np.sum(block["energy"], dtype=np.float64)))
    return dict(sorted(found.items(), key=lambda item: _place(item[0])))


def _place(layer: str) -> tuple[int, int]:
    """Orders layers as an input meets them."""
    if layer.startswith("blocks/"):
        return 1, int(layer.removeprefix("blocks/"))
    return (0 if layer in ("encoder", "embedding") else 2), 0


def _squares(tree: Any) -> dict[str, float]:
    """The sum of squares of all that belongs to a layer: "encoder", "blocks/0", ..., "head"."""
    sums: dict[str, float] = {}
    for path, leaf in by_path(tree).items():
        layer = "/".join(path.split("/")[: 2 if path.startswith("blocks/") else 1])
        sums[layer] = sums.get(layer, 0.0) + float((np.asarray(leaf, np.float64) ** 2).sum())
    return sums


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
