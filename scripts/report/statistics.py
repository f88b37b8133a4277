"""Differences between settings: over seeds, paired where both have the same ones, Holm-corrected; averages."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy import stats

LEVEL = 0.05

Values = Mapping[int, float]
"""Seed -> accuracy."""


class Difference(NamedTuple):
    """Mean of a minus mean of b, its 95 % interval and the p of "none".

    paired: over the seeds, which both have (Student's t on the differences); else Welch's t. interval and p are NaN
    where there are fewer than two seeds, or no spread to compare with.
    """

    mean: float
    interval: tuple[float, float]
    p: float
    paired: bool
    seeds: int


def difference(a: Values, b: Values) -> Difference:
    """Of two settings on the same test."""
    if a.keys() == b.keys():
        d = np.array([a[seed] - b[seed] for seed in a])
        return _student(float(d.mean()), _error(d), len(d) - 1, True, len(d))
    x, y = np.array([*a.values()]), np.array([*b.values()])
    e, f = _error(x), _error(y)
    error = math.hypot(e, f)
    freedom = error**4 / (e**4 / (len(x) - 1) + f**4 / (len(y) - 1)) if min(len(x), len(y)) > 1 and error else math.nan
    return _student(float(x.mean() - y.mean()), error, freedom, False, min(len(x), len(y)))


def _error(values: np.ndarray) -> float:
    """Standard error of the mean."""
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def _student(mean: float, error: float, freedom: float, paired: bool, seeds: int) -> Difference:
    # Rounding makes equal differences differ in the last bits: that is no spread.
    if not (error > 1e-12 and freedom > 0):
        return Difference(mean, (math.nan, math.nan), math.nan, paired, seeds)
    half = float(stats.t.ppf(1 - LEVEL / 2, freedom)) * error
    return Difference(
        mean, (mean - half, mean + half), 2 * float(stats.t.sf(abs(mean) / error, freedom)), paired, seeds
    )


def holm(p: Sequence[float]) -> list[float]:
    """p corrected for their number by Holm's step-down rule (Scand. J. Stat. 6, 1979). NaN stays, and counts."""
    order = sorted(range(len(p)), key=lambda i: (math.isnan(p[i]), p[i]))
    corrected, largest = [math.nan] * len(p), 0.0
    for place, i in enumerate(order):
        if not math.isnan(p[i]):
            largest = max(largest, min(1.0, (len(p) - place) * p[i]))
            corrected[i] = largest
    return corrected


class Compared(NamedTuple):
    """A pair of settings by their names, with the corrected p."""

    a: str
    b: str
    difference: Difference
    corrected: float


def all_pairs(values: Mapping[str, Values]) -> list[Compared]:
    """Every pair of settings on one test, corrected together."""
    pairs = [(a, b, difference(values[a], values[b])) for a, b in combinations(values, 2)]
    corrected = holm([found.p for _, _, found in pairs])
    return [Compared(*pair, p) for pair, p in zip(pairs, corrected, strict=True)]


def best(values: Mapping[str, Values]) -> str | None:
    """The setting whose mean is above that of every other one by more than the error; None if there is none.

    All pairs are corrected together, so that picking the largest mean is paid for.
    """
    top = max(values, key=lambda name: np.mean([*values[name].values()]), default=None)
    pairs = [pair for pair in all_pairs(values) if top in (pair.a, pair.b)]
    return top if pairs and all(pair.corrected < LEVEL for pair in pairs) else None


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """The deviation is over seeds, with n - 1; None for one seed."""
    array = np.asarray(values, float)
    return float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else None


def geometric(values: Sequence[float]) -> float:
    """Geometric mean: energies are ratios. NaN values (a time that no sequence reaches, a seed that died) are left
    out."""
    kept = [math.log(value) for value in values if value is not None and value > 0 and math.isfinite(value)]
    return math.exp(sum(kept) / len(kept)) if kept else math.nan
