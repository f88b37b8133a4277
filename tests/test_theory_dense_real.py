"""Real dense weights: the polynomials against oracles and an enumeration, the bound, what is refused."""

# pyright: reportArgumentType=false
# Strings for members, and arguments of wrong types, are given on purpose.

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from conftest import oracle_dir
from hypothesis import given, settings
from hypothesis import strategies as st
from test_theory_dense import loops

from theory import dense_real
from theory.signal_propagation import log_q, real_cross_moment, real_q, real_s

ORACLE = json.loads((oracle_dir() / "signal_propagation.json").read_text())
CROSS = [tuple(map(int, pair.split(","))) for pair in ORACLE["real_cross_moments"]["k,l"]]


def pairings(items):
    """All ways to pair up the items."""
    if not items:
        yield []
    for i in range(1, len(items)):
        for rest in pairings(items[1:i] + items[i + 1 :]):
            yield [(items[0], items[i]), *rest]


def moment(n, k, l):
    """E tr(W^k (W^l)^T) / n of real W by Wick's theorem: factor a of a chain joins index a and a + 1."""
    chains = [(a, a + 1) for a in range(k)] + [(k + 1 + b, k + 2 + b) for b in range(l)]
    ends = [(0, k + 1), (k, k + 1 + l)]
    total = Fraction(0)
    for pairing in pairings(list(range(k + l))):
        joined = [(chains[x][side], chains[y][side]) for x, y in pairing for side in (0, 1)]
        total += Fraction(n) ** loops(k + l + 2, ends + joined)
    return total / Fraction(n) ** ((k + l) // 2 + 1)


@pytest.mark.parametrize("k", range(1, 11), ids=lambda k: f"oracle-k{k}")
def test_polynomials(k):
    known = {int(e): c for e, c in ORACLE["real_polynomials"][str(k)].items()}
    assert dense_real.POLYNOMIALS[k] == tuple(known.get(e, 0) for e in range(1, k + 2))
    assert sum(known.values()) == math.prod(range(1, 2 * k, 2))
    second = math.comb(k + 2, 4)
    for m in range(1, k // 2 + 1):
        r = k - 2 * m
        second += (r + 1) * (3 * r + 2) // 2
    assert known.get(k - 1, 0) == second


@pytest.mark.parametrize("n", range(1, 9), ids=lambda n: f"oracle-n{n}")
def test_rational_values(n):
    for function, key in ((real_q, "Q_real_exact"), (real_s, "S_real_exact_iid_inputs")):
        rows = [(k, float(Fraction(value))) for width, k, value in ORACLE[key] if width == n]
        assert len(rows) == 9
        lags, values = map(np.array, zip(*rows, strict=True))
        np.testing.assert_allclose(function(n, lags), values, rtol=1e-12)


@pytest.mark.parametrize(("k", "l"), CROSS, ids=lambda x: f"oracle-{x}")
def test_cross_moments(k, l):
    coefficients = ORACLE["real_cross_moments"]["k,l"][f"{k},{l}"]
    for n in (1, 2, 5, 100):
        exact = sum(Fraction(c) * Fraction(n) ** (int(e) - (k + l) // 2) for e, c in coefficients.items()) / n
        assert real_cross_moment(n, k, l) == pytest.approx(float(exact), rel=1e-12)
        assert real_cross_moment(n, l, k) == real_cross_moment(n, k, l)


@pytest.mark.parametrize(("k", "l"), [(1, 1), (2, 2), (3, 3), (4, 4), (2, 0), (4, 0), (3, 1), (5, 1), (4, 2)])
def test_an_enumeration_gives_the_same(k, l):
    for n in (1, 2, 6):
        assert real_cross_moment(n, k, l) == pytest.approx(float(moment(n, k, l)), rel=1e-12)


def test_odd_cross_moments_vanish():
    assert real_cross_moment(7, 3, 2) == 0


@settings(deadline=None)
@given(st.integers(1, 10**6), st.integers(0, 10))
def test_the_complex_energy_is_a_lower_bound(n, k):
    assert real_q(n, k) >= np.exp(log_q(n, k)) * (1 - 1e-12)


def test_values_broadcast():
    assert real_q(np.array([[2], [8]]), np.arange(4)).shape == (2, 4)
    assert real_s([2, 8], [3, 0])[1] == 1


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: real_q(8, 11), "exact to 10 only; log_q and log_s are lower bounds beyond"),
        (lambda: real_s(8, 11), "exact to 10 only"),
        (lambda: real_q(8, -1), "counted from 0"),
        (lambda: real_q(1e30, 3), r"n = 1e\+30: expected at most 2\^53"),
        (lambda: real_cross_moment([8, 9], 2, 0), "expected one number"),
        (lambda: real_q(0, 1), "a width is at least 1"),
        (lambda: real_cross_moment(8, 6, 4), "no closed form is known, expected l = 0 or one of"),
    ],
)
def test_what_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
