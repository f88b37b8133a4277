"""log |det|: value and gradient against the library, in any batch, and what singular matrices give."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from linalg import log_abs_det


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (5, 2, 2), (2, 3, 8, 8)])
def test_value_and_gradient_are_those_of_slogdet(x64, shape):
    draw = np.random.default_rng(0)
    m, weight = jnp.asarray(draw.normal(size=shape)), jnp.asarray(draw.normal(size=shape[:-2]))
    np.testing.assert_allclose(log_abs_det(m), np.linalg.slogdet(m)[1], rtol=1e-10, atol=1e-12)
    gradient = jax.jit(jax.grad(lambda m: (weight * log_abs_det(m)).sum()))(m)
    expected = np.asarray(weight)[..., None, None] * np.swapaxes(np.linalg.inv(m), -1, -2)
    np.testing.assert_allclose(gradient, expected, rtol=1e-8, atol=1e-10)


def test_a_singular_matrix_has_minus_infinity():
    assert log_abs_det(jnp.ones((3, 3))) == -jnp.inf
