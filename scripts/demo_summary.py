"""Figure and tables of the demo, made from its run folders alone."""

import math
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from configs import demo
from scripts import figures
from scripts.workers import machine
from training.errors import ConfigError
from training.files import write_atomically, write_json
from training.results import read_results
from training.workdir import METRICS, RESULTS
from training.writers import read_metrics

MEANING = (
    "The gain is the state energy that the parameters guarantee under white input: xi holds it at 1 in every head and "
    "seed at every probe (here within {xi:.0e}), while without xi ({folded:.3g} on average at the end) and in the LRU "
    "({lru:.3g}) training moves it. The measured energy also follows the real input (energy = gain x align x "
    "temporal): it rises where B turns towards strong input directions (align, here {align:.3g} on average) and inputs "
    "are correlated in time (temporal, {temporal:.3g}), which no normalisation of the parameters prevents."
)
NAMES = {"rotrnn": "RotRNN", "rotrnn_folded": "RotRNN folded (no xi)", "lru": "LRU"}
FACTORS = ("state_energy", "state_gain", "state_align", "state_temporal")

Row = dict[str, Any]


def summarise(out: Path, folders: dict[str, Path]) -> str:
    """Writes state_energy.png, summary.md and summary.json; returns what to print."""
    cells = {cell: _read(cell, folder) for cell, folder in folders.items()}
    figure, table, numbers = out / "state_energy.png", out / "summary.md", out / "summary.json"
    meaning = _meaning(list(cells.values()))
    figures.state_energy(_panels(cells), meaning, figure)
    write_json(
        numbers, {"meaning": meaning, "machine": _machine(), "cells": [_without_rows(c) for c in cells.values()]}
    )
    overview = _overview(list(cells.values()))
    write_atomically(table, _markdown(overview, meaning, list(cells.values())).encode())
    return "\n".join(["", overview, "", meaning, "", *(f"{path}" for path in (figure, table, numbers))])


def _meaning(cells: Sequence[dict[str, Any]]) -> str:
    """What the figure says, with the numbers that say it."""

    def mean(key: str, *layers: str) -> float:
        return _mean([layer[key] for cell in cells if cell["layer"] in layers for layer in cell["layers"]])

    held = [row for cell in cells if cell["layer"] == "rotrnn" for row in cell["rows"]]
    return MEANING.format(
        xi=max(abs(gain - 1) for row in held for gain in (*row["state_gain"], *row["state_gain_max"])),
        folded=mean("gain_end", "rotrnn_folded"),
        lru=mean("gain_end", "lru"),
        align=mean("align_end", *NAMES),
        temporal=mean("temporal_end", *NAMES),
    )


def _read(cell: str, folder: Path) -> dict[str, Any]:
    """What one run says: energies and factors of every layer and seed at start and end, scores, baselines."""
    values = demo.values_of(cell)
    rows = [row for row in read_metrics(folder / METRICS) if row["split"] == "train" and "state_energy" in row]
    validation = [row for row in read_metrics(folder / METRICS) if row["split"] == "val"]
    for kind in (rows, validation):
        for step in (0, demo.STEPS):
            if {row["seed"] for row in kind if row["step"] == step} != set(demo.SEEDS):
                raise ConfigError(f"{folder / METRICS} lacks rows of step {step}: remove {folder} and run again")
    start, end = ({row["seed"]: row for row in rows if row["step"] == step} for step in (0, demo.STEPS))
    layers = [
        {
            "seed": seed,
            "block": block,
            "energy_start": start[seed]["state_energy"][block],
            **{f"{name.removeprefix('state_')}_end": end[seed][name][block] for name in FACTORS},
            "gain_max_end": end[seed]["state_gain_max"][block],
            "energy_median_end": end[seed]["state_energy_median"][block],
        }
        for seed in sorted(end)
        for block in range(values["depth"])
    ]
    scores = {r["split"]: r for r in read_results(folder / RESULTS) if r["checkpoint"] == "last"}
    return {
        "layer": values["layer"],
        "depth": values["depth"],
        "rate": values["rate"],
        "layers": layers,
        "validation": validation,
        "scores": scores,
        "rows": rows,
    }


def _without_rows(cell: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in cell.items() if key != "rows"}


def _panels(cells: dict[str, dict[str, Any]]) -> list[list[figures.Panel]]:
    """A row for each depth and rate, a column for each layer."""
    grid: dict[tuple[int, str], list[figures.Panel]] = {}
    for cell in cells.values():
        title = f"{NAMES[cell['layer']]}, depth {cell['depth']}, {cell['rate']} rate"
        panel = figures.Panel(title, _curves(cell["rows"], cell["depth"]))
        grid.setdefault((cell["depth"], cell["rate"]), []).append(panel)
    return list(grid.values())


def _curves(rows: Sequence[Row], depth: int) -> list[figures.Curve]:
    curves = []
    for seed in sorted({row["seed"] for row in rows}):
        own = [row for row in rows if row["seed"] == seed]
        steps = [row["step"] for row in own]
        for block in range(depth):
            energy, gain = ([row[name][block] for row in own] for name in ("state_energy", "state_gain"))
            curves.append(figures.Curve(block, steps, energy, gain))
    return curves


def _overview(cells: Sequence[dict[str, Any]]) -> str:
    """One line a run: geometric means over layers and seeds, and their range; scores beside what guessing scores."""
    lines = [
        "| layer | depth | rate | energy at start | energy at end (range) | gain (largest head) | align | temporal "
        "| validation % start, end | test accuracy % |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        column = {key: [layer[key] for layer in cell["layers"]] for key in cell["layers"][0]}
        energies = column["energy_end"]
        lines.append(
            f"| {NAMES[cell['layer']]} | {cell['depth']} | {cell['rate']} | {_mean(column['energy_start']):.2f} "
            f"| {_mean(energies):.2f} ({min(energies):.2f} to {max(energies):.2f}) "
            f"| {_mean(column['gain_end']):.3f} ({max(column['gain_max_end']):.3g}) | {_mean(column['align_end']):.2f} "
            f"| {_mean(column['temporal_end']):.2f} | {_validation(cell['validation'])} "
            f"| {_accuracy(cell['scores']['test'])} |"
        )
    return "\n".join([*lines, "", _baselines(cells[0]["scores"])])


def _mean(values: Sequence[float]) -> float:
    """Geometric mean: energies are ratios."""
    return math.exp(statistics.fmean(map(math.log, values)))


def _validation(rows: Sequence[Row]) -> str:
    """Mean over seeds at the first step and at the last."""
    start, end = (statistics.fmean(row["accuracy"] for row in rows if row["step"] == step) for step in (0, demo.STEPS))
    return f"{100 * start:.1f}, {100 * end:.1f}"


def _accuracy(test: dict[str, Any]) -> str:
    """Mean and deviation over seeds, and the 95 % interval that one test of that many records leaves."""
    middle = statistics.fmean(seed["interval"][1] - seed["interval"][0] for seed in test["seeds"].values()) / 2
    return f"{100 * test['mean']:.1f} ± {100 * test['std']:.1f} (test set ± {100 * middle:.1f})"


def _baselines(scores: dict[str, dict[str, Any]]) -> str:
    guesses = "; ".join(
        f"{record['count']:,} {split} expressions: majority class {100 * record['baselines']['majority']:.1f} %, "
        f"from the root operator alone {100 * record['baselines']['root_operator']:.1f} %"
        for split, record in scores.items()
    )
    return (
        f"Guessing scores, on {guesses}. An accuracy near the second number means that nothing was computed. "
        "± after an accuracy: deviation over seeds; in brackets the 95 % interval of the test set."
    )


def _markdown(overview: str, meaning: str, cells: Sequence[dict[str, Any]]) -> str:
    lines = [
        "# Hidden-state energy on short ListOps",
        "",
        f"`make demo`, {_machine()}. Energies are relative to the design value of the initial parameters; geometric "
        "means over layers and seeds.",
        "",
        overview,
        "",
        meaning,
        "",
        "![state energy](state_energy.png)",
        "",
        "## Every layer and seed",
        "",
        "energy at the end = gain x align x temporal / (share of the stationary energy that a zero start reaches).",
        "",
        "| layer | depth | rate | seed | block | energy at start | energy | median head | gain | largest head "
        "| align | temporal | test % (95 % interval) |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        for layer in cell["layers"]:
            scored = cell["scores"]["test"]["seeds"][str(layer["seed"])]
            low, high = (100 * bound for bound in scored["interval"])
            lines.append(
                f"| {NAMES[cell['layer']]} | {cell['depth']} | {cell['rate']} | {layer['seed']} | {layer['block'] + 1} "
                f"| {layer['energy_start']:.3f} | {layer['energy_end']:.3f} | {layer['energy_median_end']:.3f} "
                f"| {layer['gain_end']:.4f} | {layer['gain_max_end']:.4g} | {layer['align_end']:.3f} "
                f"| {layer['temporal_end']:.3f} | {100 * scored['accuracy']:.1f} ({low:.1f} to {high:.1f}) |"
            )
    return "\n".join([*lines, "", _baselines(cells[0]["scores"]), ""])


def _machine() -> str:
    return f"{machine()}, {time.strftime('%Y-%m-%d')}"
