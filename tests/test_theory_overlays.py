"""Any family on one axis: origins, units, caveats; and the energies of a given W."""

# pyright: reportArgumentType=false
# Strings for members, and arguments of wrong types, are given on purpose.

import numpy as np
import pytest

from theory.signal_propagation import (
    LRU,
    Dense,
    Ensemble,
    Gamma,
    Modes,
    Origin,
    Orthogonal,
    RotRNN,
    Start,
    Unit,
    coloured_energy,
    log_energy,
    log_s,
    lru_energy,
    measure,
    overlay,
    real_cross_moment,
    real_s,
    rotrnn_energy,
)

T = np.array([1, 5, 30])
LAGS, UPDATES = Origin.FIRST_INPUT, Origin.ZERO_STATE
NATIVE, REAL = Unit.NATIVE, Unit.REAL
AR1 = 0.8 ** np.arange(60)


@pytest.mark.parametrize(
    ("model", "lags", "real_numbers"),
    [
        (Dense(16), np.exp(log_s(16, T)), 2),
        (Dense(16, Ensemble.REAL, 0.9), np.exp(log_s(16, T, 0.9)), 1),
        (Orthogonal(), T + 1.0, 1),
        (LRU(0.9, 0.999), lru_energy(0.9, 0.999, T), 2),
        (LRU(0.9, 0.999, Gamma.OFF), lru_energy(0.9, 0.999, T, Gamma.OFF), 2),
        (RotRNN(0.9, 0.999, 8), lru_energy(0.9, 0.999, T), 8),
        (RotRNN(0.9, 0.999, 8, Start.STATIONARY), np.ones(3), 8),
        (Modes((0.9, 0.5j), (0.19, 0.75)), (rotrnn_energy(0.9, T + 1) + rotrnn_energy(0.5, T + 1)) / 2, 2),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, np.ndarray | int) else "",
)
def test_energies_by_origin_and_unit(model, lags, real_numbers):
    np.testing.assert_allclose(overlay(model, T, origin=LAGS, unit=NATIVE).energy, lags, rtol=1e-10)
    np.testing.assert_allclose(overlay(model, T, origin=LAGS, unit=REAL).energy, lags / real_numbers, rtol=1e-10)
    np.testing.assert_allclose(overlay(model, T + 1, origin=UPDATES, unit=NATIVE).energy, lags, rtol=1e-10)


@pytest.mark.parametrize(
    ("by_name", "by_member"),
    [
        (Dense(16, "complex"), Dense(16)),
        (Dense(16, "real"), Dense(16, Ensemble.REAL)),
        (Orthogonal(), Orthogonal()),
        (LRU(0.5, 0.9, "off"), LRU(0.5, 0.9, Gamma.OFF)),
        (RotRNN(0.5, 0.9, 8, "stationary"), RotRNN(0.5, 0.9, 8, Start.STATIONARY)),
    ],
)
def test_strings_name_choices(by_name, by_member):
    for origin in Origin:
        for unit in Unit:
            found = overlay(by_name, [5], origin=str(origin.value), unit=str(unit.value))
            known = overlay(by_member, [5], origin=origin, unit=unit)
            assert (found.energy, found.notes) == (known.energy, known.notes)


def test_coloured_inputs_change_diagonal_models_and_not_complex_dense_ones():
    dense, orthogonal = (overlay(m, T, origin=LAGS, unit=NATIVE, autocovariance=AR1) for m in (Dense(16), Orthogonal()))
    np.testing.assert_allclose(dense.log_energy, log_s(16, T))
    np.testing.assert_allclose(orthogonal.energy, T + 1)
    modes = overlay(Modes((0.9,), (2.0,)), T, origin=LAGS, unit=NATIVE, autocovariance=AR1)
    np.testing.assert_allclose(modes.energy, 2 * coloured_energy([0.9], AR1, 31)[0, T])
    # Phases near 0 resonate with inputs that change slowly; those on the full circle do not.
    near, around = (LRU(0.9, 0.99, max_phase=phase) for phase in (0.1, 2 * np.pi))
    found = [overlay(m, 400, origin=LAGS, unit=NATIVE, autocovariance=AR1).energy for m in (near, around)]
    assert found[0] > 4
    assert found[1] == pytest.approx(1, abs=0.03)


def test_notes_say_origin_unit_and_what_the_mean_hides():
    short, long = (overlay(Dense(256, Ensemble.REAL), t, origin=LAGS, unit=REAL).notes for t in (32, 33))
    assert short[:3] == ("t = 0: h_0 = x_0", "per real number of the state", "white inputs")
    assert any("lower bound" in note for note in short)
    assert not any("rare draws" in note for note in short)
    assert any("rare draws" in note for note in long)
    head = overlay(RotRNN(0.9, 0.99, 4), [1], origin=UPDATES, unit=NATIVE, autocovariance=AR1).notes
    assert head == ("t = 0: h_0 = 0", "per head", "coloured inputs")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: overlay(Orthogonal(), [0], origin=UPDATES, unit=NATIVE), "expected t >= 1 from the zero state"),
        (lambda: overlay(Orthogonal(), [-1], origin=LAGS, unit=NATIVE), "counted from 0"),
        (lambda: overlay(Orthogonal(), [1], origin=LAGS, unit=NATIVE, autocovariance=[2.0]), r"r\(0\) = 1"),
        (lambda: overlay(Dense(8, Ensemble.REAL), [1], origin=LAGS, unit=NATIVE, autocovariance=AR1), "no closed form"),
        (
            lambda: overlay(Orthogonal(), [1], origin=None, unit=NATIVE),
            "unknown Origin None: expected one of h_0 = x_0",
        ),
        (lambda: overlay(Orthogonal(), [1], origin=LAGS, unit=None), "unknown Unit None: expected one of native, real"),
        (lambda: overlay(Dense(8, "real"), [1], origin=LAGS, unit=NATIVE, autocovariance=AR1), "no closed form"),
        (lambda: overlay(Orthogonal(), [1], origin=LAGS, unit=NATIVE, autocovariance=[1, np.nan]), "expected finite"),
        (
            lambda: overlay(Modes((0.9,), (1.0,)), [9], origin=LAGS, unit=REAL, autocovariance=[1, -1]),
            "energies below 0",
        ),
        (lambda: Dense(8, "quaternion"), "unknown Ensemble 'quaternion': expected one of complex, real"),
        (lambda: Dense(8.5), "n = 8.5: expected whole numbers"),
        (lambda: LRU(0.5, 0.9, "on"), "unknown Gamma 'on'"),
        (lambda: RotRNN(0.5, 0.9, 8, "hot"), "unknown Start 'hot'"),
        (lambda: RotRNN(0.5, 0.9, 0), "state_per_head = 0: expected at least 1"),
        (lambda: Modes((0.9,), ()), "1 modes with 0 powers"),
        (lambda: Modes((0.9,), (-1.0,)), "powers = -1.0"),
        (lambda: measure(3, np.ones((2, 5, 3))), r"W \(\) on inputs"),
        (lambda: measure([["1"]], np.ones((2, 5, 1))), "expected finite numbers"),
        (lambda: measure(np.eye(3), np.ones((2, 5, 4))), r"expected \(n, n\) and \(sequences, T, n\)"),
        (lambda: measure(np.eye(3), np.full((2, 5, 3), np.nan)), "expected finite numbers"),
    ],
)
def test_what_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_origin_and_unit_have_no_default():
    with pytest.raises(TypeError, match="origin"):
        overlay(Orthogonal(), T, unit=NATIVE)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="unit"):
        overlay(Orthogonal(), T, origin=LAGS)  # pyright: ignore[reportCallIssue]


def test_measured_energies_are_those_of_the_recurrence():
    rng = np.random.default_rng(0)
    weight, inputs = rng.normal(size=(4, 4)) / 2, rng.normal(size=(3, 20, 4))
    h, expected = np.zeros((3, 4)), []
    for t in range(20):
        h = h @ weight.T + inputs[:, t]
        expected.append((h**2).mean())
    found = measure(weight, inputs)
    assert found.sequences == 3
    np.testing.assert_allclose(np.exp(found.log_energy), expected, rtol=1e-12)


def test_measured_energies_do_not_overflow():
    inputs = np.zeros((1, 500, 2))
    inputs[:, 0] = 1
    found = measure(10 * np.eye(2), inputs).log_energy
    np.testing.assert_allclose(found, 2 * np.arange(500) * np.log(10), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e200, 1.7e308 * (1 + 1j)])
@pytest.mark.parametrize("factor", [1e-200, 1.0, 1e200, 1.7e308 * (1 + 1j)])
def test_measured_energies_have_no_range(factor, scale):
    """h_t = x (1 + ... + f^t) for W = f I and constant x: its size is that of the largest term."""
    log_factor, log_x = (np.log(abs(value / 1e10)) + 10 * np.log(10) for value in (factor, scale))
    found = measure(factor * np.eye(2), np.full((3, 4, 2), scale)).log_energy
    terms = np.arange(1, 5) if factor == 1 else np.ones(4)
    largest = np.maximum(np.arange(4) * log_factor, 0)
    np.testing.assert_allclose(found, 2 * (largest + np.log(terms) + log_x), rtol=1e-12, atol=1e-9)


def test_measured_energies_die_without_underflow():
    inputs = np.zeros((1, 500, 2))
    inputs[:, 0] = 1
    np.testing.assert_allclose(measure(np.eye(2) / 10, inputs).log_energy, -2 * np.arange(500) * np.log(10), atol=1e-9)
    assert (measure(np.eye(2), 0 * inputs).log_energy == -np.inf).all()
    np.testing.assert_allclose(measure(np.zeros((2, 2)), inputs[:, :2]).log_energy, [0, -np.inf])
    late = measure(np.eye(2), inputs[:, ::-1]).log_energy
    assert (late[:-1] == -np.inf).all()
    assert late[-1] == 0


def test_constant_inputs_add_energy_to_real_weights_only():
    """Mean over draws at n = 16, t = 4: complex S; real S plus 2 sum over k > l of E tr(W^k (W^l)^T)/n."""
    rng, n, t, draws = np.random.default_rng(1), 16, 4, 4000
    pairs = [(k, l) for k in range(t + 1) for l in range(k)]
    exact = real_s(n, t) + 2 * sum(real_cross_moment(n, k, l) for k, l in pairs)
    assert exact > 1.1 * real_s(n, t)
    for complex_part, expected in ((0, exact), (1, np.exp(log_energy(n, np.ones(t + 1))[-1]))):
        scale = np.sqrt(n * (1 + complex_part))
        energies = []
        for _ in range(draws):
            weight = (rng.normal(size=(n, n)) + 1j * complex_part * rng.normal(size=(n, n))) / scale
            x = np.broadcast_to(rng.normal(size=n), (1, t + 1, n))
            energies.append(np.exp(measure(weight, x).log_energy[-1]))
        error = np.std(energies) / np.sqrt(draws)
        assert error < 0.03 * expected
        assert abs(np.mean(energies) - expected) < 4 * error
