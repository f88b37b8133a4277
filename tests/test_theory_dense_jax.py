"""The jax twin: the values of NumPy, and gradients in the gain."""

import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import oracle_dir

from theory.dense_jax import log_energies
from theory.signal_propagation import log_q, log_s

LARGE = json.loads((oracle_dir() / "signal_propagation.json").read_text())["complex_large"]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("n", sorted({row["n"] for row in LARGE}), ids=lambda n: f"oracle-{n}")
def test_float64_values(n):
    rows = [row for row in LARGE if row["n"] == n]
    found = log_energies(n, max(row["k"] for row in rows))
    for row in rows:
        assert abs(float(found.log_q[row["k"]]) - float(row["logQ"])) < 1e-10
        assert abs(float(found.log_s[row["k"]]) - float(row["logS"])) < 1e-10


@pytest.mark.parametrize("n", [1, 16, 1024, 10**6, 10**10])
def test_float32_values(n):
    found = log_energies(n, 200, 0.97)
    assert found.log_s.dtype == jnp.float32
    assert found.log_q.dtype == jnp.float32
    lags = np.arange(201)
    np.testing.assert_allclose(found.log_q, log_q(n, lags, 0.97), rtol=3e-6, atol=3e-5)
    np.testing.assert_allclose(found.log_s, log_s(n, lags, 0.97), rtol=3e-6, atol=3e-5)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("n", [1, 16, 64])
def test_gradients_in_the_gain(n):
    """d log Q_k / dg = 2k/g;  d log S / dg = sum_k (2k/g) Q_k / S; past k + 1 = n too."""
    k, g = np.arange(41), 0.9
    q = np.exp(log_q(n, k, g))
    slope_q, slope_s = jax.jit(jax.jacobian(lambda gain: [curve[40] for curve in log_energies(n, 40, gain)]))(g)
    assert float(slope_q) == pytest.approx(80 / g, rel=1e-12)
    assert float(slope_s) == pytest.approx((2 * k / g * q).sum() / q.sum(), rel=1e-9)
    assert jax.jit(jax.grad(lambda width: log_energies(width, 40).log_s[40]))(float(n)) < 0


TWIN = """
import jax, numpy as np
from theory.dense_jax import log_energies
from theory.signal_propagation import log_q, log_s
k, g = np.arange(41), 0.9
for n in (16, 64):
    found, q = log_energies(n, 40, g), np.exp(log_q(n, k, g))
    assert found.log_s.dtype == np.float64
    np.testing.assert_allclose(found.log_q, log_q(n, k, g), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(found.log_s, log_s(n, k, g), rtol=1e-11, atol=1e-12)
    slope = jax.grad(lambda gain: log_energies(n, 40, gain).log_s[40])(g)
    np.testing.assert_allclose(slope, (2 * k / g * q).sum() / q.sum(), rtol=1e-10)
"""
"""Compares values and gradients with NumPy."""


def test_a_process_with_x64_gives_what_numpy_gives():
    environment = os.environ | {"JAX_ENABLE_X64": "1"}
    done = subprocess.run([sys.executable, "-c", TWIN], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("x64")
def test_it_traces_and_maps():
    gains, widths = jnp.array([0.8, 1.0]), jnp.array([4.0, 64.0])
    found = jax.jit(jax.vmap(lambda n, gain: log_energies(n, 30, gain)))(widths, gains)
    np.testing.assert_allclose(
        found.log_s, log_s(np.array([[4], [64]]), np.arange(31), np.array([[0.8], [1]])), rtol=1e-11
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((0, 3), "n = 0"), ((2**60, 3), "expected at most"), ((8, -1), "longest = -1"), ((8, 3, 0.0), "above 0")],
)
def test_what_is_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        log_energies(*arguments)
