"""The figures of docs/studies/stability.md, from the records of its cells."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from configs.stability import UPDATES
from scripts import figures
from scripts.figures import Chart, Line
from scripts.report.statistics import geometric
from scripts.stability_records import Key, Record

FOLDER = Path("docs/figures")
NAMES = {
    "rotrnn": "RotRNN",
    "rotrnn_folded": "RotRNN, folded",
    "rotrnn_off": "RotRNN, off",
    "rotrnn_stationary": "RotRNN, stationary",
    "rotrnn_identity": "RotRNN, P = 1",
    "lru": "LRU",
    "lru_recomputed": "LRU, recomputed γ",
    "lru_off": "LRU, no γ",
    "s5": "S5",
}
DEPTHS = (2, 4, 6)
MODELS = ("rotrnn", "lru", "lru_recomputed", "lru_off", "s5")
"""Those of every depth."""
BASE = ("rotrnn", "rotrnn_folded", "lru", "s5")
"""Those of the long runs and of the spoken digits."""
LONG = 6_000
"""Updates of the long runs."""
ENERGY = "energy / design value"
STEP = "update"
GUIDE = "0.45"

Cells = Mapping[Key, Record]
Curves = Mapping[str, Sequence[float | None]]
"""Seed -> values."""


def long_key(layer: str) -> Key:
    """Of its long run."""
    return Key(layer, updates=LONG)


def digits_key(layer: str, depth: int = 4) -> Key:
    """Of its run on spoken digits."""
    return Key(layer, depth, task="fsdd", updates=UPDATES["fsdd"])


def draw(cells: Cells) -> list[str]:
    """Writes those figures that there are runs for, and gives their names."""
    drawn = []
    for name, rows, keys in (
        ("training", _training(cells), [*_depth_keys(), MEASURED, GAIN, DESIGN]),
        ("depth", _depth(cells), [MEASURED, DESIGN]),
        ("time", _time(cells), [MEASURED, WHITE, COLOURED, DESIGN]),
        ("long", _long(cells), [MEASURED, GAIN, DESIGN]),
    ):
        rows = [row for row in rows if row]
        if rows:
            FOLDER.mkdir(parents=True, exist_ok=True)
            figures.grid(rows, keys, FOLDER / f"stability_{name}", "row")
            drawn.append(name)
    return drawn


MEASURED = Line("measured (thin: a seed)", [], [], "black")
GAIN = Line("guaranteed by the parameters (gain)", [], [], "black", dashed=True)
DESIGN = Line("1, as designed", [], [], GUIDE, dashed=True)
WHITE = Line("theory, white input", [], [], 0, dashed=True)
COLOURED = Line("theory, measured autocovariance", [], [], 1, dotted=True)


def _training(cells: Cells) -> list[list[Chart]]:
    """Two rows for each rate, a panel a model, a colour a depth."""
    rows = []
    for rate in ("small", "large"):
        for layers in (("rotrnn", "lru", "s5"), ("rotrnn_folded", "lru_recomputed", "lru_off")):
            panels = []
            for layer in layers:
                lines = []
                for depth, colour in zip(DEPTHS, figures.sequential(len(DEPTHS)), strict=True):
                    if record := cells.get(Key(layer, depth, rate)):
                        lines += [*_with_gain(record, colour), _one(record["steps"])]
                if lines:
                    panels.append(Chart(f"{NAMES[layer]}, {rate} rate", STEP, ENERGY, lines, log="y"))
            rows.append(panels)
    return rows


def _with_gain(record: Record, colour: str | int) -> list[Line]:
    steps, probes = record["steps"], record["probes"]
    gain = Line("", steps, _where_all(probes["gain"], probes["energy"]), colour, dashed=True)
    return [*_seeds(steps, probes["energy"], colour), gain]


def _depth(cells: Cells) -> list[list[Chart]]:
    """Energy of each layer at the end, of the deepest models: a row a rate, a panel a model."""
    rows, places = [], list(range(1, max(DEPTHS) + 1))
    for rate in ("small", "large"):
        panels = []
        for layer in MODELS:
            if record := cells.get(Key(layer, max(DEPTHS), rate)):
                ends = {seed: probes[-1] for seed, probes in record["layers"].items()}
                lines = [*_seeds(places, ends, "black"), _one(places)]
                panels.append(Chart(f"{NAMES[layer]}\n{rate} rate", "layer", ENERGY, lines, log="y"))
        rows.append(panels)
    return rows


def _time(cells: Cells) -> list[list[Chart]]:
    """At the start and at the end, of depth 4; a panel a model."""
    rows = []
    for when, rate in (("start", "small"), ("end", "small"), ("end", "large")):
        panels = []
        for layer in ("rotrnn", "rotrnn_folded", "rotrnn_stationary", "lru"):
            if record := cells.get(Key(layer, 4, rate)):
                curves, times = record["over_time"][when], record["times"]
                lines = [
                    *_seeds(times, curves["energy"], "black"),
                    Line("", times, _mean(curves["white"]), 0, dashed=True),
                    Line("", times, _mean(curves["coloured"]), 1, dotted=True),
                    _one(times),
                ]
                title = f"{NAMES[layer]}\n{'step 0' if when == 'start' else f'end, {rate} rate'}"
                panels.append(Chart(title, "time t / steps", ENERGY, lines, log="xy"))
        rows.append(panels)
    return rows


def _long(cells: Cells) -> list[list[Chart]]:
    """Long training, and the other data; a panel a model."""
    rows = []
    for what, key in ((f"{LONG:,} updates", long_key), ("spoken digits", digits_key)):
        panels = []
        for layer in BASE:
            if record := cells.get(key(layer)):
                lines = [*_with_gain(record, 0), _one(record["steps"])]
                panels.append(Chart(f"{NAMES[layer]}\n{what}", STEP, ENERGY, lines, log="y"))
        rows.append(panels)
    return rows


def _depth_keys() -> list[Line]:
    colours = figures.sequential(len(DEPTHS))
    return [Line(f"depth {depth}", [], [], colour) for depth, colour in zip(DEPTHS, colours, strict=True)]


def _seeds(x: Sequence[float], curves: Curves, colour: str | int) -> list[Line]:
    """A thin line a seed, and their mean."""
    thin = [Line("", x, [math.nan if v is None else v for v in curve], colour, thin=True) for curve in curves.values()]
    return [*thin, Line("", x, _mean(curves), colour)]


def _mean(curves: Curves) -> list[float]:
    """Geometric, over seeds."""
    return [geometric([v for v in column if v is not None]) for column in zip(*curves.values(), strict=True)]


def _where_all(curves: Curves, energies: Curves) -> list[float]:
    """Their mean, at those probes where every seed with an energy has one."""
    found, expected = ([column.count(None) for column in zip(*of.values(), strict=True)] for of in (curves, energies))
    return [m if f == e else math.nan for m, f, e in zip(_mean(curves), found, expected, strict=True)]


def _one(x: Sequence[float]) -> Line:
    """The design value."""
    return Line("", [x[0], x[-1]], [1, 1], GUIDE, dashed=True)
