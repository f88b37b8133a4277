"""The MLP layer: two products, no mixing over time."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from mlp import MLP, MLPConfig


def layer_of(**changes):
    layer = MLP(MLPConfig(**{"width": 6, **changes}), rngs=nnx.Rngs(0))
    layer.W_in = nnx.Param(50 * layer.W_in[...])
    return layer


def drawn(seed=0):
    return np.random.default_rng(seed).normal(size=(2, 5, 6))


def test_equals_the_formula(x64):
    layer = layer_of(expansion=3)
    u = drawn()
    hidden = u @ np.asarray(layer.W_in[...])
    assert hidden.shape == (2, 5, 18)
    gelu = hidden * 0.5 * (1 + np.vectorize(math.erf)(hidden / math.sqrt(2)))
    y, state, diagnostics = layer(jnp.asarray(u))
    np.testing.assert_allclose(y, gelu @ np.asarray(layer.W_out[...]), atol=1e-14)
    assert (state, diagnostics) == ((), {})


def test_no_token_sees_another(x64):
    jacobian = jax.jacrev(lambda u: layer_of()(u)[0][0].sum(-1))(jnp.asarray(drawn())[:1])
    found = np.abs(jacobian[:, 0]).max(-1)
    assert (found[~np.eye(5, dtype=bool)] == 0).all()
    assert np.diagonal(found).min() > 1e-3


def test_masked_steps_give_zero_and_steps_equal_the_whole():
    layer, u = layer_of(), jnp.asarray(drawn(), jnp.float32)
    mask = jnp.asarray([[True] * 5, [True, False, True, False, False]])
    graphdef, params = nnx.split(layer)

    def loss(params):
        y, _, _ = nnx.merge(graphdef, params)(jnp.where(mask[..., None], u, jnp.nan), mask=mask, reset=mask)
        return (y**2).sum(), y

    (_, y), gradient = jax.value_and_grad(loss, has_aux=True)(params)
    assert (y[~mask] == 0).all()
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    state = layer.initial_state(2)
    for t in range(5):
        y_t, state = layer.step(u[:, t], state, reset=mask[:, t])
        np.testing.assert_allclose(jnp.where(mask[:, t, None], y_t, 0), y[:, t], atol=1e-7)
        assert state == ()


def test_initial_weights():
    params = nnx.to_pure_dict(nnx.state(MLP(MLPConfig(width=64, sublayers=4), rngs=nnx.Rngs(0))))
    assert {name: leaf.shape for name, leaf in params.items()} == {"W_in": (64, 256), "W_out": (256, 64)}
    assert np.std(params["W_in"]) == pytest.approx(0.02, rel=0.03)
    assert np.std(params["W_out"]) == pytest.approx(0.01, rel=0.03)


@pytest.mark.parametrize(
    "sizes", [{"width": 0}, {"width": 4, "expansion": 0}, {"width": 4, "sublayers": 0}], ids=["width", "expansion", "L"]
)
def test_refused_with_the_numbers(sizes):
    ((name, value),) = [(name, value) for name, value in sizes.items() if value == 0]
    with pytest.raises(ValueError, match=f"{name}={value}.* must be at least 1"):
        MLPConfig(**sizes)


def test_nothing_is_carried():
    config = MLPConfig(width=64)
    carried = MLP(config, rngs=nnx.Rngs(0)).initial_state(2)
    assert (sum(leaf.size for leaf in jax.tree.leaves(carried)), config.real_state_size) == (0, 0)
