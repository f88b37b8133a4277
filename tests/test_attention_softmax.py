"""Softmax attention: against a loop, over masks and resets, and through its cache."""

import dataclasses

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
from attention_loop import MASK, RESET, inputs, softmax_loop
from flax import nnx
from tiny import TASK, fresh, tiny_config, tiny_split

from attention import Attention, AttentionConfig, MRUStart, Position, softmax
from training.probe import NAMES, energy_refs, probe_rows
from training.step import make_probe_step

WIDTH = 12
CASES = {
    "rope": {},
    "none": {"position": "none"},
    "xpos_512": {"position": "xpos_512"},
    "mru cayley": {"position": "mru", "mru_order": 3},
    "mru expm from rope": {
        "position": "mru", "mru_order": 6, "mru_variant": "orthogonal_expm", "mru_start": "rope",
    },
}  # fmt: skip
each_position = pytest.mark.parametrize("options", CASES.values(), ids=CASES)


def runs_of(options, **sizes):
    return runs(Attention, AttentionConfig(**{"width": WIDTH, "heads": 2, "max_length": 9, **options, **sizes}))


@each_position
def test_equals_the_loop(x64, options):
    layer, u = runs_of(options), inputs(WIDTH)
    expected = softmax_loop(layer.config, layer.weights, u, MASK, RESET)
    np.testing.assert_allclose(layer.whole(u, MASK, RESET)[0], expected, atol=1e-12)


@each_position
def test_full_split_and_stepwise_are_equal(x64, options):
    check_full_split_and_stepwise(runs_of(options))


@each_position
def test_padding_changes_nothing(x64, options):
    check_padding(runs_of(options))


@each_position
def test_looks_back_and_never_ahead(x64, options):
    check_looks_back_and_never_ahead(runs_of(options))


@each_position
def test_the_order_of_earlier_tokens(x64, options):
    """Without positions the last output sees a set."""
    u = inputs(WIDTH, mask=np.ones_like(MASK))
    last, swapped = (runs_of(options).whole(u[:, order])[0][:, -1] for order in ([*range(7)], [1, 0, *range(2, 7)]))
    change = np.abs(last - swapped).max(-1)
    assert change.max() < 1e-14 if options.get("position") == "none" else change.min() > 1e-4


@pytest.mark.parametrize("order", [2, 6])
def test_fixed_commuting_rotations_are_rope(x64, order):
    """With W_turn = 0 every M is the turn of RoPE from one position to the next."""
    config = AttentionConfig(WIDTH, 2, 9, Position.MRU, mru_order=order, mru_start=MRUStart.ROPE)
    turning, rope = Runs(Attention, config), runs_of({})
    turning.set("W_turn", np.zeros_like(turning.weights["W_turn"]))
    u = inputs(WIDTH)
    assert_close(turning.whole(u, MASK, RESET)[0], rope.whole(u, MASK, RESET)[0])
    assert_close(turning.in_parts(u, (3, 4), MASK, RESET)[0], rope.whole(u, MASK, RESET)[0])


@pytest.mark.parametrize("case", ["mru cayley", "mru expm from rope"])
def test_the_turn_before_a_token_does_not_matter(x64, case):
    """Only matrices after a key stand between it and a query: an orthogonal prefix cancels."""
    layer, u = runs_of(CASES[case]), inputs(WIDTH, mask=np.ones_like(MASK))[:, :3]
    state = layer.layer.initial_state(3)
    assert state.turn is not None
    prefix = np.linalg.qr(np.random.default_rng(5).normal(size=state.turn.shape))[0]
    y, after = layer.whole(u, state=state)
    y_turned, after_turned = layer.whole(u, state=state._replace(turn=jnp.asarray(prefix)))
    assert_close(y_turned, y)
    assert np.abs(after_turned.keys - after.keys).max() > 0.1


def test_queries_in_chunks(x64, monkeypatch):
    runs = runs_of({})
    u, mask, reset = (jnp.asarray(x) for x in (inputs(WIDTH), MASK, RESET))
    state = runs.step(u[:, 0], runs.layer.initial_state(3), reset=reset[:, 0])[1]

    def value_and_gradient(queries):
        monkeypatch.setattr(softmax, "QUERIES", queries)

        def run(u, values):
            return (runs.layer(u, state._replace(values=values), mask=mask, reset=reset)[0] ** 2).sum()

        return jax.jit(jax.value_and_grad(run, (0, 1)))(u, state.values)

    assert_close(value_and_gradient(3), value_and_gradient(256), 1e-10)


def test_nothing_flows_from_masked_steps():
    """Not even a nan, not even where a whole row is masked."""
    layer = Runs(Attention, AttentionConfig(WIDTH, 2, 9)).layer
    u = jnp.asarray(inputs(WIDTH), jnp.float32).at[~MASK].set(jnp.nan).at[0].set(jnp.nan)
    mask = jnp.asarray(MASK).at[0].set(False)
    graphdef, params = nnx.split(layer)

    def loss(params):
        y, _, _ = nnx.merge(graphdef, params)(u, mask=mask)
        return (y**2).sum(), y

    (_, y), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    assert (y[~mask] == 0).all()
    assert (y[mask] != 0).all()
    assert all(jnp.isfinite(leaf).all() and (leaf != 0).any() for leaf in jax.tree.leaves(gradient))


def test_more_than_the_cache_holds_is_refused():
    layer = runs_of({}, max_length=5).layer
    u = jnp.asarray(inputs(WIDTH), jnp.float32)
    with pytest.raises(ValueError, match="T=7 steps, but 1 to max_length=5 fit in the cache"):
        layer(u)
    with pytest.raises(ValueError, match=r"got shape \(3, 0, 12\)"):
        layer(u[:, :0])
    state = layer.initial_state(3)._replace(length=jnp.full(3, 4))
    with pytest.raises(ValueError, match="a sequence of 6 tokens does not fit in max_length=5"):
        layer(u[:, :2], state)
    layer(u[:, :2], state, mask=jnp.asarray([[True, False]] * 3))
    layer(u[:, :2], state, reset=jnp.asarray([[False, True]] * 3))


def test_an_overflow_that_only_shows_at_run_time_is_nan_until_a_reset():
    layer, u = runs_of({}, max_length=5), inputs(WIDTH).astype(np.float32)
    reset = np.zeros((3, 7), bool)
    reset[1, 6] = True
    y, _ = layer.stepwise(u, reset)
    bad = np.isnan(y).all(-1)
    assert bad.tolist() == [[False] * 5 + [True] * 2, [False] * 5 + [True, False], [False] * 5 + [True] * 2]
    assert np.isfinite(y[~bad]).all()
    np.testing.assert_allclose(y[1, 6], layer.stepwise(u[:, 6:], reset[:, 6:])[0][1, 0], rtol=1e-5)


def test_a_cache_of_another_size_is_refused():
    layer = runs_of({}).layer
    state = runs_of({}, max_length=8).layer.initial_state(3)
    with pytest.raises(ValueError, match=r"must have shapes .*\(3, 9, 2, 6\).*, got .*\(3, 8, 2, 6\)"):
        layer(jnp.zeros((3, 2, WIDTH)), state)


def test_initial_weights():
    config = AttentionConfig(width=128, heads=4, position=Position.MRU, mru_order=8, sublayers=4)
    params = nnx.to_pure_dict(nnx.state(Attention(config, rngs=nnx.Rngs(0))))
    assert {name: leaf.shape for name, leaf in params.items()} == {
        **dict.fromkeys(("W_q", "W_k", "W_v", "W_out"), (128, 128)),
        "W_turn": (128, 4 * 4 * 28),
    }
    for name, std in (("W_q", 0.02), ("W_k", 0.02), ("W_v", 0.02), ("W_out", 0.01)):
        assert np.std(params[name]) == pytest.approx(std, rel=0.03)
        assert params[name].dtype == jnp.float32
    assert (params["W_turn"] == 0).all()
    plain = Attention(dataclasses.replace(config, position=Position.ROPE), rngs=nnx.Rngs(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(nnx.state(plain))) == 4 * 128**2


def test_energies_of_a_layer_without_a_state_are_null():
    options = {"heads": 4, "max_length": TASK.length}
    config = tiny_config("lru", {"model.layer": "attention", "model.options": options, "seeds": (0, 1)})
    split = tiny_split()
    program, state = fresh(config)
    batch = split.gather(np.arange(8))
    diagnostics = jax.device_get(make_probe_step(program, (1, 4))(state.params, batch))
    rows = probe_rows(diagnostics, energy_refs(diagnostics), batch["lengths"], (1, 4))
    assert rows == [{name: [None, None] for name in NAMES}] * 2
    assert all(found["finite"].all() for found in diagnostics)
