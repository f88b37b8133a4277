"""Differences over seeds, corrections for their number, what stands out."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from scripts.report.statistics import all_pairs, best, difference, geometric, holm

A = {0: 0.90, 1: 0.92, 2: 0.97}
B = {0: 0.88, 1: 0.89, 2: 0.95}


def test_the_same_seeds_are_paired():
    found = difference(A, B)
    expected = stats.ttest_rel([*A.values()], [*B.values()])
    interval = expected.confidence_interval(0.95)
    assert found.paired
    assert found.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert found.interval == pytest.approx((interval.low, interval.high), rel=1e-9)
    # Seeds vary more than the difference does: without pairing it would be lost.
    assert found.p < 0.05 < difference(A, {s + 5: v for s, v in B.items()}).p


def test_other_seeds_are_compared_by_welch():
    b = {7: 0.80, 8: 0.82, 9: 0.90, 10: 0.81}
    expected: Any = stats.ttest_ind([*A.values()], [*b.values()], equal_var=False)
    found = difference(A, b)
    assert not found.paired
    assert found.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert found.mean == pytest.approx(np.mean([*A.values()]) - np.mean([*b.values()]))


@pytest.mark.parametrize("b", [{0: 0.8, 1: 0.82, 2: 0.87}, {3: 0.8}])
def test_no_spread_and_one_seed_decide_nothing(b):
    found = difference(A, b)
    assert math.isnan(found.p)
    assert best({"a": A, "b": b}) is None


def test_holm_is_the_step_down_rule():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    # What could not be tested counts among the tests.
    found = holm([0.01, math.nan])
    assert found[0] == pytest.approx(0.02)
    assert math.isnan(found[1])


def test_best_stands_out_of_all_others_after_correction():
    c = {0: 0.50, 1: 0.53, 2: 0.56}
    noisy = {0: 0.93, 1: 0.80, 2: 0.99}
    assert best({"b": c, "a": A}) == "a"
    assert best({"a": A, "c": c, "noisy": noisy}) is None
    assert best({"a": A}) is None
    # p = 0.020 alone; as the smallest of three it is no longer below 0.05.
    pairs = {(pair.a, pair.b): pair for pair in all_pairs({"a": A, "b": B, "noisy": noisy})}
    assert pairs["a", "b"].corrected == pytest.approx(3 * pairs["a", "b"].difference.p)
    assert pairs["a", "b"].difference.p < 0.05 < pairs["a", "b"].corrected


def test_geometric_mean_leaves_out_what_is_not_there():
    assert geometric([1.0, 4.0, math.nan]) == pytest.approx(2)
    assert math.isnan(geometric([math.nan]))
