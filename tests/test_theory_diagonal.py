"""Energies of diagonal models: oracle values, the recurrences themselves, coloured inputs."""

# pyright: reportArgumentType=false
# Strings for members, and arguments of wrong types, are given on purpose.

import json
import math

import numpy as np
import pytest
from conftest import oracle_dir
from hypothesis import given
from hypothesis import strategies as st

from theory import diagonal
from theory.signal_propagation import (
    Gamma,
    Start,
    ar1_factor,
    ar1_phase_mean,
    autocovariance_of_spectrum,
    coloured_energy,
    coloured_limit,
    input_autocovariance,
    lru_energy,
    lru_limit,
    mode_energy,
    ring_energy,
    rotrnn_energy,
    rotrnn_range_energy,
)

ORACLE = json.loads((oracle_dir() / "signal_propagation.json").read_text())["diagonal_models"]


def rows(key):
    return pytest.mark.parametrize("row", ORACLE[key], ids=lambda row: "oracle-" + "-".join(map(str, row[:3])))


@rows("lru_gamma")
def test_lru_with_gamma(row):
    low, high, t, energy = float(row[0]), float(row[1]), row[2], float(row[3])
    for gamma in (Gamma.LEARNED, Gamma.RECOMPUTED):
        assert float(lru_energy(low, high, t, gamma)) == pytest.approx(energy, rel=1e-12)


@rows("lru_raw")
def test_lru_without_gamma(row):
    assert float(lru_energy(float(row[0]), float(row[1]), row[2], Gamma.OFF)) == pytest.approx(float(row[3]), rel=1e-12)


def test_strings_name_gains_and_starts():
    assert float(lru_energy(0.5, 0.9, 3, "off")) == pytest.approx(2.0274623, abs=1e-7)
    np.testing.assert_allclose(ring_energy(0.5, 0.9, [1.0], 4, gamma="off")[3], lru_energy(0.5, 0.9, 3, Gamma.OFF))
    np.testing.assert_allclose(ring_energy(0.5, 0.9, [1.0], 4, start="stationary"), 1)


@rows("lru_raw_limit")
def test_lru_limit(row):
    assert lru_limit(float(row[0]), float(row[1])) == pytest.approx(float(row[2]), rel=1e-12)


@rows("rotrnn_from_zero")
def test_rotrnn_from_zero(row):
    assert float(rotrnn_range_energy(float(row[0]), float(row[1]), row[2])) == pytest.approx(float(row[3]), rel=1e-12)


def test_the_limit_diverges_on_the_full_ring():
    assert lru_limit(0.5, 1.0) == math.inf
    slope = lru_energy(0.0, 1.0, 10**5, Gamma.OFF) - math.log(10**5)
    assert float(slope) == pytest.approx(np.euler_gamma, abs=1e-4)


@pytest.mark.parametrize(
    ("r_min", "r_max", "times"),
    [
        (0, 1, (0, 8, 98)),
        (0, 0.9, (0, 3, 10)),
        (0, 0.999, (0, 8, 83)),
        (0.9, 0.999, (7, 47, 293)),
        (0.99, 0.999, (68, 302, 906)),
        (0.9, 0.9999, (7, 51, 477)),
    ],
)
def test_when_a_ring_has_filled_up(r_min, r_max, times):
    deficit = 1 - lru_energy(r_min, r_max, np.arange(1000))
    assert tuple(int(np.argmax(deficit <= level + 1e-12)) for level in (0.5, 0.1, 0.01)) == times


@given(st.floats(0, 1), st.integers(0, 60), st.floats(0, 3))
def test_a_mode_is_its_recurrence(modulus, updates, power):
    energy = 0.0
    for _ in range(updates):
        energy = modulus**2 * energy + power
    with np.errstate(divide="ignore"):
        log_modulus = np.log(modulus)
    assert float(mode_energy(log_modulus, updates, power)) == pytest.approx(energy, rel=1e-9, abs=1e-12)


def test_a_mode_keeps_its_digits_near_one():
    assert float(mode_energy(-1e-14, 1000)) == pytest.approx(1000, rel=1e-10)
    assert float(mode_energy(0.0, 1000)) == 1000


@given(st.floats(0, 1), st.integers(0, 60), st.floats(0, 3))
def test_a_head_is_its_recurrence(gamma, updates, start):
    energy = start
    for _ in range(updates):
        energy = gamma**2 * energy + 1 - gamma**2
    assert float(rotrnn_energy(gamma, updates, start)) == pytest.approx(energy, rel=1e-9, abs=1e-12)


def test_the_range_of_decays_is_the_mean_over_heads():
    slow, fast = -math.log(0.999), -math.log(0.9)
    u = (np.arange(200_000) + 0.5) / 200_000
    gamma = np.exp(-slow * (fast / slow) ** u)
    for updates in (0, 1, 20, 400):
        assert rotrnn_energy(gamma, updates).mean() == pytest.approx(float(rotrnn_range_energy(0.9, 0.999, updates)))


def simulated_energy(eigenvalue, r, updates, first=1.0):
    """E|x_m|^2 as a quadratic form in the inputs, whose covariance is r."""
    lags = np.subtract.outer(np.arange(updates), np.arange(updates))
    covariance = np.where(lags >= 0, r[abs(lags)], r[abs(lags)].conj())
    weights = eigenvalue ** np.arange(updates)[::-1]
    weights[0] *= first
    return (weights @ covariance @ weights.conj()).real


EIGENVALUES = np.array([0.9 * np.exp(0.3j), 0.5, 0.0, np.exp(2j), -0.7])
COVARIANCE = 0.8 ** np.arange(12) * np.exp(0.4j * np.arange(12))


def test_coloured_energy_is_the_quadratic_form():
    found = coloured_energy(EIGENVALUES, COVARIANCE, 12)
    for k, eigenvalue in enumerate(EIGENVALUES):
        exact = [simulated_energy(eigenvalue, COVARIANCE, m) for m in range(1, 13)]
        np.testing.assert_allclose(found[k], exact, rtol=1e-10)


def test_given_lags_end_the_correlation():
    np.testing.assert_allclose(
        coloured_energy([0.9], [2.0], 30)[0], mode_energy(math.log(0.9), np.arange(1, 31), 2.0), rtol=1e-12
    )


def test_coloured_energy_reaches_its_limit_and_the_closed_form():
    modes, phi = EIGENVALUES[[0, 1, 2, 4]], 0.7
    r = phi ** np.arange(400)
    limit = coloured_limit(modes, r)
    np.testing.assert_allclose(coloured_energy(modes, r, 600)[:, -1], limit, rtol=1e-10)
    np.testing.assert_allclose(limit, ar1_factor(modes, phi) / (1 - abs(modes) ** 2), rtol=1e-10)


def test_a_spectrum_is_an_autocovariance():
    phi, count = 0.6, 512
    w = 2 * np.pi * np.arange(count) / count
    spectrum = (1 - phi**2) / abs(1 - phi * np.exp(-1j * w)) ** 2
    np.testing.assert_allclose(autocovariance_of_spectrum(spectrum)[:40], phi ** np.arange(40), atol=1e-12)
    white = autocovariance_of_spectrum(np.ones(9))
    np.testing.assert_allclose(white, [1, 0, 0, 0, 0], atol=1e-15)
    # A line that turns as the mode does resonates, one that turns against it does not.
    line = autocovariance_of_spectrum(np.eye(count)[32] * count)
    along, against = coloured_energy([0.9 * np.exp(1j * w[32]), 0.9 * np.exp(-1j * w[32])], line, 200)[:, -1]
    assert along == pytest.approx(100, rel=1e-6)
    assert against == pytest.approx(1 / abs(1 - 0.9 * np.exp(-2j * w[32])) ** 2, rel=1e-6)


def test_an_s5_mode_under_correlated_channels():
    rng = np.random.default_rng(0)
    b = rng.normal(size=(2, 3)) + 1j * rng.normal(size=(2, 3))
    mixing = rng.normal(size=(3, 3)) / 2
    # u_t = e_t + A e_{t-1}: R(0) = I + A A^T, R(1) = E u_s u_{s-1}^T = A.
    r = input_autocovariance(b, np.stack([np.eye(3) + mixing @ mixing.T, mixing]))
    eigenvalue = np.array([0.8 * np.exp(0.5j), 0.6j])
    found = coloured_energy(eigenvalue, r, 3)[:, -1]
    # x_3 = sum over the noise e_3 .. e_0 of rows times noise.
    rows = [b, eigenvalue[:, None] * b + b @ mixing]
    rows += [eigenvalue[:, None] * rows[1], eigenvalue[:, None] ** 2 * (b @ mixing)]
    np.testing.assert_allclose(found, sum((abs(row) ** 2).sum(1) for row in rows), rtol=1e-12)


def test_the_mean_over_phases():
    theta = (np.arange(100_000) + 0.5) / 100_000
    for modulus, phi, top in ((0.9, 0.8, 0.3), (0.5, -0.6, 4.0), (0.99, 1.0, 2 * np.pi), (0.99, 1.0, np.pi / 10)):
        exact = ar1_factor(modulus * np.exp(1j * top * theta), phi).mean()
        assert float(ar1_phase_mean(modulus, phi, top)) == pytest.approx(exact, rel=1e-6)
    assert float(ar1_phase_mean(0.99, 1.0, np.pi / 10)) == pytest.approx(9.798, abs=5e-4)
    assert float(ar1_phase_mean(0.99, 1.0, 2 * np.pi)) == pytest.approx(1)


def test_ring_energy_is_the_mean_over_the_ring():
    times = np.arange(60)
    np.testing.assert_allclose(ring_energy(0.9, 0.999, [1.0], 60), lru_energy(0.9, 0.999, times), rtol=1e-10)
    off = ring_energy(0.9, 0.999, [1.0], 60, gamma=Gamma.OFF)
    np.testing.assert_allclose(off, lru_energy(0.9, 0.999, times, Gamma.OFF), rtol=1e-10)
    np.testing.assert_allclose(ring_energy(0.5, 0.9, [1.0], 60, start=Start.STATIONARY), 1, rtol=1e-12)
    steady = ring_energy(0.0, 0.95, 0.9 ** np.arange(400), 400, max_phase=np.pi / 10)[-1]
    assert steady == pytest.approx(3.8255, abs=5e-5)


@pytest.mark.parametrize("start", list(Start))
def test_ring_energy_under_coloured_inputs_is_a_mean_of_quadratic_forms(start):
    r, m = COVARIANCE.real, 7
    u = (np.arange(60) + 0.5) / 60
    total = []
    for squared in 0.25 + (0.81 - 0.25) * u:
        first = 1 / math.sqrt(1 - squared) if start is Start.STATIONARY else 1.0
        modes = math.sqrt(squared) * np.exp(0.5j * u)
        total += [(1 - squared) * simulated_energy(mode, r, m, first) for mode in modes]
    assert ring_energy(0.5, 0.9, r, m, max_phase=0.5, start=start)[-1] == pytest.approx(np.mean(total), rel=1e-4)


def test_the_nodes_are_enough(monkeypatch):
    few = ring_energy(0.9, 0.9999, 0.9 ** np.arange(3000), 3000, max_phase=0.3)
    monkeypatch.setattr(diagonal, "NODES", 400)
    np.testing.assert_allclose(few, ring_energy(0.9, 0.9999, 0.9 ** np.arange(3000), 3000, max_phase=0.3), atol=1e-9)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: lru_energy(0.9, 0.9, 1), "expected 0 <= r_min < r_max <= 1"),
        (lambda: lru_energy(0.5, 1.1, 1), "expected 0 <= r_min < r_max <= 1"),
        (lambda: lru_energy(0.5, 0.9, -1), "counted from 0"),
        (lambda: lru_energy("0.5", 0.9, 1), "r_min: expected real numbers, got str"),
        (
            lambda: lru_energy(0.5, 0.9, 3, "nonsense"),
            "unknown Gamma 'nonsense': expected one of learned, recomputed, off",
        ),
        (lambda: ring_energy(0.5, 0.9, [1.0], 3, gamma="on"), "unknown Gamma 'on'"),
        (lambda: ring_energy(0.5, 0.9, [1.0], 3, start="hot"), "unknown Start 'hot': expected one of zero, stationary"),
        (lambda: ring_energy(0.5, 0.9, [np.nan], 3), "expected a sequence of finite numbers"),
        (lambda: coloured_energy([0.9], [np.nan], 3), "expected a sequence of finite numbers"),
        (lambda: coloured_energy([0.9], [1.0], 2.5), "updates = 2.5: expected whole numbers"),
        (lambda: coloured_limit([0.9], [np.inf]), "expected a sequence of finite numbers"),
        (lambda: ar1_phase_mean(2.0, 0.9, 1.0), r"\|lambda\| = 2.0: .* expected 0 to 1"),
        (lambda: ar1_factor(2.0, 0.9), r"\|lambda\| = 2.0: .* expected 0 to 1"),
        (lambda: ar1_factor([0.5, 1.0], 1.0), "phi lambda = 1: resonance"),
        (lambda: mode_energy(-0.1, 1, np.nan), "power = nan: expected finite numbers"),
        (lambda: lru_limit(-0.1, 0.9), "expected 0 <= r_min"),
        (lambda: mode_energy(0.1, 1), "expected -inf to 0"),
        (lambda: rotrnn_energy(1.1, 1), "expected 0 to 1"),
        (lambda: rotrnn_range_energy(0.0, 0.9, 1), "expected 0 < gamma_min < gamma_max < 1"),
        (lambda: coloured_energy([1.1], [1.0], 3), "expected 0 to 1"),
        (lambda: coloured_energy([0.9], [1.0], 0), "updates = 0: expected at least 1"),
        (lambda: coloured_limit([1.0], [1.0]), "coloured_energy has finite times"),
        (lambda: autocovariance_of_spectrum([1.0, -1.0]), "expected finite numbers >= 0"),
        (lambda: ar1_factor(0.5, 1.5), "expected -1 to 1"),
        (lambda: ar1_phase_mean(0.5, 0.5, 7.0), "at most 2 pi"),
        (lambda: ring_energy(0.5, 0.9, [1.0], 3, max_phase=0.0), "expected above 0"),
    ],
)
def test_what_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
