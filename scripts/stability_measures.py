"""What the claims of the study of stability are measured by: ratios over seeds, of energies and of their factors."""

import math
import statistics
from collections.abc import Mapping
from typing import NamedTuple

from scripts.report.statistics import difference
from scripts.stability_records import Record

CONSTANT = 1.25
"""A ratio between 1 / 1.25 and 1.25 counts as constant."""
SETTLED = 1.1
"""From then on within this factor of where it ends."""


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


class Gap(NamedTuple):
    """Mean over seeds of a difference, and its 95 % interval (NaN for one seed)."""

    mean: float
    low: float
    high: float

    def show(self, digits: int) -> str:
        return f"{self.mean:+.{digits}f} [{self.low:+.{digits}f}, {self.high:+.{digits}f}]"


def gap(a: Mapping[int, float], b: Mapping[int, float]) -> Gap:
    """a - b by Student's t."""
    found = difference(a, b)
    exact = len(a) > 1 and math.isnan(found.p)
    return Gap(found.mean, *((found.mean,) * 2 if exact else found.interval))


def at(record: Record, place: int, of: str = "energy") -> dict[str, float]:
    """Seed -> the mean over layers at a probe; without seeds that were not finite."""
    return {seed: curve[place] for seed, curve in record["probes"][of].items() if curve[place] is not None}


def moved(record: Record, of: str = "energy") -> Ratio:
    """End over start."""
    end = at(record, -1, of)
    return ratio(end, at(record, 0, of)) if len(end) == len(at(record, -1)) else NONE


def settled(record: Record) -> dict[int, float]:
    """Seed -> the first probe from which the energy stays near where it ends."""
    steps, found = record["steps"], {}
    for seed, curve in record["probes"]["energy"].items():
        away = [
            k for k, v in enumerate(curve) if v is None or not 1 / SETTLED <= v / (curve[-1] or math.nan) <= SETTLED
        ]
        found[int(seed)] = steps[min(max(away, default=-1) + 1, len(steps) - 1)]
    return found


def settled_at(record: Record) -> float:
    """Mean over seeds."""
    return statistics.fmean(settled(record).values())


def absolute(record: Record, energies: Mapping[str, float]) -> dict[str, float]:
    """Not in units of the design value, which is another one where a gain is left out."""
    return {seed: energy * record["unit"][seed] for seed, energy in energies.items()}


def over(a: Record, b: Record) -> Ratio:
    """Of absolute energies at the end."""
    return ratio(*(absolute(record, at(record, -1)) for record in (a, b)))


def extremes(record: Record, place: int, of: str = "energy") -> list[dict[str, float]]:
    """Seed -> value in the layer of most energy, and in that of least; of: the energy, or a factor at the end."""
    energies = {seed: probes[place] for seed, probes in record["layers"].items()}
    values = energies if of == "energy" else record["factors"][of]
    return [{seed: values[seed][own.index(extreme(own))] for seed, own in energies.items()} for extreme in (max, min)]


def layer_spread(record: Record, place: int, of: str = "energy") -> Ratio:
    """The layer of most energy over that of least."""
    ends = extremes(record, place, of)
    return NONE if any(None in end.values() for end in ends) else ratio(*ends)


def spread_moved(record: Record) -> Ratio:
    """That at the end over that at the start, where chance alone makes it more than 1."""
    start, end = (
        {seed: most / least[seed] for seed, most in high.items()}
        for high, least in (extremes(record, place) for place in (0, -1))
    )
    return ratio(end, start)


def highest_layers(record: Record) -> str:
    """At the end, one a seed, counted from 1."""
    return ", ".join(str(probes[-1].index(max(probes[-1])) + 1) for probes in record["layers"].values())
