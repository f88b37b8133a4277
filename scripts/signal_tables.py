"""Tables of the signal-propagation study, and the numbers behind its figures."""

import math
import time
from collections.abc import Sequence

import numpy as np

from scripts.signal_study import FAR, Study
from scripts.workers import machine
from theory.draws import FAIR_C, LARGEST_ERROR, LARGEST_SCORE, agreement, log_s_of, passage, summarise
from theory.laws import Ensemble
from theory.signal_propagation import (
    Quantity,
    budget,
    first_passage,
    gain_for_horizon,
    log_q,
    log_s,
    log_s_claim,
    log_s_supercritical,
    overflow_times,
    real_q,
)

WIDTHS = (64, 128, 256, 512, 1024, 2048, 4096)
LEVELS = (1.1, 2.0, 10.0, 1000.0)
HORIZONS = (2, 4, 8, 16)
BEYOND = [(10**4, t) for t in (500, 1000, 2000)] + [(10**6, t) for t in (5000, 10**4, 2 * 10**4, 5 * 10**4, 10**5)]
TEN = math.log(10)

Row = Sequence[object]


def tables(study: Study) -> str:
    """Markdown."""
    return "\n".join(
        [
            _table(
                "First t at which the mean S/(t+1) passes a level, and at which it overflows (complex W)",
                ["n", *(f">{level:g}" for level in LEVELS), "fp16 S", "float32 nS", "float32 S", "float32 sqrt S"],
                _thresholds(),
            ),
            _table(
                "Gain with Q = 1 at the horizon T",
                ["n", *(f"T = {c} sqrt n" for c in HORIZONS)],
                [[n, *(f"{gain_for_horizon(n, round(c * n**0.5)):.5f}" for c in HORIZONS)] for n in WIDTHS],
            ),
            _table(
                "Beyond the critical range: (n^2/t^3) exp(t^2/2n) and ((n+t)/t) Q against the exact S",
                ["n", "t", "t/n^(2/3)", "log10 S", "S / claim", "log S / log claim", "S / replacement"],
                [_beyond(n, t) for n, t in BEYOND],
            ),
            _table(
                f"Drawn weights against the exact Q, k <= {FAIR_C:g} sqrt n (real: exact for k <= 10, else a bound)",
                ["n", "W", "draws", "k", "c", "exact complex", "exact real", "drawn", "error", "score", "verdict"],
                [row for key in study.fair for row in _drawn(study, *key)],
            ),
            _table(
                "log10 S of the mean and of single draws",
                ["n", "W", "draws", "c", "mean (complex, exact)", "mean of draws", "10 %", "median", "90 %"],
                [row for key in study.far for row in _typical(study, *key)],
            ),
            _table(
                f"First t at which a draw's own S/(t+1) passes a level, within t <= {FAR:g} sqrt n",
                ["n", "W", "level", "mean (complex, exact)", "draws that pass", "10 %", "median", "90 %"],
                [row for key in study.far for row in _passages(study, *key)],
            ),
        ]
    )


def numbers(study: Study) -> dict:
    """For --json: budgets of WIDTHS at T = 2 sqrt n, and the statistics of all draws by time (natural logarithms)."""
    return {
        "machine": machine(),
        "date": time.strftime("%Y-%m-%d"),
        "budgets": {n: _budget(n) for n in WIDTHS},
        "log_q": [_curves(n, str(ensemble), x) for (n, ensemble), x in study.fair.items()],
        "log_s": [_curves(n, str(ensemble), log_s_of(x)) for (n, ensemble), x in study.far.items()]
        + [_curves(study.untied_width, law, log_s_of(x)) for law, x in _sharing(study).items()],
    }


def _sharing(study: Study) -> dict[str, np.ndarray]:
    return {"complex": study.tied, "complex untied": study.untied}


def _budget(n: int) -> dict:
    found = budget(n, round(2 * n**0.5))
    return {**found._asdict(), "mean_overflows": {name: dict(times) for name, times in found.mean_overflows.items()}}


def _curves(n: int, law: str, log_energy: np.ndarray) -> dict:
    curves = {name: curve.tolist() for name, curve in summarise(log_energy)._asdict().items()}
    return {"n": n, "law": law, "draws": len(log_energy), **curves}


def _thresholds() -> list[Row]:
    rows = []
    for n in WIDTHS:
        passes = [first_passage(n, math.log(level), Quantity.GROWTH) for level in LEVELS]
        half, single = overflow_times(n, "float16"), overflow_times(n, "float32")
        rows.append([n, *passes, half[Quantity.MEAN_SQUARE], *single.values()])
    return rows


def _beyond(n: int, t: int) -> Row:
    s, claim = float(log_s(n, t)), float(log_s_claim(n, t))
    replaced = math.exp(s - float(log_s_supercritical(n, t)))
    return [
        n,
        t,
        f"{t / n ** (2 / 3):.2f}",
        f"{s / TEN:.5f}",
        f"{math.exp(s - claim):.3g}",
        f"{s / claim:.4f}",
        f"{replaced:.4f}",
    ]


def _drawn(study: Study, n: int, ensemble: Ensemble) -> list[Row]:
    """At c = 1/2, 1, 3/2, 2."""
    x = study.fair[n, ensemble]
    found, rows = summarise(x), []
    for k in dict.fromkeys(round(c * n**0.5) for c in (0.5, 1.0, 1.5, 2.0)):
        exact = float(np.exp(log_q(n, k)))
        real = float(real_q(n, k)) if k <= 10 else None
        mean = float(np.exp(found.log_mean[k]))
        error = mean * float(found.error[k])
        score, verdict = _verdict(x[:, k], exact if ensemble is Ensemble.COMPLEX else real, exact)
        shown = "-" if real is None else f"{real:.4f}"
        rows.append(
            [
                n,
                ensemble,
                len(x),
                k,
                f"{k / n**0.5:.2f}",
                f"{exact:.4f}",
                shown,
                f"{mean:.4f}",
                f"{error:.4f}",
                score,
                verdict,
            ]
        )
    return rows


def _verdict(log_energy: np.ndarray, exact: float | None, bound: float) -> tuple[str, str]:
    """The score, and whether draws agree or are too few to say; without an exact value, whether the bound holds."""
    found = agreement(log_energy[:, None], np.log([bound if exact is None else exact]))
    score = float(found.score[0])
    if exact is None:
        return f"{score:.1f}", "above the bound" if score > -LARGEST_SCORE else "BELOW THE BOUND"
    if found.error[0] >= LARGEST_ERROR:
        return f"{score:.1f}", "too few draws"
    return f"{score:.1f}", "agrees" if found.agrees[0] else "DIFFERS"


def _typical(study: Study, n: int, ensemble: Ensemble) -> list[Row]:
    """At c = 2, 3, 4, 6, 8."""
    x = log_s_of(study.far[n, ensemble])
    found, rows = summarise(x), []
    for c in (2, 3, 4, 6, 8):
        t = round(c * n**0.5)
        over = (found.log_mean[t], found.log_low[t], found.log_median[t], found.log_high[t])
        rows.append([n, ensemble, len(x), c, f"{log_s(n, t) / TEN:.2f}", *(f"{value / TEN:.2f}" for value in over)])
    return rows


def _passages(study: Study, n: int, ensemble: Ensemble) -> list[Row]:
    s = log_s_of(study.far[n, ensemble])
    growth = s - np.log1p(np.arange(s.shape[1]))
    rows = []
    for level in LEVELS[1:]:
        found = passage(growth, level)
        times = ["later" if time == np.inf else f"{time:.0f}" for time in found.times]
        mean = first_passage(n, math.log(level), Quantity.GROWTH)
        rows.append([n, ensemble, f"{level:g}", mean, f"{found.fraction:.0%}", *times])
    return rows


def _table(title: str, heads: Sequence[str], rows: Sequence[Row]) -> str:
    lines = [f"**{title}**", "", " | ".join(["", *heads, ""]).strip(), "|" + "---|" * len(heads)]
    lines += [" | ".join(["", *map(str, row), ""]).strip() for row in rows]
    return "\n".join([*lines, ""])
