"""The folders of runs, read without jax."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data import strict_json
from data.sealed import unsealed_all
from scripts.report.shapes import require_records, require_rows, require_run
from training.errors import ConfigError
from training.files import read_sealed
from training.folders import CHECKPOINTS, CONFIG, METRICS, refuse_schema, runs_below
from training.writers import damage, read_metrics

RESULTS, COST = "results.json", "cost.json"

Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One folder. config: nested, as config.json holds it. facts: the rest of that file.

    training: the rows of metrics.jsonl on training steps and probes. validation: those of evaluations. results: the
    records of results.json. cost: of cost.json, empty for a run of before it was written.
    """

    folder: Path
    config: Mapping[str, Any]
    facts: Mapping[str, Any]
    training: Sequence[Row]
    validation: Sequence[Row]
    results: Sequence[Row]
    cost: Mapping[str, Any]

    @property
    def task(self) -> str:
        return self.config["data"]["task"]

    @property
    def layer(self) -> str:
        return self.config["model"]["layer"]

    @property
    def probes(self) -> list[Row]:
        """Rows with state energies, in order."""
        return [row for row in self.training if "state_energy" in row]


def read_runs(folders: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """Every run in the folders and below them, and one line about each that cannot be read, or not wholly.

    Raises ConfigError for a folder that is not there, or if there is no run in any that can be read.
    """
    runs, left_out = [], []
    for path in dict.fromkeys(path for folder in folders for path in _found(folder)):
        try:
            runs.append(_read(path))
            left_out += [f"{path}: {line}" for line in damage(path / METRICS, *_saved(path))]
        except (ConfigError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            left_out.append(f"{path}: left out: {_why(error)}")
    if not runs:
        why = f"; {left_out[0]}" if left_out else f" (a run has a {CONFIG})"
        raise ConfigError(f"{', '.join(map(str, folders))}: no run in there that can be read{why}")
    return runs, left_out


def _found(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder")
    return runs_below(folder)


def _read(folder: Path) -> Run:
    facts = _sealed(folder / CONFIG)
    refuse_schema(facts["schema"])
    config = facts.pop("config")
    cost = _sealed(folder / COST) if (folder / COST).exists() else {}
    require_run(config, facts, cost)
    rows = read_metrics(folder / METRICS) if (folder / METRICS).exists() else []
    require_rows(rows, facts.get("probe_times", ()))
    return Run(
        folder,
        config,
        facts,
        [row for row in rows if row["split"] == "train"],
        [row for row in rows if row["split"] == "val"],
        _records(folder / RESULTS),
        cost,
    )


def _sealed(path: Path) -> dict[str, Any]:
    try:
        return read_sealed(path)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error


def _saved(folder: Path) -> tuple[int, int | None]:
    """The step of the newest checkpoint, and how many rows there were then, if that is known."""
    steps = [int(path.name) for path in (folder / CHECKPOINTS).glob("*") if re.fullmatch("[0-9]{1,15}", path.name)]
    try:
        newest = max(steps)
        record = strict_json.parse((folder / CHECKPOINTS / str(newest) / "meta.json").read_bytes())
        return newest, record["meta"].get("rows")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # none, or damaged: a report reads nothing else
        return 0, None


def _records(path: Path) -> list[Row]:
    try:
        records = unsealed_all(strict_json.parse(path.read_bytes())) if path.exists() else []
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path.name}: {error}") from error
    require_records(records)
    return records


def _why(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error} is missing in its files"
    return " ".join(str(error).split()) or type(error).__name__
