"""What docs/studies/stability.json keeps of each cell of configs/stability.py: its curves, in four digits."""

import functools
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from configs import stability
from configs.argument import parse_argument
from data import strict_json
from data.sealed import SEAL, sealed, unsealed_all
from scripts.cells import is_of
from scripts.report.runs import Row, Run
from scripts.report.stability import of_layers
from scripts.report.statistics import geometric
from scripts.sweep_plan import read_list
from scripts.workers import machine
from training.errors import ConfigError
from training.files import write_atomically
from training.results import find_record

RECORDS = Path("docs/studies/stability.json")
CELLS = Path("configs/stability_cells.txt")
FORM = 2
"""Of what a record holds (see `condensed`): one more with each change of it."""

Record = dict[str, Any]
"""One cell: see `condensed`. Curves stand by seed, as JSON has it: a text."""


def _largest(values: Sequence[float]) -> float:
    return max(values, default=math.nan)


PROBES: dict[str, tuple[str, Callable[[Sequence[float]], float]]] = {
    "energy": ("energy", geometric),
    "gain": ("gain", geometric),
    "gain_max": ("gain_max", _largest),
    "align": ("align", geometric),
    "temporal": ("temporal", geometric),
}
"""What is kept of a probe: a quantity of the layers (`scripts.report.stability`), and how it becomes one number."""
CURVES = ("energy", "gain")
"""Those kept of every probe; of the others the first and the last say all that the page asks."""
FACTORS = ("gain", "align", "temporal")
"""What an energy is the product of."""
OVER_TIME = ("energy", "white", "coloured")


class Key(NamedTuple):
    """What tells cells apart."""

    layer: str
    depth: int = 4
    rate: str = "small"
    task: str = "listops"
    updates: int = stability.UPDATES["listops"]


def key_of(cell: str) -> Key:
    """Raises ValueError if the text is none of a cell."""
    keys = parse_argument(cell, stability.KEYS)
    updates = keys.get("updates", stability.UPDATES[keys["task"]])
    return Key(keys["layer"], keys["depth"], keys["rate"], keys["task"], updates)


@functools.cache
def every_cell() -> tuple[str, ...]:
    """Those of the study."""
    return tuple(",".join(f"{name}={value}" for name, value in cell.items()) for cell in read_list(CELLS))


def every_key() -> list[Key]:
    """Those of the study."""
    return [key_of(cell) for cell in every_cell()]


def condensed(run: Run) -> Record | None:
    """The record of a run; None if it is not finished and scored.

    steps, layers (seed -> start and end -> layer: energies), probes (of `PROBES`: seed -> probe, or start and end: see
    `CURVES`), gain_error (the furthest from 1 of any), times, over_time (start or end -> of `OVER_TIME`: seed -> time,
    means over layers), unit (seed -> design value, mean over layers), factors (of `FACTORS`, at the end: seed -> layer)
    and accuracy (of the best checkpoints: seed -> share).
    Raises ConfigError if the config is not that of the cell that the folder is named after.
    """
    cell = run.folder.name
    if not _is_present(cell, run.config):
        raise ConfigError(f"{run.folder}: expected a run of configs/stability.py in a folder named after its cell")
    score = find_record([*run.results], "val", "best")
    if score is None or score.get("updates") != run.config["train"]["steps"]:
        return None
    rows = {str(seed): [row for row in run.probes if row["seed"] == seed] for seed in run.config["seeds"]}
    if len({tuple(row["step"] for row in own) for own in rows.values()}) > 1:
        raise ConfigError(f"{run.folder}: probes of some seeds are lost: run it again")
    ends = {seed: (own[0], own[-1]) for seed, own in rows.items()}
    return {
        "cell": cell,
        "form": FORM,
        "steps": [row["step"] for row in rows[next(iter(rows))]],
        "layers": {seed: [[*map(_short, _by_layer(row))] for row in own] for seed, own in ends.items()},
        "probes": {
            name: {
                seed: [_over_layers(row, of, over) for row in own]
                for seed, own in (rows if name in CURVES else ends).items()
            }
            for name, (of, over) in PROBES.items()
        },
        "gain_error": _short(
            _largest([abs(g - 1) for own in rows.values() for row in own for g in of_layers(row, "gain").values()])
        ),
        "times": run.facts["probe_times"],
        "over_time": {
            when: {of: {seed: _over_time(own[place], of) for seed, own in rows.items()} for of in OVER_TIME}
            for when, place in (("start", 0), ("end", -1))
        },
        "unit": {seed: _unit(own[0]) for seed, own in rows.items()},
        "factors": {of: {seed: [*map(_short, _by_layer(own[-1], of))] for seed, own in rows.items()} for of in FACTORS},
        "accuracy": {seed: values["accuracy"] for seed, values in score["seeds"].items()},
        "guesses": score.get("baselines") or {},
        "seconds": _seconds(run.training),
        "commit": run.facts["git_commit"],
        "machine": machine(),
        "date": time.strftime("%Y-%m-%d"),
        "config": run.config,
    }


def _seconds(rows: Sequence[Row]) -> float:
    """Of all the processes that trained it: each began its clock anew."""
    clock = [row["seconds"] for row in rows]
    return sum(before for before, after in zip(clock, [*clock[1:], 0.0], strict=True) if after < before)


def _by_layer(row: Row, quantity: str = "energy") -> list[float]:
    """Of every layer with an energy; NaN where there is no such quantity, as with a mode that grows."""
    values = of_layers(row, quantity)
    return [values.get(layer, math.nan) for layer in of_layers(row)]


def _over_layers(row: Row, quantity: str, over: Callable[[Sequence[float]], float]) -> float | None:
    values = _by_layer(row, quantity)
    return _short(over(values)) if all(map(math.isfinite, values)) else None


def _unit(row: Row) -> float | None:
    return _short(geometric(_by_layer(row, "energy_raw")) / geometric(_by_layer(row)))


def _over_time(row: Row, quantity: str) -> list[float | None]:
    """Geometric means over layers."""
    return [_short(geometric(values)) for values in zip(*of_layers(row, f"state_{quantity}_t").values(), strict=True)]


def _short(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None


def _is_present(cell: str, config: Any) -> bool:
    return cell in every_cell() and is_of(config, stability.get_config(cell).to_dict())


def recorded() -> dict[Key, Record]:
    """The records of those cells that were run before with the present config.

    Raises ConfigError for a damaged file, or one whose records are of another form.
    """
    try:
        written = strict_json.parse(RECORDS.read_bytes()) if RECORDS.exists() else []
        found = unsealed_all(written)
        if any(SEAL not in record for record in written):
            raise ValueError(f"a record has no {SEAL}")
        kept = {key_of(record["cell"]): record for record in found if _is_present(record["cell"], record["config"])}
    except (ConfigError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{RECORDS} is damaged ({error!r}): put back the committed one") from error
    if any(record.get("form") != FORM for record in found):
        raise ConfigError(f"{RECORDS} was written by another version: move it away, and give the folders of all cells")
    if len(kept) < len(found):
        left = len(found) - len(kept)
        print(f"{left} cells in {RECORDS} are of another config or of no cell of the study: they leave the page")
    return kept


def write(records: Iterable[Record]) -> None:
    """A line a cell, with a hash of itself: nobody edits numbers of a study."""
    RECORDS.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(sealed(record), allow_nan=False, separators=(",", ":")) for record in records)
    write_atomically(RECORDS, f"[\n{lines}\n]\n".encode())
