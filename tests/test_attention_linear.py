"""Linear attention: against a loop, recurrent and parallel, over masks and resets, and through its state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_layers import (
    Runs,
    assert_close,
    check_full_split_and_stepwise,
    check_looks_back_and_never_ahead,
    check_padding,
    runs,
)
from attention_loop import MASK, RESET, inputs, linear_loop

from attention import LinearAttention, LinearAttentionConfig, Position
from attention.linear import Features, LinearState, accumulate, phi
from attention.timeline import Timeline

WIDTH = 12
each_position = pytest.mark.parametrize("position", ["rope", "none"])


def runs_of(position):
    return runs(LinearAttention, LinearAttentionConfig(WIDTH, 2, Position(position)))


@each_position
def test_equals_the_loop(x64, position):
    layer, u = runs_of(position), inputs(WIDTH)
    expected = linear_loop(layer.config, layer.weights, u, MASK, RESET)
    np.testing.assert_allclose(layer.whole(u, MASK, RESET)[0], expected, atol=1e-12)


@each_position
def test_full_split_and_stepwise_are_equal(x64, position):
    check_full_split_and_stepwise(runs_of(position))


@each_position
def test_padding_changes_nothing(x64, position):
    check_padding(runs_of(position))


@each_position
def test_looks_back_and_never_ahead(x64, position):
    check_looks_back_and_never_ahead(runs_of(position))


def test_recurrent_chunked_and_parallel_are_equal(x64):
    """Values, last sums and gradients, from sums that are not empty."""
    draw = np.random.default_rng(3)
    q, k, q_turned, k_turned, v = (jnp.asarray(draw.normal(size=(3, 7, 2, 4))) for _ in range(5))
    matrix, norm = jnp.asarray(draw.normal(size=(3, 2, 4, 4))), jnp.asarray(draw.uniform(1, 2, size=(3, 2, 4)))
    timeline = Timeline.of((3, 7), jnp.array([4, 2, 1]), jnp.asarray(MASK), jnp.asarray(RESET))

    def run(chunk):
        def loss(arrays, matrix, norm):
            q, k, q_turned, k_turned, v = arrays
            state = LinearState(matrix, norm, jnp.array([4, 2, 1]))
            out, last = accumulate(Features(phi(q), phi(k), q_turned, k_turned, v), timeline, state, chunk=chunk)
            out = jnp.where(timeline.valid[..., None, None], out, 0)
            return (out**2).sum() + (last.matrix**3).sum() + (last.norm**2).sum(), (out, last)

        grad = jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))
        return grad((q, k, q_turned, k_turned, v), matrix, norm)

    recurrent = run(1)
    for chunk in (3, 64):
        assert_close(run(chunk), recurrent, 1e-10)


def test_features_are_positive_and_exact(x64):
    x = np.array([-40.0, -1e-3, 0.0, 2.0])
    np.testing.assert_allclose(phi(jnp.asarray(x)), [np.exp(-40), np.exp(-1e-3), 1, 3], rtol=1e-14)
    np.testing.assert_allclose(jax.vmap(jax.grad(phi))(jnp.asarray(x)), [np.exp(-40), np.exp(-1e-3), 1, 1], rtol=1e-14)


def test_the_denominator_is_not_turned(x64):
    """Constant values come back as they are with position=none; with rope the turned numerator shrinks them."""
    for position in Position.NONE, Position.ROPE:
        layer = Runs(LinearAttention, LinearAttentionConfig(WIDTH, 2, position))
        u = inputs(WIDTH, mask=np.ones_like(MASK))
        u[..., 0] = 1
        values = layer.weights["W_v"]
        values[1:] = 0
        layer.set("W_v", values)
        y, _ = layer.whole(u)
        constant = values[0] @ layer.weights["W_out"]
        off = np.abs(y[:, -1] - constant).max()
        assert off < 1e-5 if position is Position.NONE else off > 0.1


def test_no_step_is_refused():
    layer = runs_of("rope").layer
    with pytest.raises(ValueError, match=r"with at least one time step, got shape \(2, 0, 12\)"):
        layer(jnp.zeros((2, 0, WIDTH)))
