"""Exact energies of complex dense recurrences: oracle values, identities, what is refused."""

# pyright: reportArgumentType=false
# Strings for members, and arguments of wrong types, are given on purpose.

import itertools
import json
import math
import re
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from conftest import oracle_dir
from hypothesis import given, settings
from hypothesis import strategies as st

from theory.laws import Method
from theory.signal_propagation import gain_for_horizon, log_energy, log_q, log_s

ORACLE = json.loads((oracle_dir() / "signal_propagation.json").read_text())
METHODS = pytest.mark.parametrize("method", list(Method))
WIDTHS, FEW_LAGS = st.integers(1, 40), st.integers(0, 40)


def exact_products(n, k):
    """prod_{j<=k+1} (1 + j/n) and prod (1 - j/n) as rationals."""
    up = down = Fraction(1)
    for j in range(1, k + 2):
        up, down = up * (1 + Fraction(j, n)), down * (1 - Fraction(j, n))
    return up, down


def loops(nodes, pairs):
    """The number of free indices left after equal ones are joined."""
    parent = list(range(nodes))

    def root(a):
        while parent[a] != a:
            a = parent[a]
        return a

    for a, b in pairs:
        parent[root(a)] = root(b)
    return sum(parent[a] == a for a in range(nodes))


@METHODS
@pytest.mark.parametrize("n", range(1, 9), ids=lambda n: f"oracle-n{n}")
def test_rational_values(n, method):
    for function, key in ((log_q, "Q_complex_exact"), (log_s, "S_complex_exact")):
        rows = [(k, float(Fraction(value))) for width, k, value in ORACLE[key] if width == n]
        assert len(rows) == 9
        lags, values = map(np.array, zip(*rows, strict=True))
        np.testing.assert_allclose(np.exp(function(n, lags, method=method)), values, rtol=1e-12)


@METHODS
@pytest.mark.parametrize("row", ORACLE["complex_large"], ids=lambda row: f"oracle-{row['n']}-{row['k']}")
def test_large_values(row, method):
    for function, name in ((log_q, "Q"), (log_s, "S")):
        found = float(function(row["n"], row["k"], method=method))
        assert abs(found - float(row["log" + name])) < 1e-10
        if float(row["logQ"]) < 50:
            assert math.exp(found) == pytest.approx(float(row[name]), rel=1e-12)


@pytest.mark.parametrize("k", range(1, 10), ids=lambda k: f"oracle-k{k}")
def test_polynomials(k):
    coefficients = ORACLE["complex_polynomials"][str(k)]
    for n in (1, 2, 3, 7, 20, 1000):
        exact = sum(Fraction(c) * Fraction(n) ** (int(e) - k - 1) for e, c in coefficients.items())
        assert float(np.exp(log_q(n, k))) == pytest.approx(float(exact), rel=1e-12)


@pytest.mark.parametrize("row", ORACLE["gain_for_unit_Q_at_T"], ids=lambda row: f"oracle-{row[0]}-{row[1]}")
def test_gain_for_horizon(row):
    n, horizon, gain = row
    assert float(gain_for_horizon(n, horizon)) == pytest.approx(float(gain), rel=1e-12)
    assert float(log_q(n, horizon, float(gain))) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("row", ORACLE["monte_carlo"], ids=lambda r: f"oracle-{r['ensemble']}-{r['n']}-{r['k']}")
def test_published_simulations(row):
    """Evidence, not exact: complex means within 4 errors at fair points, real ones not below the bound."""
    exact = float(np.exp(log_q(row["n"], row["k"])))
    score = (row["mean"] - exact) / row["se"]
    assert row["exact_complex"] == pytest.approx(exact, rel=1e-12)
    assert row["z"] == pytest.approx(score, rel=1e-9, abs=1e-9)
    assert score > -4
    if row["ensemble"] == "complex" and row["k"] <= 2 * math.sqrt(row["n"]):
        assert score < 4


@given(WIDTHS, FEW_LAGS)
def test_the_sum_identity(n, t):
    """S + (t+1) Q = sum_{k=-1}^{t-1} M_k with M the sum of the two products and M_{-1} = 2."""
    total = 2 + sum(sum(exact_products(n, k)) for k in range(t))
    found = np.exp(log_s(n, t)) + (t + 1) * np.exp(log_q(n, t))
    assert found == pytest.approx(float(total), rel=1e-12)


@settings(deadline=None)
@given(WIDTHS, st.integers(0, 5))
def test_the_trace_identity(n, k):
    """Q = E|tr W^m|^2 / m, m = k + 1, by Wick's theorem: a pairing p of W's with conjugates leaves n^loops."""
    m = k + 1
    total = Fraction(0)
    for p in itertools.permutations(range(m)):
        joined = [(a, m + p[a]) for a in range(m)] + [((a + 1) % m, m + (p[a] + 1) % m) for a in range(m)]
        total += Fraction(n) ** (loops(2 * m, joined) - m)
    assert float(np.exp(log_q(n, k))) == pytest.approx(float(total) / m, rel=1e-12)


@given(st.integers(0, 60))
def test_width_one_is_a_factorial(k):
    assert float(log_q(1, k)) == pytest.approx(math.lgamma(k + 1), rel=1e-12, abs=1e-12)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 60), st.integers(0, 10_000))
def test_both_methods_agree_over_the_whole_range(place, t):
    n = round(10 ** (place / 10))
    for function in (log_q, log_s):
        sums, recurrence = (float(function(n, t, method=method)) for method in Method)
        assert abs(sums - recurrence) < 1e-10 * max(1, abs(recurrence) / 1000)


@given(st.integers(2, 3000), st.integers(1, 300))
def test_q_rises_with_time_and_falls_with_width(n, k):
    assert log_q(n, k + 1) > log_q(n, k) - 1e-13
    assert log_q(n + 1, k) < log_q(n, k) + 1e-13


def test_values_broadcast_over_width_time_and_gain():
    n, k, gain = np.array([4, 64])[:, None, None], np.arange(30)[:, None], np.array([0.9, 1.0, 1.1])
    q, s = log_q(n, k, gain), log_s(n, k, gain)
    assert q.shape == s.shape == (2, 30, 3)
    assert q[1, 7, 2] == pytest.approx(float(log_q(64, 7)) + 14 * math.log(1.1), abs=1e-13)
    np.testing.assert_allclose(np.exp(s), np.cumsum(np.exp(q), axis=1), rtol=1e-12)
    assert log_q(np.array([], int), 3).shape == (0,)
    assert log_q(64.0, 3).dtype == np.float64


def test_energy_is_a_convolution_with_the_input_energy():
    n, inputs = 16, np.array([2.0, 0.0, 1.0, 3.0, 0.5])
    q = np.exp(log_q(n, np.arange(5), 0.9))
    expected = np.convolve(q, inputs)[:5]
    np.testing.assert_allclose(np.exp(log_energy(n, inputs, 0.9)), expected, rtol=1e-12)
    np.testing.assert_allclose(log_energy(n, np.ones(200)), log_s(n, np.arange(200)), rtol=1e-12)
    assert log_energy(n, [0.0])[0] == -np.inf


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: log_q(1e30, 3), "n = 1e+30: expected at most 2^53"),
        (lambda: log_q(2**70, 3), "n = 1.1805916207174113e+21: expected at most 2^53"),
        (lambda: log_q(10**400, 3), "n: beyond the range of float64"),
        (lambda: log_q(8, 1e30), "k = 1e+30: beyond 1,000,000"),
        (lambda: log_q(8, 2**64), "k = 1.8446744073709552e+19: beyond 1,000,000"),
        (lambda: log_q("8", 3), "n: expected real numbers, got str"),
        (lambda: log_q(True, 3), "n: expected real numbers, got bool"),
        (lambda: log_q(8j, 3), "n: expected real numbers, got complex"),
        (lambda: log_q(8, 3, 1j), "gain: expected real numbers, got complex"),
        (lambda: log_q(8, 3, method="quadrature"), "unknown Method 'quadrature': expected one of sums, recurrence"),
        (lambda: log_energy([8, 9], [1.0, 1.0]), "n has shape (2,): expected one number"),
        (lambda: log_energy(8, [1.0, 1.0], [0.9, 1.0]), "gain has shape (2,): expected one number"),
        (lambda: log_q(0, 3), "n = 0: a width is at least 1"),
        (lambda: log_q(8, -1), "k = -1: lags are counted from 0"),
        (lambda: log_s(8, [3, -2]), "t = -2: lags are counted from 0"),
        (lambda: log_s(8, 1_000_001), "log_s_supercritical goes further"),
        (lambda: log_q(8.5, 1), "n = 8.5: expected whole numbers"),
        (lambda: log_q(8, np.nan), "k = nan: expected whole numbers"),
        (lambda: log_q(8, 1, 0.0), "gain = 0.0: a gain is a finite number above 0"),
        (lambda: log_q(8, 1, np.inf), "gain = inf: a gain is a finite number above 0"),
        (lambda: gain_for_horizon(8, 0), "a horizon is at least 1"),
        (lambda: log_energy(8, [1.0, -1.0]), "expected a sequence of finite numbers >= 0"),
        (lambda: log_energy(8, []), "expected a sequence of finite numbers >= 0"),
    ],
)
def test_what_is_refused(call, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        call()


def test_the_numpy_part_needs_no_jax():
    code = "import sys, theory.signal_propagation; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
