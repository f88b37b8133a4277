"""A verdict on each claim of the RotRNN study, from the records of the study of stability."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from scipy.stats import chi2

from scripts.report.statistics import difference
from scripts.stability_figures import BASE, DEPTHS, LONG, MODELS, NAMES, Cells, digits_key, long_key
from scripts.stability_records import FACTORS, Key, Record

RATES = ("small", "large")
HELD = ("rotrnn", "rotrnn_stationary", "rotrnn_identity")
"""Layers whose gain xi holds."""
ABLATIONS = ("rotrnn_folded", "rotrnn_off", "rotrnn_stationary", "rotrnn_identity")
CONSTANT = 1.25
"""A ratio between 1 / 1.25 and 1.25 counts as constant."""
ROUNDING = 1e-5
"""A gain this near 1 is 1 in float32."""
SETTLED = 1.1
"""From then on within this factor of where it ends."""


Part = tuple[str, str, list[str]]
"""Title, verdict, table."""


class Ratio(NamedTuple):
    """Geometric mean over seeds, and its 95 % interval (NaN for one seed)."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "–"
        return f"{self.mean:.3g}" + (f" [{self.low:.3g}, {self.high:.3g}]" if self.low < self.high else "")

    @property
    def is_constant(self) -> bool:
        return self.low >= 1 / CONSTANT and self.high <= CONSTANT

    @property
    def is_moved(self) -> bool:
        return self.low > CONSTANT or self.high < 1 / CONSTANT


NONE = Ratio(math.nan, math.nan, math.nan)
"""Of what some seed does not have: a gain, with modes that grow."""


def ratio(a: Mapping[str, float], b: Mapping[str, float]) -> Ratio:
    """a / b by Student's t on logarithms, paired over the seeds that both have."""
    logs = [{int(seed): math.log(values[seed]) for seed in sorted(a.keys() & b.keys())} for values in (a, b)]
    found = difference(*logs)
    exact = len(logs[0]) > 1 and math.isnan(found.p)  # no spread at all
    return Ratio(*map(math.exp, (found.mean, *((found.mean,) * 2 if exact else found.interval))))


def at(record: Record, place: int, of: str = "energy") -> dict[str, float]:
    """Seed -> the mean over layers at a probe; without seeds that were not finite."""
    return {seed: curve[place] for seed, curve in record["probes"][of].items() if curve[place] is not None}


def moved(record: Record, of: str = "energy") -> Ratio:
    """End over start."""
    end = at(record, -1, of)
    return ratio(end, at(record, 0, of)) if len(end) == len(at(record, -1)) else NONE


def settled_at(record: Record) -> float:
    """The first probe from which the energy stays near where it ends, mean over seeds."""
    steps, found = record["steps"], []
    for curve in record["probes"]["energy"].values():
        away = [
            k for k, v in enumerate(curve) if v is None or not 1 / SETTLED <= v / (curve[-1] or math.nan) <= SETTLED
        ]
        found.append(steps[min(max(away, default=-1) + 1, len(steps) - 1)])
    return statistics.fmean(found)


def absolute(record: Record, energies: Mapping[str, float]) -> dict[str, float]:
    """Not in units of the design value, which is another one where a gain is left out."""
    return {seed: energy * record["unit"][seed] for seed, energy in energies.items()}


def over(a: Record, b: Record) -> Ratio:
    """Of absolute energies at the end."""
    return ratio(*(absolute(record, at(record, -1)) for record in (a, b)))


def layer_spread(record: Record, place: int, of: str = "energy") -> Ratio:
    """The layer of the highest energy over that of the lowest in each seed; of: the energy, or a factor at the end."""
    energies = {seed: probes[place] for seed, probes in record["layers"].items()}
    values = energies if of == "energy" else record["factors"][of]
    ends = [{seed: values[seed][own.index(extreme(own))] for seed, own in energies.items()} for extreme in (max, min)]
    return NONE if any(None in end.values() for end in ends) else ratio(*ends)


def highest_layers(record: Record) -> str:
    """At the end, one a seed, counted from 1."""
    return ", ".join(str(probes[-1].index(max(probes[-1])) + 1) for probes in record["layers"].values())


def claims(cells: Cells) -> list[str]:
    """A part for each claim that there are runs for."""
    order = (_training, _depth, _seeds, _drift, _all_times, _ablations, _gains, _long, _digits, _scores)
    parts, lines = [claim(cells) for claim in order], []
    for place, (title, verdict, table) in enumerate((part for part in parts if part), start=1):
        lines += [f"### {place}. {title}", "", verdict, "", *table, ""]
    return lines


def _grid(heads: Sequence[str], rows: Mapping[str, Sequence[object]]) -> list[str]:
    cells = [(name, *map(str, row)) for name, row in rows.items()]
    return [f"| {' | '.join(row)} |" for row in (heads, ("---",) * len(heads), *cells)]


def _constancy(ratios: Iterable[Ratio]) -> str:
    """The verdict on a claim that they are constant."""
    ratios = list(ratios)
    if all(found.is_constant for found in ratios):
        return "**Holds**"
    return "**Does not hold**" if any(found.is_moved for found in ratios) else "**Not decided**"


def _of(cells: Cells, layer: str) -> dict[str, Record]:
    """The short runs of a layer on ListOps, by rate and depth."""
    keys = {f"{rate} rate, depth {depth}": Key(layer, depth, rate) for rate in RATES for depth in DEPTHS}
    return {name: cells[key] for name, key in keys.items() if key in cells}


def _training(cells: Cells) -> Part | None:
    runs = _of(cells, "rotrnn")
    if not runs:
        return None
    held = [record for key, record in cells.items() if key.layer in HELD]
    errors = [error for record in held for curve in record["probes"]["gain_error"].values() for error in curve if error]
    error = max(errors, default=0.0)
    verdict = (
        f"**{'Holds' if error <= ROUNDING else 'Does not hold'}** of what its parameters guarantee: in the {len(held)} "
        f"cells with xi the gain is 1 to within {error:.1g} in every layer and seed at every probe. "
        f"{_constancy(map(moved, runs.values()))} of the energy on real input: end of training over its start."
    )
    rows = {name: [moved(run, of) for of in ("energy", *FACTORS)] for name, run in runs.items()}
    heads = ("RotRNN", "energy, end / start", "gain", "align", "temporal")
    return "RotRNN's state energy is constant over training", verdict, _grid(heads, rows)


def _depth(cells: Cells) -> Part | None:
    found = {
        f"{NAMES[layer]}, {rate} rate": [
            *(layer_spread(cells[key], place) for place in (0, -1)),
            *(layer_spread(cells[key], -1, of) for of in FACTORS),
            highest_layers(cells[key]),
        ]
        for layer in MODELS
        for rate in RATES
        if (key := Key(layer, max(DEPTHS), rate)) in cells
    }
    own = [layer_spread(cells[key], -1) for rate in RATES if (key := Key("rotrnn", max(DEPTHS), rate)) in cells]
    if not own:
        return None
    verdict = (
        f"{_constancy(own)}: the highest layer over the lowest, models of depth {max(DEPTHS)}, and the factors of "
        f"these two layers at the end."
    )
    heads = ("model", "start", "end", *FACTORS, "highest layer, a seed each")
    return "It is constant over depth", verdict, _grid(heads, found)


def _seeds(cells: Cells) -> Part | None:
    runs = {layer: _of(cells, layer) for layer in MODELS}
    if not runs["rotrnn"]:
        return None
    spread = {layer: _pooled(own.values()) for layer, own in runs.items() if own}
    found = {
        NAMES[layer]: [spread[layer], *(_scatter(own[name]) if name in own else "" for name in runs["rotrnn"])]
        for layer, own in runs.items()
        if own
    }
    own = spread["rotrnn"]
    verdict = "Holds" if own.is_constant else "Does not hold" if own.is_moved else "Not decided"
    shown = (
        f"**{verdict}** (as a ratio would): one standard deviation over seeds at the end of training, as a factor. In "
        f"the first column all runs pooled, with the 95 % interval of χ² on the variance of the logarithm."
    )
    return "It is the same for every seed", shown, _grid(("model", "all", *runs["rotrnn"]), found)


def _logs(record: Record) -> list[float]:
    return [math.log(energy) for energy in at(record, -1).values()]


def _scatter(record: Record) -> str:
    return f"{math.exp(statistics.stdev(_logs(record))):.2f}"


def _pooled(records: Iterable[Record]) -> Ratio:
    """The factor of one standard deviation over the seeds of each."""
    logs = [_logs(record) for record in records]
    freedom = sum(len(values) - 1 for values in logs)
    squares = sum(statistics.variance(values) * (len(values) - 1) for values in logs)
    low, high = (float(chi2.ppf(share, freedom)) for share in (0.975, 0.025))
    return Ratio(*(math.exp(math.sqrt(squares / over)) for over in (freedom, low, high)))


def _drift(cells: Cells) -> Part | None:
    own, other = _of(cells, "rotrnn"), _of(cells, "lru")
    both = [name for name in own if name in other]
    if not both:
        return None
    more = {name: _against(other[name], own[name]) for name in both}
    slower = sum(settled_at(other[name]) > settled_at(own[name]) for name in both)
    verdict = (
        f"That it drifts more than RotRNN: {_everywhere(more.values())}. That it takes longer to settle: in {slower} "
        f"of {len(both)}. *Settled* is the update from which the energy stays within a tenth of where it ends, "
        f"a mean over seeds, of probes every 50 updates."
    )
    rows = {
        name: (
            *(moved(run) for run in (other[name], own[name])),
            more[name],
            moved(other[name], "gain"),
            f"{max(at(other[name], -1, 'gain_max').values()):.3g}",
            *(f"{settled_at(run):.0f}" for run in (other[name], own[name])),
        )
        for name in both
    }
    heads = ("", "LRU, end / start", "RotRNN, end / start", "LRU / RotRNN", "gain of LRU", "largest of a mode",
             "LRU settled", "RotRNN settled")  # fmt: skip
    return "The energy of an LRU drifts, and takes long to settle", verdict, _grid(heads, rows)


def _everywhere(ratios: Iterable[Ratio]) -> str:
    """The verdict on a claim that they are above 1."""
    ratios = list(ratios)
    if all(found.low > 1 for found in ratios):
        return "**Holds**"
    above, below = sum(found.low > 1 for found in ratios), sum(found.high < 1 for found in ratios)
    return f"**Holds in {above} of {len(ratios)}**, the contrary in {below}" if above else "**Does not hold**"


def _against(a: Record, b: Record) -> Ratio:
    """What one energy moved over what another one did."""
    moves = [{seed: end / at(run, 0)[seed] for seed, end in at(run, -1).items()} for run in (a, b)]
    return ratio(*moves)


def _all_times(cells: Cells) -> Part | None:
    pairs = {
        f"{NAMES[layer]}, {rate} rate": (Key(layer, 4, rate), Key("rotrnn", 4, rate))
        for rate in RATES
        for layer in ("rotrnn_folded", "rotrnn_off")
    }
    pairs[f"{NAMES['rotrnn_folded']}, spoken digits"] = digits_key("rotrnn_folded"), digits_key("rotrnn")
    rows, ratios = {}, []
    for name, pair in pairs.items():
        if cells.keys() >= {*pair}:
            found = _over_times(*(cells[key] for key in pair))
            times = [*found]
            shown = [times[round(share * (len(times) - 1))] for share in (0, 0.25, 0.5, 0.75, 1)]
            rows[name] = [f"t = {t}: {found[t]}" for t in shown]
            ratios += found.values()
    if not rows:
        return None
    apart = sum(found.low > 1 or found.high < 1 for found in ratios)
    verdict = (
        f"**{'Holds' if apart == len(ratios) else 'Not at every t'}**: at {apart} of {len(ratios)} times the interval "
        f"leaves out 1. Energy at the t-th step after training over that of RotRNN with xi, both as they are, not in "
        f"units of the design value, which for *off* is higher; depth 4, up to the last t that a sequence of the probe "
        f"reaches."
    )
    return "Normalisation matters at all t", verdict, _grid(("", *[""] * 5), rows)


def _over_times(a: Record, b: Record) -> dict[int, Ratio]:
    """Of absolute energies at the end of training, at each t that the sequences reach."""
    found = {}
    for place, t in enumerate(a["times"]):
        curves = [record["over_time"]["end"]["energy"] for record in (a, b)]
        values = [{seed: curve[place] for seed, curve in of.items() if curve[place] is not None} for of in curves]
        values = [absolute(record, of) for record, of in zip((a, b), values, strict=True)]
        if values[0].keys() & values[1].keys():
            found[t] = ratio(*values)
    return found


def _ablations(cells: Cells) -> Part | None:
    own = _of(cells, "rotrnn")
    rows = {
        f"{NAMES[layer]}, {name}": (
            moved(run),
            ratio(run["unit"], own[name]["unit"]),
            over(run, own[name]),
            *(moved(run, of) for of in FACTORS),
            _points(run, own[name]),
        )
        for layer in ABLATIONS
        for name, run in _of(cells, layer).items()
        if name in own
    }
    if not rows:
        return None
    heads = (
        "",
        "energy, end / start",
        "design value / RotRNN's",
        "energy at the end / RotRNN's",
        *FACTORS,
        "points of accuracy above RotRNN",
    )
    verdict = (
        "Against RotRNN with xi, a zero start and a learned P; factors, end / start. Energies and design values over "
        "RotRNN's are as they are. Adam steps as far for small entries of B as for large ones: *folded* starts with "
        "the small ones of xi, and its gain runs away; *off* starts with large ones and moves less, from and to a "
        "higher energy."
    )
    return "What makes a RotRNN, changed one at a time", verdict, _grid(heads, rows)


def _gains(cells: Cells) -> Part | None:
    learned = _of(cells, "lru")
    rows = {
        f"{NAMES[layer]}, {name}": (over(run, learned[name]), moved(run), moved(run, "gain"))
        for layer in ("lru_recomputed", "lru_off")
        for name, run in _of(cells, layer).items()
        if name in learned
    }
    if not rows:
        return None
    heads = ("", "energy at the end / that of the learned γ, as it is", "energy, end / start", "gain, end / start")
    verdict = "Recomputed from the decays, γ follows them, but not the norm of B; left out, nothing does."
    return "The gain of an LRU, three ways", verdict, _grid(heads, rows)


def _long(cells: Cells) -> Part | None:
    rows = {
        NAMES[layer]: (
            *(moved(long, of) for of in ("energy", *FACTORS)),
            moved(cells[Key(layer)]),
            f"{settled_at(long):,.0f}",
        )
        for layer in BASE
        if Key(layer) in cells and (long := cells.get(long_key(layer)))
    }
    if not rows:
        return None
    heads = ("", "energy, end / start", "gain", "align", "temporal", "after 1,500 of a short run", "settled")
    verdict = f"{LONG:,} updates, depth 4, small rate."
    return "Long training", verdict, _grid(heads, rows)


def _digits(cells: Cells) -> Part | None:
    rows = {
        f"{NAMES[layer]}, depth {depth}": [moved(cells[key], of) for of in ("energy", *FACTORS)]
        for layer in BASE
        for depth in DEPTHS
        if (key := digits_key(layer, depth)) in cells
    }
    heads = ("", "energy, end / start", "gain", "align", "temporal")
    return ("Other data: spoken digits", "Small rate.", _grid(heads, rows)) if rows else None


def _scores(cells: Cells) -> Part | None:
    learned = _of(cells, "lru")
    rows = {
        f"{NAMES[layer]}, {name}": [_points(run, learned[name])]
        for layer in MODELS
        if layer != "lru"
        for name, run in _of(cells, layer).items()
        if name in learned
    }
    verdict = "Points of validation accuracy above the LRU, each seed in its best checkpoint."
    return ("Accuracy", verdict, _grid(("model", "points"), rows)) if rows else None


def _points(a: Record, b: Record) -> str:
    found = difference(*({int(seed): 100 * v for seed, v in run["accuracy"].items()} for run in (a, b)))
    return f"{found.mean:+.1f} [{found.interval[0]:+.1f}, {found.interval[1]:+.1f}]"
