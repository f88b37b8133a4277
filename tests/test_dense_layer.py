"""The dense recurrence as a layer: its equations, its initial law, its energies, and the theory that they follow."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from layer_runs import Run, assert_close, assert_normal, normals

from dense import DenseConfig, Weights
from dense.layer import coloured_energy
from models.build import split_model
from models.registry import LAYERS
from theory.draws import agreement
from theory.signal_propagation import log_s, real_s
from training.probe import energy_refs, probe_rows

WIDTH, N, BATCH, STEPS = 3, 4, 2, 6
BOTH = [weights.value for weights in Weights]


def make(weights, seed=0, **options) -> Run:
    return Run.of("dense", options.pop("width", WIDTH), seed, **({"state_size": N, "weights": weights} | options))


def entries(run: Run, name: str) -> np.ndarray:
    """A parameter as the matrix that it stands for."""
    value = run.array(name)
    return value if run.array("W").ndim == 2 else value[..., 0] + 1j * value[..., 1]


def loop(run: Run, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """y and all states by the equations of the layer."""
    w, b, c = (entries(run, name) for name in "WBC")
    x, states = np.zeros((len(u), len(w)), w.dtype), []
    for u_t in np.swapaxes(u, 0, 1):
        x = x @ w.T + u_t @ b.T
        states.append(x)
    states = np.stack(states, 1)
    return np.real(states @ c.T) + run.array("D") * u, states


@pytest.mark.parametrize("weights", BOTH)
def test_equals_the_equations(x64, weights):
    run, u = Run.drawn("dense", WIDTH, state_size=N, weights=weights), normals(BATCH, STEPS, WIDTH)
    y, state, _ = jax.jit(lambda u: run.module()(u))(jnp.asarray(u))
    expected, states = loop(run, u)
    assert_close(y, expected)
    last = states[:, -1]
    assert_close(state.x, last if weights == "real" else np.concatenate([np.real(last), np.imag(last)], 1))


@pytest.mark.parametrize("weights", BOTH)
def test_initial_law(weights):
    """Variance gain^2/n, 1/D, 1/n; complex entries are circular: E z^2 = 0."""
    run = make(weights, width=100, state_size=150, gain=0.8)
    for name, std in (("W", 0.8 / np.sqrt(150)), ("B", 1 / np.sqrt(100)), ("C", 1 / np.sqrt(150))):
        parts = run.array(name).reshape(-1, 2 if weights == "complex" else 1).T
        for part in parts:
            assert_normal(part, std / np.sqrt(len(parts)))
        assert abs(np.corrcoef(parts[0], parts[-1])[0, 1] - (len(parts) == 1)) < 5 / np.sqrt(parts.shape[1])
    assert_normal(run.array("D"), 1.0)
    np.testing.assert_allclose(run.array("W"), 0.8 * make(weights, width=100, state_size=150).array("W"), rtol=1e-5)


@pytest.mark.parametrize("weights", BOTH)
def test_energies_are_those_of_a_plain_loop_in_units_of_an_input(x64, weights):
    run, u, times = make(weights), normals(BATCH, STEPS, WIDTH), (1, 2, 5)
    mask = np.arange(STEPS) < np.array([[STEPS], [2]])
    found = jax.jit(lambda u, mask: run.module()(u, mask=mask, probe=times)[2])(jnp.asarray(u), jnp.asarray(mask))
    square = np.abs(loop(run, u)[1]) ** 2
    assert_close(found["energy"], square[mask].mean(0))
    assert_close(found["gain"], (np.abs(entries(run, "B")) ** 2).sum(1))
    stacked: Any = {name: np.asarray(value)[None] for name, value in found.items()} | {"finite": np.ones(1, bool)}
    (row,) = probe_rows([stacked], energy_refs([stacked]), mask.sum(1), times)
    of_input, energy = np.asarray(found["gain"]).sum(), square.sum(2)
    assert_close(np.asarray(row["state_energy_t"][0]), np.array([*energy[:, :2].mean(0), energy[0, 4]]) / of_input)
    assert row["state_energy"][0] == pytest.approx(row["state_energy_raw"][0] / of_input)
    assert [row[name] for name in ("state_gain", "state_align", "state_temporal")] == [[None]] * 3


@pytest.mark.parametrize("weights", BOTH)
def test_the_autocovariance_of_the_inputs_foretells_the_energy(x64, weights):
    """Against the double sum over powers of W, and as a layer against its own states over many correlated inputs."""
    run = Run.drawn("dense", WIDTH, state_size=N, weights=weights)
    system = run.module().system()
    r = normals(STEPS, len(system.w), len(system.w))
    r[0] = r[0] @ r[0].T
    powers = [np.linalg.matrix_power(np.asarray(system.w), k) for k in range(STEPS)]
    lagged = lambda tau: r[tau] if tau >= 0 else r[-tau].T  # noqa: E731
    terms = [[np.trace(powers[k] @ lagged(l - k) @ powers[l].T) for k in range(STEPS)] for l in range(STEPS)]
    expected = [np.sum(np.array(terms)[:t, :t]) for t in (1, 2, 5)]
    np.testing.assert_allclose(coloured_energy(system, jnp.asarray(r), (1, 2, 5)), expected, rtol=1e-12)
    white = normals(20_000, STEPS + 1, WIDTH)
    u = (white[:, :-1] + white[:, 1:]) / np.sqrt(2)
    found = jax.jit(lambda u: run.module()(u, probe=(1, 3, 6))[2])(jnp.asarray(u))
    np.testing.assert_allclose(found["coloured_t"], found["energy_t"], rtol=0.05)
    assert abs(found["energy_t"][-1] / found["white_t"][-1] - 1) > 0.1


DRAWS, ORDER, LONGEST = 2000, 16, 7


def log_energies(weights: str, gain: float = 1.0) -> np.ndarray:
    """The energy of each draw of the layer at t = 1..7 under white unit inputs, in units of one; (draws, 7).

    It is the sum over all unit impulses, without an error of sampled inputs; and what the layer says of itself.
    """
    options = {"state_size": ORDER, "weights": weights, "gain": gain}
    build: Any = lambda key: split_model(cast(nnx.Module, LAYERS["dense"].build(WIDTH, options, nnx.Rngs(key))))  # noqa: E731
    graphdef = build(jax.random.key(0))[0]
    impulses = jnp.eye(LONGEST * WIDTH).reshape(-1, LONGEST, WIDTH)

    def energy(key):
        found = nnx.merge(graphdef, build(key)[1])(impulses, probe=tuple(range(1, LONGEST + 1)))[2]
        return jnp.stack([len(impulses) * found["energy_t"], found["white_t"]]) / found["gain"].sum()

    found = np.asarray(jax.jit(jax.vmap(energy))(jax.random.split(jax.random.key(7), DRAWS)), float)
    np.testing.assert_allclose(found[:, 1], found[:, 0], rtol=1e-4)
    return np.log(found[:, 0])


@pytest.mark.parametrize("gain", [1.0, 0.8])
def test_complex_layers_follow_the_exact_mean(gain):
    """Up to t = 7, c = 1.5: at gain 1 it is 7.50 there, orthogonal weights would give 7."""
    found = agreement(log_energies("complex", gain), log_s(ORDER, np.arange(LONGEST), gain))
    assert found.agrees.all(), (found.score.round(1), found.error.max())


def test_real_layers_follow_their_own_polynomials():
    """Which are above the complex mean: the difference is seen."""
    found = log_energies("real")
    exact = agreement(found, np.log(real_s(ORDER, np.arange(LONGEST))))
    assert exact.agrees.all(), (exact.score.round(1), exact.error.max())
    assert agreement(found, log_s(ORDER, np.arange(LONGEST))).score[-1] > 3


def test_sizes():
    assert DenseConfig(3, 8).real_state_size == DenseConfig(3, 16, weights=Weights.REAL).real_state_size == 16


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state_size": 0}, "dense: width=3 and state_size=0 must be at least 1"),
        ({"width": -1}, "dense: width=-1 and state_size=4 must be at least 1"),
        ({"weights": "unitary"}, "unknown Weights 'unitary': expected one of complex, real"),
        ({"gain": 0.0}, "dense: gain=0.0 must be positive and finite"),
        ({"gain": float("inf")}, "dense: gain=inf must be positive and finite"),
    ],
)
def test_refused_in_one_line(changes, message):
    with pytest.raises(ValueError) as refusal:
        DenseConfig(**({"width": 3, "state_size": 4} | changes))
    assert str(refusal.value) == message
