"""Figures of the signal-propagation study, as charts for scripts.figures."""

import math
from pathlib import Path

import numpy as np

from scripts.figures import Chart, Line, charts
from scripts.signal_study import FAR, Study
from theory.draws import log_s_of, summarise
from theory.laws import Ensemble
from theory.signal_propagation import (
    LRU,
    Dense,
    Gamma,
    Origin,
    Orthogonal,
    RotRNN,
    Start,
    Unit,
    critical,
    log_q,
    log_s,
    log_s_claim,
    log_s_supercritical,
    overlay,
    real_q,
)

BLACK = 6
C_AXIS = "c = t / √n"
PHI, RING, ORDER, HEAD, PHASE = 0.9, (0.9, 0.999), 256, 16, math.pi / 10


def figures(study: Study, out: Path) -> list[Path]:
    """Writes a PNG and a PDF of each; returns the PNGs."""
    rows = {
        "regimes": [subcritical(), critical_sum(), supercritical()],
        "profiles": [profile_q(study), profile_s(), drawn_ratio(study)],
        "real_complex": [real_ratio(study), *(typical(study, ensemble) for ensemble in Ensemble)],
        "sharing": [sharing_q(study), sharing_s(study)],
        "families": [families("white inputs", (1.0,)), families(f"AR(1) inputs, φ = {PHI}", PHI ** np.arange(400))],
    }
    for name, row in rows.items():
        charts(row, out / name, height=3.9 if name == "families" else 3.5)
    return [out / f"{name}.png" for name in rows]


def subcritical() -> Chart:
    lines = []
    for colour, n in enumerate((256, 4096, 10**6)):
        t = np.unique(np.geomspace(2, 4 * n**0.5, 60).astype(int))
        lines += [
            Line(f"n = {n:,}", t, np.expm1(log_s(n, t) - np.log1p(t)), colour),
            Line("t⁴/120n²" if n == 256 else "", t, t**4.0 / (120 * n**2), BLACK, dashed=True),
        ]
    return Chart("(a) subcritical: t ≪ √n", "t", "S/(t+1) − 1", lines, log="xy", y_limits=(1e-9, 1e2))


def critical_sum() -> Chart:
    lines = []
    for colour, n in enumerate((64, 1024, 10**6)):
        t = np.arange(0, int(6 * n**0.5) + 1, max(1, int(n**0.5 / 40)))
        lines.append(Line(f"n = {n:,}", t / n**0.5, np.exp(log_s(n, t)) / n**0.5, colour))
    c = np.linspace(0.05, 6, 200)
    lines.append(Line("limit I(c)", c, critical(c)[1], BLACK, dashed=True))
    return Chart("(b) critical: t = c √n", C_AXIS, "S / √n", lines, log="y", x_limits=(0, 6), y_limits=(0.05, 1e5))


def supercritical() -> Chart:
    lines = []
    for colour, (n, shown) in enumerate({10**4: "10⁴", 10**5: "10⁵", 10**6: "10⁶"}.items()):
        t = np.unique(np.geomspace(5 * n**0.5, 8 * n ** (2 / 3), 80).astype(int))
        x = t / n ** (2 / 3)
        lines += [
            Line(f"claim, n = {shown}", x, np.exp(log_s(n, t) - log_s_claim(n, t)), colour),
            Line(f"wide form, n = {shown}", x, np.exp(log_s(n, t) - log_s_supercritical(n, t)), colour, True),
        ]
    return Chart(
        "(c) supercritical: t ≫ √n",
        "t / n^(2/3)",
        "exact S / form",
        lines,
        x_limits=(0, 6),
        y_limits=(0, 1.4),
        marks={1: "n^(2/3)"},
    )


def profile_q(study: Study) -> Chart:
    lines = []
    for colour, n in enumerate(study.widths):
        k = np.arange(int(5 * n**0.5) + 1)
        lines.append(Line(f"n = {n}", k / n**0.5, np.exp(log_q(n, k)), colour))
    c = np.linspace(0, 5, 200)
    lines.append(Line("limit q(c)", c, critical(c)[0], BLACK, dashed=True))
    return Chart("(a) one input, exact", "c = k / √n", "Q", lines, log="y", x_limits=(0, 5), y_limits=(0.7, 2e4))


def profile_s() -> Chart:
    lines = []
    for colour, n in enumerate((16, 64, 256, 4096)):
        t = np.arange(int(3 * n**0.5) + 1)
        lines.append(Line(f"n = {n}", t / n**0.5, np.exp(log_s(n, t)) / n**0.5, colour))
    c = np.linspace(0, 3, 200)
    lines.append(Line("limit I(c)", c, critical(c)[1], BLACK, dashed=True))
    return Chart("(b) the state, exact", C_AXIS, "S / √n", lines, x_limits=(0, 3), y_limits=(0, 7))


def drawn_ratio(study: Study) -> Chart:
    lines, most = [], 12
    for colour, n in enumerate(study.widths):
        x = study.fair[n, Ensemble.COMPLEX]
        k = np.unique(np.linspace(1, x.shape[1] - 1, most).astype(int))
        found = summarise(x)
        ratio = np.exp(found.log_mean - log_q(n, np.arange(x.shape[1])))
        shift = 0.015 * (colour - 1)  # so that bars do not cover each other
        lines.append(
            Line(f"n = {n}, {len(x):,} draws", k / n**0.5 + shift, ratio[k], colour, error=(ratio * found.error)[k])
        )
    lines.append(Line("exact", [0, 2], [1, 1], BLACK, dashed=True))
    return Chart("(c) drawn W, mean ± 1 se", "c = k / √n", "drawn / exact Q", lines, x_limits=(0, 2.1))


def real_ratio(study: Study) -> Chart:
    lines = []
    for colour, n in enumerate(study.widths):
        x = study.fair[n, Ensemble.REAL]
        k = np.arange(1, x.shape[1])
        found = summarise(x)
        ratio = np.exp(found.log_mean - log_q(n, np.arange(x.shape[1])))
        shown = np.unique(np.linspace(1, k[-1], 10).astype(int))
        lines.append(Line(f"n = {n}, drawn", shown / n**0.5, ratio[shown], colour, error=(ratio * found.error)[shown]))
        exact = k[k <= 10]
        lines.append(
            Line(
                "exact (lines)" if colour == 0 else "",
                exact / n**0.5,
                real_q(n, exact) / np.exp(log_q(n, exact)),
                colour,
            )
        )
    lines.append(Line("lower bound", [0, 2], [1, 1], BLACK, dashed=True))
    return Chart("(a) real over complex W", "c = k / √n", "real Q / complex Q", lines, x_limits=(0, 2.1))


def typical(study: Study, ensemble: Ensemble) -> Chart:
    n = study.far_width
    s = log_s_of(study.far[n, ensemble])
    t = np.arange(s.shape[1])
    found = summarise(s)
    label = "exact mean" if ensemble is Ensemble.COMPLEX else "complex mean: a bound"
    c = np.linspace(0.05, FAR, 200)
    ten = math.log(10)
    lines = [
        Line(label, t, log_s(n, t) / ten, 1),
        Line("median draw, 10–90 %", t, found.log_median / ten, 0, band=(found.log_low / ten, found.log_high / ten)),
        Line("limit √n I(c)", c * n**0.5, np.log10(critical(c)[1] * n**0.5), BLACK, dashed=True),
    ]
    title = f"({'b' if ensemble is Ensemble.COMPLEX else 'c'}) {ensemble}, n = {n}, {len(s)} draws"
    return Chart(title, "t  (h₀ = x₀)", "log₁₀ S", lines, marks={2 * n**0.5: "2√n"}, y_limits=(0, None))


def sharing_q(study: Study) -> Chart:
    n = study.untied_width
    k = np.arange(study.tied.shape[1])
    tied, untied = summarise(study.tied), summarise(study.untied)
    lines = [
        Line("recurrent, exact mean", k, np.exp(log_q(n, k)), 1),
        _median("recurrent, median draw, 10–90 %", k, tied, 1),
        Line("feedforward, exact mean", k, np.ones(len(k)), 0),
        _median("feedforward, median draw, 10–90 %", k, untied, 0),
    ]
    return Chart(f"(a) one input, complex W, n = {n}", "k", "Q", lines, log="y", marks={2 * n**0.5: "2√n"})


def sharing_s(study: Study) -> Chart:
    n = study.untied_width
    t = np.arange(study.tied.shape[1])
    lines = [
        Line("one W for all steps, exact mean", t, np.exp(log_s(n, t)), 1),
        _median("one W, median draw, 10–90 %", t, summarise(log_s_of(study.tied)), 1),
        Line("fresh W each step, exact mean: t + 1", t, t + 1.0, 0),
        _median("fresh W, median draw, 10–90 %", t, summarise(log_s_of(study.untied)), 0),
    ]
    return Chart(f"(b) the state, complex W, n = {n}", "t  (h₀ = x₀)", "S", lines, log="y", marks={2 * n**0.5: "2√n"})


def _median(label: str, x: np.ndarray, found, colour: int) -> Line:
    band = (np.exp(found.log_low), np.exp(found.log_high))
    return Line(label, x, np.exp(found.log_median), colour, dashed=True, band=band)


def families(title: str, autocovariance) -> Chart:
    """Per real number of the state: 256 complex modes or coordinates, 32 heads of 16."""
    models = {
        f"dense complex, n = {ORDER}": Dense(ORDER),
        "orthogonal": Orthogonal(),
        "LRU": LRU(*RING, max_phase=PHASE),
        "LRU, gamma off": LRU(*RING, Gamma.OFF, PHASE),
        "RotRNN, zero start": RotRNN(*RING, HEAD, max_phase=PHASE),
        "RotRNN, stationary": RotRNN(*RING, HEAD, Start.STATIONARY, PHASE),
    }
    t = np.arange(400)
    lines = []
    for colour, (name, model) in enumerate(models.items()):
        found = overlay(model, t, origin=Origin.FIRST_INPUT, unit=Unit.REAL, autocovariance=autocovariance)
        lines.append(Line(name, t + 1, found.energy, colour, dashed=isinstance(model, RotRNN)))
    label = "number of inputs absorbed, t + 1"
    return Chart(title, label, "energy per real number of the state", lines, log="xy", y_limits=(1e-3, 1e5))
