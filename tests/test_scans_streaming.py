"""What a carried state remembers beside the modes: whether the sequence has had an input since its last reset."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rotrnn import RotRNN, RotRNNConfig, Start

MASK = np.array([[1, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 1]], bool)
RESET = np.array([[0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0]], bool)


@pytest.mark.parametrize("split", [1, 2, 3])
def test_pieces_equal_the_whole_from_a_stationary_start_with_gaps_and_resets(x64, split):
    """Row 0: the reset at a masked step forgets the only input, so the next one is a first input again."""
    layer = RotRNN(RotRNNConfig(width=2, state_size=4, heads=2, start=Start.STATIONARY), rngs=nnx.Rngs(0))
    u = jnp.asarray(np.random.default_rng(0).normal(size=(4, 4, 2)))
    mask, reset = jnp.asarray(MASK), jnp.asarray(RESET)
    whole, end, _ = layer(u, mask=mask, reset=reset)
    first, carried, _ = layer(u[:, :split], mask=mask[:, :split], reset=reset[:, :split])
    second, last, _ = layer(u[:, split:], carried, mask=mask[:, split:], reset=reset[:, split:])
    np.testing.assert_allclose(jnp.concatenate([first, second], 1), whole, rtol=0, atol=1e-6)
    np.testing.assert_allclose(last.x, end.x, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(last.started, end.started)


def test_started_counts_inputs_since_the_last_reset():
    layer = RotRNN(RotRNNConfig(width=2, state_size=4, heads=2, start=Start.STATIONARY), rngs=nnx.Rngs(0))
    u = jnp.ones((4, 2, 2))
    _, state, _ = jax.jit(lambda: layer(u, mask=jnp.asarray(MASK[:, :2]), reset=jnp.asarray(RESET[:, :2])))()
    np.testing.assert_array_equal(state.started, [False, False, True, True])


def test_a_probe_of_pieces_is_refused():
    layer = RotRNN(RotRNNConfig(width=2, state_size=4, heads=2), rngs=nnx.Rngs(0))
    u = jnp.ones((4, 4, 2))
    for state, reset in ((layer.initial_state(4), None), (None, jnp.asarray(RESET))):
        with pytest.raises(ValueError, match="probe measures whole sequences from their start"):
            layer(u, state, reset=reset, probe=(1,))
