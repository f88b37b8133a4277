"""Limits and regimes, and the range of the supercritical form."""

# pyright: reportArgumentType=false
# Strings for members, and arguments of wrong types, are given on purpose.

import json
import math

import numpy as np
import pytest
from conftest import oracle_dir
from scipy.integrate import quad

from theory.limits import Regime
from theory.signal_propagation import critical, critical_passage, log_q, log_s, log_s_claim, log_s_supercritical, regime

ORACLE = json.loads((oracle_dir() / "signal_propagation.json").read_text())


@pytest.mark.parametrize("row", ORACLE["critical_limits"], ids=lambda row: f"oracle-c{row['c']}")
def test_critical_limits(row):
    q, integral = critical(float(row["c"]))
    assert float(q) == pytest.approx(float(row["q"]), rel=1e-12)
    assert float(integral) == pytest.approx(float(row["I"]), rel=1e-12)


@pytest.mark.parametrize("level", ORACLE["thresholds_mean"]["limit_c"], ids=lambda level: f"oracle-{level}")
def test_critical_passages(level):
    found = critical_passage(float(level))
    known = ORACLE["thresholds_mean"]["limit_c"][level]
    assert found.s == pytest.approx(float(known["S"]), rel=1e-12)
    assert found.q == pytest.approx(float(known["Q"]), rel=1e-12)


def test_the_integral_is_one():
    for c in (0.0, 0.01, 7.0, 37.0):
        exact = quad(lambda x: float(critical(x)[0]), 0, c, epsrel=1e-12)[0]
        assert float(critical(c)[1]) == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("c", [0.5, 1.0, 2.0, 3.0])
def test_exact_values_approach_the_limits_as_one_over_root_n(c):
    q, integral = critical(c)
    gaps = []
    for n in (10**4, 10**6):
        t = round(c * math.sqrt(n))
        gaps.append((math.exp(log_q(n, t)) / q - 1, math.exp(log_s(n, t)) / (math.sqrt(n) * integral) - 1))
    for large, small in zip(*gaps, strict=True):
        assert large / small == pytest.approx(10, rel=0.1)


def test_the_subcritical_forms():
    n, t = 10**6, 100
    assert math.expm1(log_q(n, t)) == pytest.approx(t**4 / (24 * n**2), rel=0.03)
    assert math.exp(log_s(n, t)) / (t + 1) - 1 == pytest.approx(t**4 / (120 * n**2), rel=0.05)


@pytest.mark.parametrize(
    ("n", "t", "log10", "claim", "logs", "replacement"),
    [
        (10**4, 500, 5.35516823, 1.055, 1.0044, 1.1515),
        (10**4, 1000, 20.13998075, 0.266, 0.9723, 1.0297),
        (10**4, 2000, 79.88315806, 8.46e-6, 0.9403, 1.0067),
        (10**6, 5000, 6.39078425, 1.146, 1.0093, 1.1558),
        (10**6, 10**4, 21.66680472, 0.896, 0.9978, 1.0314),
        (10**6, 2 * 10**4, 85.40714816, 0.283, 0.9936, 1.0075),
        (10**6, 5 * 10**4, 531.99647119, 1.68e-9, 0.9838, 1.0012),
        (10**6, 10**5, 2099.60907523, 1.37e-69, 0.9682, 1.0003),
    ],
)
def test_the_supercritical_claim_ends_at_n_to_two_thirds(n, t, log10, claim, logs, replacement):
    s = float(log_s(n, t))
    assert s / math.log(10) == pytest.approx(log10, rel=1e-8)
    assert math.exp(s - log_s_claim(n, t)) == pytest.approx(claim, rel=2e-3)
    assert s / log_s_claim(n, t) == pytest.approx(logs, abs=1e-4)
    assert math.exp(s - log_s_supercritical(n, t)) == pytest.approx(replacement, abs=1e-4)
    assert math.exp(s - log_s_supercritical(n, t)) - 1 == pytest.approx(3 * n / t**2, rel=0.3)


def test_the_supercritical_form_has_no_upper_limit():
    """log S ~ t log(t/(e n)) for t far above n."""
    t = 1e200
    assert log_s_supercritical(8, t) == pytest.approx(t * (math.log(t / 8) - 1), rel=1e-12)


def test_passages_near_one_are_those_of_the_leading_term():
    """q - 1 ~ c^4/24, I/c - 1 ~ c^4/120; rounding moves c by 1e-7 of itself at the lowest level."""
    found = critical_passage(1 + 1e-9)
    assert found.q == pytest.approx((24e-9) ** 0.25, rel=1e-6)
    assert found.s == pytest.approx((120e-9) ** 0.25, rel=1e-6)


def test_regimes():
    labels = [regime(10**6, t).regime for t in (0, 400, 600, 4900, 5100, 9900, 10100)]
    first, second = [Regime.SUBCRITICAL] * 2, [Regime.CRITICAL] * 2
    assert labels == [*first, *second, *[Regime.SUPERCRITICAL] * 2, Regime.BEYOND]
    assert regime(256, 32).c == 2
    # Below 5^6 the window of the supercritical form is empty.
    window = [Regime.SUPERCRITICAL in {regime(n, t).regime for t in range(2000)} for n in (1024, 15_624, 20_000)]
    assert window == [False, False, True]


def test_the_conventional_borders_are_what_they_say():
    assert critical(0.5)[0] - 1 < 0.003
    # S/claim in the limit at c = 5: I(c) against exp(c^2/2)/c^3.
    assert critical(5.0)[1] / (math.exp(12.5) / 125) - 1 == pytest.approx(0.156, abs=1e-3)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: critical(38.0), "log_q and log_s do not"),
        (lambda: critical(-0.1), "expected 0 to 37"),
        (lambda: critical(np.nan), "expected 0 to 37"),
        (lambda: critical_passage(1.0), r"rise from 1, .* expected 1 to 1e\+250"),
        (lambda: log_s_claim(8, 0), "expected at least 1"),
        (lambda: critical_passage(1 + 1e-15), r"below 1 \+ 1e-9 in rounding"),
        (lambda: log_s_supercritical(8, 0), r"expected 1 to 1e\+300"),
        (lambda: log_s_supercritical(8, np.inf), r"t = inf: .* expected 1 to 1e\+300"),
        (lambda: regime([64, 256], 8), "expected one number"),
        (lambda: regime(8, -1), "counted from 0"),
    ],
)
def test_what_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
