"""What the tests of both attention layers share: a layer with drawn weights, compiled once, and the ways to run it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from attention_loop import MASK, RESET, inputs
from flax import nnx


class Runs:
    """A layer whose weights are far from their initial values. weights: the same by name."""

    def __init__(self, module, config):
        self.layer = module(config, rngs=nnx.Rngs(0))
        self.config = config
        draw = np.random.default_rng(0)
        self.weights = {}
        for name in ("W_q", "W_k", "W_v", "W_out", "W_turn"):
            if hasattr(self.layer, name):
                self.set(name, draw.normal(size=getattr(self.layer, name).shape) * 0.4)
        self.call = jax.jit(self.layer.__call__)
        self.step = jax.jit(self.layer.step, donate_argnums=1)  # as a decoder runs it: the cache is updated in place

    def set(self, name, value):
        """Replaces a weight; before the first run, which keeps them all."""
        self.weights[name] = value
        setattr(self.layer, name, nnx.Param(jnp.asarray(value)))

    def whole(self, u, mask=None, reset=None, state=None):
        """y and state of one call."""
        mask = np.ones(u.shape[:2], bool) if mask is None else mask
        reset = np.zeros(u.shape[:2], bool) if reset is None else reset
        y, state, diagnostics = self.call(jnp.asarray(u), state, mask=jnp.asarray(mask), reset=jnp.asarray(reset))
        assert diagnostics == {}
        return y, state

    def in_parts(self, u, ends, mask, reset):
        """The same in calls that end at `ends`."""
        state, found = self.layer.initial_state(u.shape[0]), []
        for low, high in zip((0, *ends), (*ends, u.shape[1]), strict=True):
            y, state = self.whole(u[:, low:high], mask[:, low:high], reset[:, low:high], state)
            found.append(y)
        return jnp.concatenate(found, 1), state

    def stepwise(self, u, reset):
        """The same, one token at a time."""
        state, found = self.layer.initial_state(u.shape[0]), []
        for t in range(u.shape[1]):
            y, state = self.step(jnp.asarray(u[:, t]), state, reset=jnp.asarray(reset[:, t]))
            found.append(y)
        return jnp.stack(found, 1), state


@functools.cache
def _runs(module, config, precision):
    return Runs(module, config)


def runs(module, config):
    """`Runs`, the same ones for the same config."""
    return _runs(module, config, jnp.result_type(float))


def assert_close(found, expected, tolerance=1e-12):
    """Leaf by leaf."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for (path, leaf), there in zip(jax.tree.leaves_with_path(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(leaf, there, atol=tolerance, rtol=0, err_msg=jax.tree_util.keystr(path))


def check_full_split_and_stepwise(layer: Runs):
    """y and state, over masks and resets."""
    u, plain = inputs(layer.config.width), inputs(layer.config.width, mask=np.ones_like(MASK))
    full = layer.whole(u, MASK, RESET)
    assert full[1].length.tolist() == [7, 2, 2]
    assert_close(layer.in_parts(u, (3, 4), MASK, RESET), full)
    assert_close(layer.stepwise(plain, RESET), layer.whole(plain, reset=RESET))


def check_padding(layer: Runs):
    """Five tokens give the same outputs and the same state wherever they stand among seven steps."""
    tokens, tight = np.random.default_rng(4).normal(size=(3, 5, layer.config.width)), slice(0, 5)
    found = []
    for places in (tight, [1, 2, 4, 5, 6], [0, 1, 2, 4, 6]):
        u, mask, reset = np.full((3, 7, layer.config.width), 7.0), np.zeros((3, 7), bool), np.zeros((3, 7), bool)
        u[:, places], mask[:, places] = tokens, True
        reset[1, np.flatnonzero(mask[1])[2]] = True
        y, state = layer.whole(u, mask, reset)
        assert (y[~mask] == 0).all()
        found.append((y[:, np.asarray(mask[0])], state))
    assert_close(found[1], found[0])
    assert_close(found[2], found[0])


def check_looks_back_and_never_ahead(layer: Runs):
    """A change of u_s changes y_t for all t >= s and no bit of y_t for t < s."""
    u = inputs(layer.config.width, mask=np.ones_like(MASK))
    before = layer.whole(u)[0]
    for s in range(7):
        moved = u.copy()
        moved[:, s] += 0.5
        change = np.abs(layer.whole(moved)[0] - before).max(-1)
        assert (change[:, :s] == 0).all()
        assert change[:, s:].min() > 1e-6
