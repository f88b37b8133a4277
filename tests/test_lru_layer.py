"""The laws of the LRU (arXiv 2303.06349) through the registered module."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layer_runs import (
    Run,
    assert_all_finite,
    assert_close,
    assert_mean,
    assert_normal,
    assert_uniform,
    by_steps,
    extreme_uniforms,
    mode_energy,
    normals,
    trained,
)

from lru import LRUConfig

WIDTH, MODES = 3, 4


def make(seed=0, **options) -> Run:
    return Run.of("lru", options.pop("width", WIDTH), seed, **({"state_size": MODES} | options))


def moduli_squared(run: Run) -> np.ndarray:
    return np.exp(-2 * np.exp(run.array("nu_log").astype(float)))


def norms_of_b(run: Run) -> np.ndarray:
    """|b_k|^2 of every mode."""
    return (run.array("B_re") ** 2 + run.array("B_im") ** 2).sum(1)


@pytest.mark.parametrize(
    ("r_min", "r_max", "max_phase"), [(0.0, 0.99, 2 * np.pi), (0.9, 0.999, np.pi / 10), (0.0, 1.0, 1.0)]
)
def test_ring_and_phases(r_min, r_max, max_phase):
    run = make(state_size=4000, width=1, r_min=r_min, r_max=r_max, max_phase=max_phase)
    assert_uniform(moduli_squared(run), r_min**2, r_max**2)
    assert_uniform(np.exp(run.array("theta_log")), 0, max_phase)
    gamma = np.exp(run.array("gamma_log").astype(float))
    np.testing.assert_allclose(gamma**2, 1 - moduli_squared(run), rtol=2e-5, atol=1e-6)


def test_initial_standard_deviations():
    run = make(state_size=200, width=100, direction="bidirectional")
    for name in ("B_re", "B_im"):
        assert_normal(run.array(name), 1 / np.sqrt(2 * 100))
    for name in ("C_re", "C_im", "C_backward_re", "C_backward_im"):
        assert_normal(run.array(name), 1 / np.sqrt(200))
    assert_normal(run.array("D"), 1)
    # Averaged over B the energy of a mode is 1 (white inputs, long after the start).
    assert_mean(norms_of_b(run), 1.0)


def gain_at(run: Run, direction: str) -> np.ndarray:
    """The steady energy of every mode under white inputs, as the module's probe has it."""
    u = jnp.asarray(normals(1, 2, WIDTH))
    gain = jax.jit(lambda: run.module()(u, probe=(1,))[2]["gain"])()
    return np.asarray(gain).reshape(2 if direction == "bidirectional" else 1, MODES)


@pytest.mark.parametrize("gamma", ["learned", "recomputed", "off"])
def test_gain_before_and_after_training(x64, gamma):
    """|b_k|^2 at the start; recomputed keeps it so, learned does not; off leaves |b_k|^2 / (1 - |lambda_k|^2)."""
    direction = "bidirectional" if gamma == "recomputed" else "forward"
    first = make(gamma=gamma, r_min=0.3, r_max=0.9, direction=direction)
    assert ("gamma_log" in first.params) == (gamma == "learned")
    later = trained(first, WIDTH)
    for run in (first, later):
        law = norms_of_b(run) / (1 - moduli_squared(run) if gamma == "off" else 1)
        found = gain_at(run, direction)
        if run is later and gamma == "learned":
            assert (np.abs(found / law - 1) > 0.01).all()
            free = np.exp(2 * run.array("gamma_log")) / (1 - moduli_squared(run))
            assert_close(found, (law * free)[None])
        else:
            assert_close(found, np.broadcast_to(law, found.shape))
    assert (np.abs(moduli_squared(later) - moduli_squared(first)) > 1e-3).all()


def energy_law(run: Run, t):
    gain, squared = np.exp(2 * run.array("gamma_log")), moduli_squared(run)
    return gain * norms_of_b(run) * (1 - squared**t) / (1 - squared)


def test_energy_law_by_simulation(x64):
    """White inputs, 20,000 sequences for every length, ragged with full padding, both directions; and by steps."""
    count, lengths, steps = 20_000, np.array([1, 2, 6]), 6
    mask = jnp.asarray(np.arange(steps) < np.repeat(lengths, count)[:, None])
    run = make(r_min=0.3, r_max=0.95, direction="bidirectional")
    u = normals(len(mask), steps, WIDTH)
    law = energy_law(run, lengths[:, None])
    energies = jax.jit(lambda u, mask: mode_energy(run.module()(u, mask=mask)[1].x))(u, mask)
    for way in np.asarray(energies).reshape(2, len(lengths), count, MODES):
        assert_mean(np.swapaxes(way, 0, 1), law)
    shell = make(r_min=0.3, r_max=0.95)
    forward = shell.with_params(**{k: v for k, v in run.params.items() if k in shell.params})
    stepped = jax.jit(lambda u: mode_energy(by_steps(forward, u)[1]))(u[:count])
    assert_mean(np.asarray(stepped)[:, lengths - 1], law)


def test_energy_law_exactly(x64):
    """E|x_k,t|^2 is the sum of |x_k,t|^2 over all unit impulses, at initialisation and after training."""
    steps = 5
    impulses = jnp.asarray(np.eye(steps * WIDTH).reshape(-1, steps, WIDTH))
    runs = (first := make(r_min=0.3, r_max=0.95, direction="backward"), trained(first, WIDTH))
    found = jax.jit(lambda params: mode_energy(first.on(params).module()(impulses)[1].x).sum(0))
    for run in runs:
        assert_close(found(run.params), energy_law(run, steps))


RINGS: list[dict[str, Any]] = [
    {"r_min": 0.0, "r_max": 1.0},
    {"r_min": 0.0, "r_max": 1e-3},
    {"r_min": 0.9999, "r_max": 1.0},
]


def test_every_seed_is_finite():
    assert_all_finite([make(seed, **ring) for ring in RINGS for seed in range(20)], WIDTH)


@pytest.mark.parametrize("gamma", ["learned", "recomputed"])
def test_extreme_draws_are_finite(monkeypatch, gamma):
    """Both ends of the uniform draws, where a logarithm could be infinite."""
    runs = [make(gamma=gamma, **ring) for _ in extreme_uniforms(monkeypatch) for ring in RINGS]
    assert_all_finite(runs, WIDTH)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, r"width=0 and state_size=4 must be at least 1"),
        ({"state_size": 0}, r"width=3 and state_size=0 must be at least 1"),
        ({"r_min": -0.1}, r"0 <= r_min < r_max <= 1 is needed, got r_min=-0.1, r_max=0.99"),
        ({"r_min": 0.9, "r_max": 0.9}, r"got r_min=0.9, r_max=0.9"),
        ({"r_max": 1.01}, r"got r_min=0.0, r_max=1.01"),
        ({"r_max": float("nan")}, r"r_max=nan"),
        ({"max_phase": 0.0}, r"0 < max_phase <= 2 pi is needed, got 0.0"),
        ({"max_phase": 6.3}, r"got 6.3"),
        ({"gamma": "fixed"}, r"unknown Gamma 'fixed': expected one of learned, recomputed, off"),
        ({"direction": "up"}, r"unknown Direction 'up'"),
    ],
)
def test_refuses_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        LRUConfig(**({"width": WIDTH, "state_size": MODES} | options))
