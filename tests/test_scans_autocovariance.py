"""The autocovariance of a batch against the mean over all pairs, and its energies against theory, in float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from scans import DiagonalSystem
from scans.autocovariance import autocovariance, cross_covariance, stationary_energy
from scans.energy import diagonal_energy
from theory.diagonal import aligned_energy, coloured_energy

STEPS, MODES = 7, 3
# Whole, cut, with a gap, one element, none.
MASK = np.array([list(row) for row in ("1111111", "1111000", "1011010", "0010000", "0000000")]) == "1"


def increments():
    draws = np.random.default_rng(0).standard_normal((2, len(MASK), STEPS, MODES))
    return draws[0] + 1j * draws[1]


def system(start_gain=None):
    log_mag, phase = jnp.log(jnp.array([0.5, 0.9, 0.999])), jnp.array([0.3, 2.0, -1.0])
    none = jnp.zeros((MODES, 0))
    return DiagonalSystem(log_mag, phase, none, none, none.T, none.T, jnp.zeros(0), start_gain=start_gain)


def test_it_is_the_mean_over_all_pairs(x64):
    w = increments()
    found = autocovariance(jnp.asarray(w), jnp.asarray(MASK))
    for tau in range(STEPS):
        pairs = []
        for sequence, valid in zip(w, MASK, strict=True):
            kept = sequence[valid]
            pairs += [kept[s] * kept[s - tau].conj() for s in range(tau, len(kept))]
        np.testing.assert_allclose(found[tau], np.mean(pairs, axis=0), atol=1e-14)


def test_between_coordinates_as_well(x64):
    w = increments().real
    found = cross_covariance(jnp.asarray(w), jnp.asarray(MASK))
    for tau in range(STEPS):
        pairs = []
        for sequence, valid in zip(w, MASK, strict=True):
            kept = sequence[valid]
            pairs += [np.outer(kept[s], kept[s - tau]) for s in range(tau, len(kept))]
        np.testing.assert_allclose(found[tau], np.mean(pairs, axis=0), atol=1e-14)


def test_a_lag_without_a_pair_is_nothing(x64):
    found = autocovariance(jnp.asarray(increments()), jnp.asarray(MASK & (np.arange(STEPS) < 4)))
    assert np.abs(found[3]).min() > 0
    assert not np.any(found[4:])


@pytest.mark.parametrize("start_gain", [None, (1.2, 2.3, 22.0)])
def test_energies_are_those_of_theory(x64, start_gain):
    r = np.asarray(autocovariance(jnp.asarray(increments()), jnp.asarray(MASK)))
    made = system(None if start_gain is None else jnp.asarray(start_gain))
    eigenvalues = np.exp(made.log_mag + 1j * np.asarray(made.phase))
    found = stationary_energy(made, jnp.asarray(r))
    if start_gain is None:
        expected = coloured_energy(eigenvalues, r.T, STEPS)
    else:
        aligned = (eigenvalues.conj()[:, None] ** np.arange(STEPS) * r.T).real
        expected = aligned_energy(np.abs(eigenvalues), aligned, np.asarray(start_gain))
    np.testing.assert_allclose(found.T, expected, rtol=1e-12)


def test_a_pass_from_the_end_is_one_over_the_inputs_turned_round(x64):
    b = jnp.asarray(np.random.default_rng(1).standard_normal((2, MODES, 2)))
    made = system()._replace(b_re=b[0], b_im=b[1])
    u = jnp.asarray(np.random.default_rng(2).standard_normal((len(MASK), STEPS, 2)).cumsum(1))
    mask, times = jnp.asarray(MASK), (1, 3, 7)
    found = diagonal_energy(made, u, times, mask=mask, reverse=True).coloured_t
    np.testing.assert_allclose(found, diagonal_energy(made, u[:, ::-1], times, mask=mask[:, ::-1]).coloured_t)
    assert np.abs(found / diagonal_energy(made, u, times, mask=mask).coloured_t - 1).max() > 0.01
