"""When energies pass a level or a number format."""

# pyright: reportArgumentType=false
# Strings for members, and arguments of wrong types, are given on purpose.

import json
import math

import pytest
from conftest import oracle_dir

from theory.signal_propagation import Quantity, Regime, budget, first_passage, log_s, overflow_times

ORACLE = json.loads((oracle_dir() / "signal_propagation.json").read_text())["thresholds_mean"]
WIDTHS = [int(n) for n in ORACLE if n.isdecimal()]
TYPES = {"fp16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
NAMES = {"nS": Quantity.SQUARED_NORM, "S": Quantity.MEAN_SQUARE, "rms": Quantity.RMS}


@pytest.mark.parametrize("n", WIDTHS, ids=lambda n: f"oracle-{n}")
def test_thresholds(n):
    known = dict(ORACLE[str(n)])
    for level in ("1.1", "2", "10", "1000"):
        key, log_level = level.replace(".", "_"), math.log(float(level))
        assert first_passage(n, log_level, Quantity.GROWTH) == known.pop(f"t_{key}")
        assert first_passage(n, log_level, Quantity.GAIN) == known.pop(f"q_{key}")
    for key, time in known.items():
        short, name = key.split("_")
        assert overflow_times(n, TYPES[short])[NAMES[name]] == time, key


def test_a_budget_says_it_all():
    found = budget(256, 64)
    assert (found.c, found.regime) == (4, Regime.CRITICAL)
    assert found.log_growth == pytest.approx(float(log_s(256, 64)) - math.log(65))
    assert found.mean_passes == {1.1: 29, 2.0: 47, 10.0: 62, 1000.0: 86}
    assert found.mean_overflows["float32"] == {
        Quantity.SQUARED_NORM: 239,
        Quantity.MEAN_SQUARE: 247,
        Quantity.RMS: 362,
    }
    assert found.gain == pytest.approx(0.96225544389311)
    assert any("rare draws carry the mean" in note for note in found.notes)
    assert not any("rare draws carry the mean" in note for note in budget(256, 32).notes)
    assert any("a lower bound" in note for note in found.notes)


def test_what_never_passes_within_the_range():
    assert first_passage(10**12, math.log(10), Quantity.GAIN) is None


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: budget(0, 8), "a width is at least 1"),
        (lambda: budget([8, 9], 5), r"n has shape \(2,\): expected one number"),
        (lambda: first_passage(8, math.nan, Quantity.GAIN), "log_level = nan: expected finite numbers"),
        (lambda: first_passage(8, 1.0, "energy"), r"unknown Quantity 'energy': expected one of Q, S/\(t\+1\), n S, S"),
        (lambda: budget(8, 0), "a horizon is at least 1"),
        (lambda: overflow_times(8, "int8"), "expected one of float16, bfloat16, float32, float64"),
    ],
)
def test_what_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
