"""State energies of all runs in numbers: every layer and seed over training and over t, and the theory beside them."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from scripts.report.runs import Row
from scripts.report.settings import Setting
from scripts.report.statistics import geometric
from scripts.report.table import Cell, Line, Table, harmless
from theory.diagonal import lru_energy, lru_limit, rotrnn_range_energy
from theory.laws import Gamma

QUANTITIES = {
    "energy": "state_energy",
    "energy_median": "state_energy_median",
    "drift": "state_energy_drift",
    "gain": "state_gain",
    "gain_max": "state_gain_max",
    "align": "state_align",
    "temporal": "state_temporal",
    "energy_raw": "state_energy_raw",
}
"""Column of the csv -> key of a row of metrics.jsonl (training/probe.py)."""

MEANING = (
    "Energies are in units of the design value: what the initial parameters of that layer and seed give under white "
    "unit input, so that RotRNN, LRU and S5 stand on one scale and 1 means as designed. energy × (share of the "
    "stationary energy that a zero start reaches) = gain × align × temporal, exactly: gain is what the parameters "
    "guarantee under white input, align what their turning towards strong input directions adds, temporal the rest "
    "(inputs correlated in time, the zero start). Geometric means over layers and seeds; in brackets the range. –: a "
    "mode grows (|λ| ≥ 1, as S5 allows), and its energy under white input has no limit."
)


def measured(settings: Sequence[Setting]) -> list[Setting]:
    """Settings with a layer whose state has an energy, and a probe."""
    return [setting for setting in settings if any(of_layers(row) for row in setting.first.probes)]


def of_layers(row: Row, quantity: str = "energy") -> dict[int, Any]:
    """Layer (from 0) -> value; a layer without it, or without a finite one, is left out."""
    values = row.get(QUANTITIES.get(quantity, quantity)) or []
    return {layer: value for layer, value in enumerate(values) if value is not None and value == value}


def of_all(rows: Mapping[int, Sequence[Row]], step: int, quantity: str) -> list[float]:
    """The values of all layers and seeds at a step."""
    return [v for own in rows.values() for row in own if row["step"] == step for v in of_layers(row, quantity).values()]


def of_every(rows: Mapping[int, Sequence[Row]], step: int, quantity: str) -> list[float]:
    """The same, and none if one that has an energy lacks it: a mean over the others would tell of them alone."""
    values = of_all(rows, step, quantity)
    return values if len(values) == len(of_all(rows, step, "energy")) else []


def last_step(rows: Mapping[int, Sequence[Row]], at: int | None = None) -> int:
    """The last step, up to `at`, that every seed was probed at."""
    probed = [{row["step"] for row in own} for own in rows.values() if own]
    return max((step for step in set.intersection(*probed) if at is None or step <= at), default=0) if probed else 0


def law(setting: Setting, times: Sequence[int]) -> list[float] | None:
    """What the law of the initial decays says of the energy at t under white input, in units of the design value.

    RotRNN from the zero start 1 - gamma^(2t), LRU per mode likewise, averaged over the ring or range; None where there
    is no closed form (S5, whose init is no law; gains that differ from head to head).
    """
    options = setting.first.config["model"]["options"]
    try:
        return _law(setting.first.layer, options, times)
    except (LookupError, TypeError, ValueError, ArithmeticError):  # options of another version, or none of ours
        return None


def _law(layer: str, options: Mapping[str, Any], times: Sequence[int]) -> list[float] | None:
    match layer:
        case "rotrnn":
            return _rotrnn_law(options, times)
        case "lru":
            ring = options["r_min"], options["r_max"]
            gamma = Gamma(options["gamma"])
            limit = lru_limit(*ring) if gamma is Gamma.OFF else 1.0
            return [float(lru_energy(*ring, t - 1, gamma)) / limit for t in times] if math.isfinite(limit) else None
        case _:
            return None


def _rotrnn_law(options: Mapping[str, Any], times: Sequence[int]) -> list[float] | None:
    low, high = options["gamma_min"], options["gamma_max"]
    if options["normalise"] == "off" or low == high:
        return None
    if options["start"] == "stationary":
        return [1.0] * len(times)
    by_init = "ring" if options["init"] == "appendix" else "log_uniform"
    law_of_gamma = by_init if options["gamma_init"] == "by_init" else options["gamma_init"]
    if law_of_gamma == "ring":
        return [float(lru_energy(low, high, t - 1)) for t in times]
    return [float(rotrnn_range_energy(low, high, t)) for t in times]


def over_training_csv(settings: Sequence[Setting]) -> str:
    """One line a setting, seed, layer and probe."""
    lines = [["task", "data", "setting", "seed", "layer", "step", *QUANTITIES]]
    for setting in measured(settings):
        for seed, rows in setting.rows("probes").items():
            for row in rows:
                found = {quantity: of_layers(row, quantity) for quantity in QUANTITIES}
                lines += [
                    [*_place(setting), seed, layer + 1, row["step"], *(found[q].get(layer, "") for q in QUANTITIES)]
                    for layer in found["energy"]
                ]
    return _csv(lines)


def over_time_csv(settings: Sequence[Setting], at: int | None = None) -> str:
    """One line a setting, seed, layer and t, at the first probe and the last up to step `at`.

    white, coloured: what the parameters of that moment give under white input, and under stationary input of the
    measured autocovariance; law: see `law`.
    """
    lines = [["task", "data", "setting", "seed", "layer", "step", "t", "energy", "white", "coloured", "law"]]
    for setting in measured(settings):
        times = setting.first.facts["probe_times"]
        laws = law(setting, times) or [""] * len(times)
        rows = setting.rows("probes")
        shown = 0, last_step(rows, at)
        for seed, own in rows.items():
            for row in (row for row in own if row["step"] in shown):
                theory = [of_layers(row, f"state_{inputs}_t") for inputs in ("white", "coloured")]
                for layer, energies in of_layers(row, "state_energy_t").items():
                    white, coloured = (curves.get(layer, [""] * len(times)) for curves in theory)
                    lines += [
                        [*_place(setting), seed, layer + 1, row["step"], t, *map(_finite, (e, w, c)), l]
                        for t, e, w, c, l in zip(times, energies, white, coloured, laws, strict=True)
                    ]
    return _csv(lines)


def _place(setting: Setting) -> tuple[str, str, str]:
    return setting.first.task, setting.first.facts.get("data_sha256", ""), setting.label


def _finite(value: float | str) -> float | str:
    return value if value == "" or math.isfinite(float(value)) else ""


def _csv(lines: Sequence[Sequence[object]]) -> str:
    out = io.StringIO()
    texts = ([harmless(cell) if isinstance(cell, str) else cell for cell in line] for line in lines)
    csv.writer(out, lineterminator="\n").writerows(texts)
    return out.getvalue()


COLUMNS = ("energy", "energy_median", "gain", "gain_max", "align", "temporal")


def table(settings: Sequence[Setting]) -> Table | None:
    """One row a setting: energies and their factors at the end, beside the energy at the start."""
    lines = []
    for setting in measured(settings):
        rows = setting.rows("probes")
        end = last_step(rows)
        start = geometric(of_all(rows, 0, "energy"))
        cells = [Cell(spread(of_every(rows, end, quantity), quantity == "gain_max")) for quantity in COLUMNS]
        place = [Cell(setting.label), Cell(setting.first.task), Cell(str(setting.first.config["model"]["depth"]))]
        lines.append(Line([*place, Cell(str(end)), Cell(f"{start:.3g}"), *cells], setting.commands()))
    heads = ["model", "task", "depth", "step", "energy at 0", "energy", "median over heads", "gain", "largest gain",
             "align", "temporal"]  # fmt: skip
    title = "State energies at the end of training, in units of the design value"
    return Table("stability", title, heads, lines, [("", MEANING)]) if lines else None


def spread(values: Sequence[float], largest: bool = False) -> str:
    """Geometric mean and range, or the largest value alone."""
    if not values:
        return "–"
    if largest:
        return f"{max(values):.3g}"
    return f"{geometric(values):.3g} ({min(values):.3g} to {max(values):.3g})"
