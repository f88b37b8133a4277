"""All figures of the report, as charts for scripts/figures.py."""

import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from data.errors import one_line
from scripts import figures
from scripts.figures import Chart, Line
from scripts.report.runs import Row
from scripts.report.settings import Setting
from scripts.report.stability import last_step, law, measured, of_layers
from scripts.report.statistics import geometric

COLUMNS = 4
"""Panels beside each other."""
POINTS = 40
"""Of a curve of losses, at most."""
LONGEST_NAME = 80
"""Of data in the name of a file; its end tells records apart."""
LONGEST_LABEL = 100
"""Of a model in a figure: there has to be room for what is drawn."""
GUIDE = "0.45"
DESIGN = Line("design value", [], [], GUIDE, dashed=True)
ENERGY = "state energy / design value"
STEP = "training step"

Rows = Mapping[int, Sequence[Row]]


@dataclass(frozen=True)
class Figure:
    """rows: of charts. keys: of the one legend. same_y: see `scripts.figures.grid`."""

    name: str
    caption: str
    rows: Sequence[Sequence[Chart]]
    keys: Sequence[Line]
    same_y: Literal["all", "row", "none"] = "row"

    def draw(self, folder: Path) -> None:
        """Writes name.png and name.pdf."""
        figures.grid(self.rows, self.keys, folder / self.name, self.same_y)


def all_figures(settings: Sequence[Setting], at: int | None = None) -> list[Figure]:
    """Stability first, then learning and depth. A figure compares runs on the same data, of the same depth.

    at: energies over t are drawn at step 0 and at the last probe up to this step.
    """
    found = []
    for name, title, group in _alike(measured(settings), lambda s: (s.data, s.first.config["model"]["depth"])):
        for make in (_over_training, partial(_over_time, at=at), _over_depth, _drift, _factors):
            found += make(name, title, group)
    taught = [s for s in settings if s.first.validation]
    for name, title, group in _alike(taught, lambda s: (s.data, s.first.config["model"]["depth"])):
        found += _learning(name, title, group)
    for name, title, group in _alike(taught, lambda s: (s.data,), len(taught)):
        found += _by_depth(name, title, group)
    return found


def _alike(
    settings: Sequence[Setting], key: Callable[[Setting], tuple], most: int = len(figures.COLOURS)
) -> Iterator[tuple[str, str, list[Setting]]]:
    """(part of a file name, of a caption, settings) of each group, in parts of at most as many as there are colours."""
    groups: dict[tuple, list[Setting]] = {}
    for setting in settings:
        groups.setdefault(key(setting), []).append(setting)
    for (data, *depth), group in groups.items():
        for start in range(0, len(group), most):
            more = [f"part{start // most + 1}"] if len(group) > most else []
            short = re.sub(r"[^\w]+", "-", data, flags=re.ASCII)[-LONGEST_NAME:]
            name = "_".join([short, *(f"depth{d}" for d in depth), *more])
            title = "; ".join([f"task {group[0].first.task}", *(f"depth {d}" for d in depth), *more])
            yield name, title, group[start : start + most]


def _over_training(name: str, title: str, group: Sequence[Setting]) -> list[Figure]:
    """A panel a setting, a colour a layer, a line a seed."""
    panels, deepest = [], _deepest(group)
    colours = figures.sequential(deepest)
    for setting in group:
        rows, lines = setting.rows("probes"), [_level(setting.rows("probes"))]
        for layer in range(deepest):
            lines += _seeds(rows, lambda row, layer=layer: of_layers(row).get(layer, math.nan), colours[layer])
        panels.append(Chart(_panel(setting), STEP, ENERGY, lines, log="y"))
    caption = (
        f"State energy of every layer over training, {title}: a thin line per seed, their geometric mean, and the "
        "range over seeds as a band, in units of the design value (dashed)."
    )
    return [Figure(f"energy_training_{name}", caption, _in_rows(panels), [*_layer_keys(colours), DESIGN], "all")]


def _over_time(name: str, title: str, group: Sequence[Setting], at: int | None) -> list[Figure]:
    """Two rows: at step 0 with the law of the initial decays, and at the last probe up to `at`."""
    found, deepest = [], _deepest(group)
    colours = figures.sequential(deepest)
    keys = [
        *_layer_keys(colours),
        Line("theory, white input", [], [], "black", dashed=True),
        Line("theory, measured autocovariance", [], [], "black", dotted=True),
    ]
    for start in range(0, len(group), COLUMNS):
        part = group[start : start + COLUMNS]
        first = [_energy_t(setting, 0, colours, "at step 0") for setting in part]
        ends = [last_step(setting.rows("probes"), at) for setting in part]
        last = [_energy_t(setting, end, colours, f"at step {end:,}") for setting, end in zip(part, ends, strict=True)]
        caption = (
            f"State energy at the t-th step of a sequence, {title}: geometric mean over seeds (thin: each seed), a "
            "colour a layer, in units of the design value. Dashed, what the parameters of that step give under white "
            "input, Σ g (1 - |λ|^(2t)) over the initial Σ g; in black the law from which the decays were drawn (zero "
            "start: the mean of 1 - γ^(2t) over the ring or range), where it has a closed form. Dotted, what they give "
            "under stationary input of the autocovariance measured in it: what is left between that and the curve is "
            "input that changes over time."
        )
        more = f"_{start // COLUMNS + 1}" if len(group) > COLUMNS else ""
        found.append(Figure(f"energy_time_{name}{more}", caption, [first, last], keys))
    return found


def _energy_t(setting: Setting, step: int, colours: Sequence[str], when: str) -> Chart:
    times = setting.first.facts["probe_times"]
    found = [row for own in setting.rows("probes").values() for row in own if row["step"] == step]
    lines, theory = [], law(setting, times) if step == 0 else None
    for layer, colour in enumerate(colours):
        for quantity in ("state_energy_t", "state_white_t", "state_coloured_t"):
            curves = [of_layers(row, quantity)[layer] for row in found if layer in of_layers(row, quantity)]
            white, coloured = quantity == "state_white_t", quantity == "state_coloured_t"
            if not curves:
                continue
            mean = [geometric([curve[k] for curve in curves]) for k in range(len(times))]
            lines += [] if white or coloured else [Line("", times, curve, colour, thin=True) for curve in curves]
            lines.append(Line("", times, mean, colour, dashed=white, dotted=coloured))
    if theory:
        lines.append(Line("", times, theory, "black", dashed=True))
    label = "time t / steps"
    return Chart(f"{_panel(setting)}\n{when}", label, ENERGY, lines, log="xy")


def _over_depth(name: str, title: str, group: Sequence[Setting]) -> list[Figure]:
    """Start, end, and median over heads at the end; a colour a setting."""
    deepest = _deepest(group)
    if deepest < 2:
        return []
    layers = list(range(1, deepest + 1))
    charts = []
    for when, quantity in (("step 0", "energy"), ("end", "energy"), ("end, median over heads", "energy_median")):
        lines = [Line("", [1, deepest], [1, 1], GUIDE, dashed=True)]
        for colour, setting in enumerate(group):
            rows = setting.rows("probes")
            step = 0 if when == "step 0" else last_step(rows)
            at = [row for own in rows.values() for row in own if row["step"] == step]
            curves = [[of_layers(row, quantity).get(layer - 1, math.nan) for layer in layers] for row in at]
            lines += [Line("", layers, curve, colour, thin=True) for curve in curves]
            lines.append(Line("", layers, [geometric([c[k] for c in curves]) for k in range(deepest)], colour))
        charts.append(Chart(when, "layer", ENERGY, lines, log="y"))
    caption = (
        f"State energy over depth, {title}: before training, at the end, and at the end its median over heads or "
        "modes, which few runaway modes do not move. A thin line per seed, their geometric mean."
    )
    return [Figure(f"energy_depth_{name}", caption, [charts], [*_setting_keys(group), DESIGN])]


def _drift(name: str, title: str, group: Sequence[Setting]) -> list[Figure]:
    """log10 of the energy over that of step 0."""
    charts = []
    for when, pick in (("mean over layers", _mean), ("the layer that moved most", lambda v: max(v, key=abs))):
        lines = []
        for colour, setting in enumerate(group):
            lines += _seeds(
                setting.rows("probes"), lambda row, pick=pick: _picked(row, "drift", pick), colour, log=False
            )
        charts.append(Chart(when, STEP, "drift / decades", lines))
    caption = (
        f"Drift of the state energy, log10 of energy over energy at step 0, {title}: a thin line per seed, their mean "
        "and range."
    )
    return [Figure(f"energy_drift_{name}", caption, [charts], _setting_keys(group))]


FACTORS = {
    "energy": "energy (sum over heads)",
    "energy_median": "energy (median over heads)",
    "gain_max": "largest gain of a head",
    "gain": "gain",
    "align": "align",
    "temporal": "temporal",
}


def _factors(name: str, title: str, group: Sequence[Setting]) -> list[Figure]:
    """The energy and its exact factors, geometric means over layers."""
    charts = []
    for quantity, words in FACTORS.items():
        lines = [_level(group[0].rows("probes"))]
        for colour, setting in enumerate(group):
            pick = max if quantity == "gain_max" else geometric
            lines += _seeds(
                setting.rows("probes"), lambda row, q=quantity, pick=pick: _picked(row, q, pick), colour
            )  # fmt: skip
        charts.append(Chart(words, STEP, "ratio", lines, log="y"))
    caption = (
        f"State energy and its exact factors, {title}: energy × share of a zero start = gain × align × temporal. "
        "Geometric means over layers (largest gain: the largest of all), a thin line per seed, their mean and range. "
        "Dashed: 1."
    )
    keys = [*_setting_keys(group), Line("1, as designed", [], [], GUIDE, dashed=True)]
    return [Figure(f"energy_factors_{name}", caption, [charts[:3], charts[3:]], keys, same_y="none")]


def _learning(name: str, title: str, group: Sequence[Setting]) -> list[Figure]:
    """Training loss and validation accuracy."""
    loss, accuracy = [], []
    for colour, setting in enumerate(group):
        loss += _seeds(_averaged(setting.rows("training")), lambda row: row["loss"], colour, log=False)
        accuracy += _seeds(setting.rows("validation"), lambda row: 100 * _number(row["accuracy"]), colour, log=False)
    baselines = next((r.get("baselines") for s in group for run in s.runs for r in run.results), None) or {}
    keys = _setting_keys(group)
    if "accuracy" in _metrics(group) and baselines:
        guess, value = max(baselines.items(), key=lambda item: item[1])
        accuracy.append(_level(group[0].rows("validation"), 100 * value))
        keys = [*keys, Line(f"best guess ({_short(guess.replace('_', ' '))})", [], [], GUIDE, dashed=True)]
    charts = [
        Chart("training", STEP, "loss / nats", loss),
        Chart("validation", STEP, "accuracy / %", accuracy),
    ]
    caption = (
        f"Learning curves, {title}: a thin line per seed, their mean, and the range over seeds as a band. Losses of "
        f"single batches, averaged to at most {POINTS} points."
    )
    return [Figure(f"learning_{name}", caption, [charts], keys, same_y="none")]


def _averaged(rows: Rows) -> Rows:
    """Losses of single batches, averaged over as many rows as leave at most 40 points."""
    found: dict[int, list[Row]] = {}
    for seed, own in rows.items():
        losses = [row for row in own if row["loss"] is not None and math.isfinite(row["loss"])]
        size = -(-len(losses) // POINTS) or 1
        parts = [losses[start : start + size] for start in range(0, len(losses), size)]
        found[seed] = [{"step": p[-1]["step"], "loss": _mean([row["loss"] for row in p])} for p in parts]
    return found


def _metrics(group: Sequence[Setting]) -> set[str]:
    return {record.get("metric", "accuracy") for setting in group for run in setting.runs for record in run.results}


def _by_depth(name: str, title: str, group: Sequence[Setting]) -> list[Figure]:
    """Test accuracy of settings that differ in nothing but their depth."""
    series: dict[str, dict[int, list[float]]] = {}
    for setting in group:
        score = setting.score()
        if score is not None and score.is_accuracy:
            label = _without_depth(setting.label)
            depth = setting.first.config["model"]["depth"]
            series.setdefault(label, {})[depth] = [100 * value for value in score.values.values()]
    series = {label: dict(sorted(found.items())) for label, found in series.items() if len(found) > 1}
    if not series:
        return []
    most, drawn = len(figures.COLOURS), []
    for start in range(0, len(series), most):
        lines, keys = [], []
        for colour, (label, found) in enumerate(list(series.items())[start : start + most]):
            lines += [Line("", [d] * len(values), values, colour, points=True) for d, values in found.items()]
            lines.append(Line("", list(found), [_mean(values) for values in found.values()], colour))
            keys.append(Line(_short(label), [], [], colour))
        more = f"_{start // most + 1}" if len(series) > most else ""
        caption = f"Test accuracy by depth, {title}: a point per seed, and their mean."
        chart = Chart("", "depth / layers", "test accuracy / %", lines)
        drawn.append(Figure(f"accuracy_depth_{name}{more}", caption, [[chart]], keys))
    return drawn


def _seeds(rows: Rows, value: Callable[[Row], float], colour: int | str, log: bool = True) -> list[Line]:
    """A thin line a seed, their mean (geometric if `log`) over the steps that all have, and their range."""
    curves = {seed: {row["step"]: value(row) for row in own} for seed, own in rows.items() if own}
    curves = {seed: {s: v for s, v in curve.items() if math.isfinite(v)} for seed, curve in curves.items()}
    curves = {seed: curve for seed, curve in curves.items() if curve}
    if not curves:
        return []
    steps = sorted(set.intersection(*(set(curve) for curve in curves.values())))
    columns = [[curve[step] for curve in curves.values()] for step in steps]
    band = [min(column) for column in columns], [max(column) for column in columns]
    thin = [Line("", list(curve), list(curve.values()), colour, thin=True) for curve in curves.values()]
    mean = geometric if log else _mean
    return [*(thin if len(thin) > 1 else []), Line("", steps, [mean(column) for column in columns], colour, band=band)]


def _picked(row: Row, quantity: str, pick: Callable[[list[float]], float]) -> float:
    """NaN too if a layer with an energy lacks it: see `stability.of_every`."""
    values = list(of_layers(row, quantity).values())
    return pick(values) if values and len(values) == len(of_layers(row)) else math.nan


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _level(rows: Rows, value: float = 1.0) -> Line:
    """A dashed guide over all steps."""
    steps = [row["step"] for own in rows.values() for row in own] or [0]
    return Line("", [min(steps), max(steps)], [value, value], GUIDE, dashed=True)


def _deepest(group: Sequence[Setting]) -> int:
    return max(len(row["state_energy"]) for setting in group for row in setting.first.probes[:1])


def _in_rows(panels: Sequence[Chart]) -> list[Sequence[Chart]]:
    return [panels[start : start + COLUMNS] for start in range(0, len(panels), COLUMNS)]


def _layer_keys(colours: Sequence[str]) -> list[Line]:
    return [Line(f"layer {layer}", [], [], colour) for layer, colour in enumerate(colours, start=1)]


def _setting_keys(group: Sequence[Setting]) -> list[Line]:
    """Of settings of one depth, which stands in the caption, or of any."""
    depths = {setting.first.config["model"]["depth"] for setting in group}
    label = _without_depth if len(depths) == 1 else str
    return [Line(_short(label(setting.label)), [], [], colour) for colour, setting in enumerate(group)]


def _panel(setting: Setting) -> str:
    """Its title: the depth stands in the caption."""
    return textwrap.fill(_short(_without_depth(setting.label)), 26)


def _short(label: str) -> str:
    """On one line, its beginning and its end if it is long."""
    label, half = one_line(label), LONGEST_LABEL // 2
    return label if len(label) <= LONGEST_LABEL else f"{label[:half]} ... {label[-half:]}"


def _without_depth(label: str) -> str:
    return re.sub(r", depth=\d+", "", label)
