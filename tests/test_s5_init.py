"""Where S5 starts: HiPPO, the laws of B, C and the step sizes, the state energy that follows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from s5 import S5, CInit, S5Config
from s5.init import hippo_normal, input_matrix, log_step, output_matrix, stored_modes
from scans import Direction

# |w| of the normal part of HiPPO-LegS (arXiv 2008.07669), by size.
FREQUENCIES = {2: [0.8660], 4: [4.6033, 0.5565], 8: [19.8574, 5.3542, 1.9578, 0.4275], 16: [80.9661], 32: [325.4263]}


@pytest.mark.parametrize("size", FREQUENCIES)
def test_frequencies_of_hippo(size):
    eigenvalues, _ = hippo_normal(size)
    w, expected = np.imag(eigenvalues), FREQUENCIES[size]
    np.testing.assert_allclose(-w[: len(expected)], expected, atol=5e-5)
    np.testing.assert_allclose(w, -w[::-1], atol=1e-10)
    assert (np.real(eigenvalues) == -0.5).all()


@pytest.mark.parametrize("size", [1, 3, 8, 128])
def test_normal_part_less_its_rank_one_is_hippo(size):
    eigenvalues, vectors = hippo_normal(size)
    p = np.sqrt(np.arange(size) + 0.5)
    rebuilt = vectors @ np.diag(eigenvalues) @ vectors.conj().T - np.outer(p, p)
    hippo = np.zeros((size, size))
    for i in range(size):
        hippo[i, i] = -(i + 1)
        for j in range(i):
            hippo[i, j] = -np.sqrt((2 * i + 1) * (2 * j + 1))
    np.testing.assert_allclose(rebuilt, hippo, atol=1e-11 * size**2)
    # The phase of an eigenvector is not left to the linear algebra library.
    assert (np.real(vectors[0]) > 0).all()
    assert abs(np.imag(vectors[0])).max() < 1e-12


@pytest.mark.parametrize("conj_sym", [True, False])
def test_blocks_repeat_and_pairs_keep_the_negative_half(conj_sym):
    eigenvalues, vectors = stored_modes(S5Config(width=1, state_size=24, blocks=3, conj_sym=conj_sym))
    one, _ = hippo_normal(8)
    kept = one[:4] if conj_sym else one
    np.testing.assert_array_equal(eigenvalues, np.concatenate([kept] * 3))
    assert (np.imag(eigenvalues) < 0).all() == conj_sym
    np.testing.assert_allclose(vectors.conj().T @ vectors, np.eye(eigenvalues.size), atol=1e-12)
    # A block acts on its own part of the state only.
    assert abs(vectors[:8, kept.size :]).max() == 0


def test_small_blocks_start_alike():
    """ListOps of the paper: blocks of two, one stored mode each."""
    eigenvalues, _ = stored_modes(S5Config(width=1, state_size=16, blocks=8))
    np.testing.assert_allclose(eigenvalues, np.full(8, -0.5 - 0.8660254j), atol=1e-7)


def as_complex(x):
    return np.asarray(x[..., 0]) + 1j * np.asarray(x[..., 1])


def assert_variance(values, expected):
    """Mean of |z|^2 within five standard errors of `expected`; all laws here have E|z|^4 <= 3 (E|z|^2)^2."""
    assert abs((abs(values) ** 2).mean() / expected - 1) < 5 * np.sqrt(2 / values.size)


def test_b_is_a_real_matrix_of_variance_one_over_n_in_the_eigenbasis():
    config = S5Config(width=2000, state_size=16, blocks=2, conj_sym=False)
    _, vectors = stored_modes(config)
    b = as_complex(input_matrix(jax.random.key(0), config, vectors))
    real = vectors @ b
    assert abs(real.imag).max() < 1e-6
    assert_variance(real, 1 / 16)
    # A truncated normal: cut at two standard deviations of what was cut, 2 / 0.8796 of its own.
    assert 0.95 < abs(real).max() / (2 / 0.87963 / 4) <= 1 + 1e-5


def test_pairs_store_half_of_the_rows_of_b():
    key = jax.random.key(1)
    half, full = (S5Config(width=3, state_size=8, blocks=2, conj_sym=c) for c in (True, False))
    (_, few), (_, all_) = stored_modes(half), stored_modes(full)
    b, b_full = input_matrix(key, half, few), input_matrix(key, full, all_)
    np.testing.assert_allclose(b, b_full[jnp.array([0, 1, 4, 5])], atol=1e-6)


# E|c|^2 of real and imaginary part together; the first two are c V with unitary V.
C_VARIANCE = {CInit.LECUN_NORMAL: 2 / (16 * 500), CInit.TRUNC_STANDARD_NORMAL: 2 / 16, CInit.COMPLEX_NORMAL: 1.0}


@pytest.mark.parametrize("law", CInit)
def test_laws_of_c(law):
    config = S5Config(width=500, state_size=16, blocks=2, conj_sym=False, C_init=law)
    _, vectors = stored_modes(config)
    c = as_complex(output_matrix(jax.random.key(2), config, vectors))
    assert c.shape == (500, 16)
    assert_variance(c, C_VARIANCE[law])
    # c V^H has bounded entries where c was drawn in the state's own basis, truncated.
    drawn = c @ vectors.conj().T
    bound = 2 / 0.87963 * np.sqrt(C_VARIANCE[law] / 2)
    assert (abs(drawn.real).max() <= bound * (1 + 1e-5)) == (law is not CInit.COMPLEX_NORMAL)


def test_steps_are_log_uniform():
    steps = np.exp(log_step(jax.random.key(3), S5Config(width=1, state_size=20000, dt_min=1e-4, dt_max=0.1))[:, 0])
    assert steps.shape == (10000,)
    assert 1e-4 <= steps.min() < 1.1e-4
    assert 0.09 < steps.max() <= 0.1 * (1 + 1e-6)
    shares = [(steps < edge).mean() for edge in (1e-3, 1e-2)]
    np.testing.assert_allclose(shares, [1 / 3, 2 / 3], atol=5 * 0.5 / 100)


def drawn(config, seed):
    return S5(config, rngs=nnx.Rngs(seed))


@pytest.mark.parametrize("law", CInit)
def test_all_is_finite_and_float32(law):
    config = S5Config(
        width=3, state_size=256, blocks=1, C_init=law, dt_min=1e-6, dt_max=1.0, direction=Direction.BIDIRECTIONAL
    )
    for seed in range(3):
        leaves = jax.tree.leaves(nnx.state(drawn(config, seed)))
        assert all(leaf.dtype == jnp.float32 and jnp.isfinite(leaf).all() for leaf in leaves)


def gains(layer):
    u = jnp.zeros((1, 1, layer.config.width))
    return np.asarray(layer.state_energies(u, None, (1,))["gain"])


def test_energy_per_mode_is_the_step_size():
    """|B_bar|^2 / (1 - |Lambda_bar|^2) is about Delta D / N where |Lambda| Delta is small, averaged over B."""
    config = S5Config(width=400, state_size=16, blocks=8, dt_min=1e-3, dt_max=1e-2)
    layer = drawn(config, 4)
    delta = np.exp(np.asarray(layer.log_step[...])[:, 0])
    np.testing.assert_allclose(gains(layer) / (delta * 400 / 16), 1, atol=5 * np.sqrt(1 / 400))


# (N, J, D) of published configurations and the total over stored modes; S5 normalises nothing.
TOTALS = {(128, 16, 96): 1.00, (16, 8, 128): 1.38, (384, 3, 512): 2.99}


@pytest.mark.parametrize("sizes", TOTALS, ids=str)
def test_total_energy_of_published_sizes(sizes):
    """The mean over Delta of |B_bar|^2 / (1 - |Lambda_bar|^2), and draws of the layer around it."""
    n, blocks, width = sizes
    config = S5Config(width=width, state_size=n, blocks=blocks)
    eigenvalues, _ = stored_modes(config)
    delta = np.exp(np.linspace(np.log(1e-3), np.log(0.1), 2001))[:, None]
    per_mode = abs(np.expm1(eigenvalues * delta) / eigenvalues) ** 2 / -np.expm1(-delta) * width / n
    assert per_mode.mean(0).sum() == pytest.approx(TOTALS[sizes], abs=0.005)
    found = [gains(drawn(config, seed)).sum() for seed in range(8)]
    # Steps dominate the spread; B adds a little.
    error = np.sqrt(per_mode.var(0).sum() / len(found))
    assert abs(np.mean(found) - TOTALS[sizes]) < 5 * error
