"""What the model asks of a layer, asked of every registered one in every direction; parameters are arbitrary."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layer_runs import Run, assert_close, by_steps, normals

from configs import layers as configs
from models.registry import LAYERS, layer_spec
from scans import Direction

WIDTH, STEPS, BATCH = 2, 8, 3
OPTIONS = {
    "rotrnn": {"state_size": 4, "heads": 2},
    "lru": {"state_size": 3},
    # Arbitrary parameters of S5 are stable only if clipped.
    "s5": {"state_size": 4, "blocks": 2, "clip_eigs": True},
    "mru": {"state_size": 4, "heads": 1, "variant": "orthogonal_cayley"},
}
assert OPTIONS.keys() == LAYERS.keys(), "every registered layer needs sizes here"
# The others read forward only.
DIRECTED = {name: options for name, options in OPTIONS.items() if "direction" in configs.OPTIONS[name]}
# A stationary start has more to carry: whether there has been an input.
STREAMED = [*OPTIONS.items(), ("rotrnn", OPTIONS["rotrnn"] | {"start": "stationary", "normalise": "init"})]
FORWARD = [pytest.param(name, options, id=f"{name}{i}") for i, (name, options) in enumerate(STREAMED)]
ALL = [
    pytest.param(name, options | {"direction": direction}, id=f"{name}-{direction}")
    for name, options in DIRECTED.items()
    for direction in Direction
] + [pytest.param(name, options, id=name) for name, options in OPTIONS.items() if name not in DIRECTED]


@functools.cache
def _make(name: str, options: tuple) -> Run:
    return Run.drawn(name, WIDTH, **dict(options))


def direction_of(options) -> str:
    return options.get("direction", Direction.FORWARD)


def make(name, options) -> Run:
    return _make(name, tuple(options.items()))


def inputs(steps=STEPS):
    """Rows: whole, padded on the right, and with a gap; two of them packed."""
    u = normals(BATCH, steps, WIDTH)
    mask = np.ones((BATCH, steps), bool)
    mask[1, steps - 3 :] = mask[2, steps // 2] = False
    reset = np.zeros((BATCH, steps), bool)
    reset[0, steps // 2] = reset[1, 2] = True
    return jnp.asarray(u), jnp.asarray(mask), jnp.asarray(reset)


@functools.cache
def runner(name: str, options: tuple):
    """Jitted: (u, mask, reset) -> y."""
    run = _make(name, options)
    return jax.jit(lambda u, mask, reset: run.module()(u, mask=mask, reset=reset)[0])


def output(name, options, u, mask, reset):
    return np.asarray(runner(name, tuple(options.items()))(u, mask, reset))


@pytest.mark.parametrize(("name", "options"), ALL)
def test_causality_by_gradients(x64, name, options):
    """dy_t/du_s vanishes exactly where the direction says so, and only there."""
    run, steps = make(name, options), 5
    u = jnp.asarray(normals(1, steps, WIDTH))
    jacobian = jax.jit(jax.jacrev(lambda u: run.module()(u[None])[0][0]))(u[0])
    seen = np.abs(np.asarray(jacobian)).max((1, 3))
    below, above = np.tril(np.ones((steps, steps), bool), -1), np.triu(np.ones((steps, steps), bool), 1)
    reads_past, reads_future = direction_of(options) != "backward", direction_of(options) != "forward"
    assert (seen.diagonal() > 1e-6).all()
    for part, reads in ((below, reads_past), (above, reads_future)):
        assert (seen[part] > 1e-9).all() if reads else not seen[part].any()


@pytest.mark.parametrize(("name", "options"), ALL)
def test_shape_masked_outputs_and_padding(x64, name, options):
    """Neither the content of masked steps nor padding further on changes a valid output; masked ones are 0."""
    u, mask, reset = inputs()
    y = output(name, options, u, mask, reset)
    assert y.shape == u.shape
    assert y.dtype == np.float64
    assert not y[~np.asarray(mask)].any()
    assert (np.abs(y[np.asarray(mask)]) > 0).all()
    assert_close(output(name, options, jnp.where(mask[..., None], u, 1e3), mask, reset), y, 1e-13)
    shorter, kept = jnp.asarray(mask & (np.arange(STEPS) < 4)), np.asarray(mask)[:, :4, None]
    run = make(name, options)
    cut = jax.jit(lambda *a: run.module()(a[0], mask=a[1], reset=a[2])[0])(u[:, :4], shorter[:, :4], reset[:, :4])
    assert_close(np.where(kept, output(name, options, u, shorter, reset)[:, :4], 0), cut, 1e-13)


@pytest.mark.parametrize(("name", "options"), ALL)
def test_rows_are_independent(x64, name, options):
    u, mask, reset = inputs()
    y = output(name, options, u, mask, reset)
    order = np.array([2, 0, 1])
    np.testing.assert_array_equal(output(name, options, u[order], mask[order], reset[order]), y[order])
    other = output(name, options, u.at[0].add(1.0), mask, reset)
    np.testing.assert_array_equal(other[1:], y[1:])
    assert (np.abs(other[0] - y[0]) > 1e-9).all()


@pytest.mark.parametrize(("name", "options"), ALL)
def test_packed_sequences_do_not_see_each_other(x64, name, options):
    """Two sequences in one row, the second flagged by `reset`, equal two rows."""
    u, _, _ = inputs()
    whole = jnp.ones((BATCH, STEPS), bool)
    reset = jnp.zeros((BATCH, STEPS), bool).at[:, 3].set(True)
    packed = output(name, options, u, whole, reset)
    first = output(name, options, u, whole & (jnp.arange(STEPS) < 3), jnp.zeros_like(whole))
    second = output(name, options, u, whole & (jnp.arange(STEPS) >= 3), jnp.zeros_like(whole))
    assert_close(packed, first + second)


@pytest.mark.parametrize(("name", "options"), FORWARD)
def test_whole_pieces_and_steps_agree(x64, name, options):
    """Also with a carried state, masked steps and packed sequences."""
    run, cut = make(name, options), 3
    u, mask, reset = inputs()

    @jax.jit
    def pieces(u, mask, reset):
        layer = run.module()
        y, state, diagnostics = layer(u, mask=mask, reset=reset)
        a, carried, _ = layer(u[:, :cut], mask=mask[:, :cut], reset=reset[:, :cut])
        b, end, _ = layer(u[:, cut:], carried, mask=mask[:, cut:], reset=reset[:, cut:])
        assert diagnostics == {}
        return (y, state), (jnp.concatenate([a, b], 1), end)

    whole, split = pieces(u, mask, reset)
    assert_close(jax.tree.leaves(split), jax.tree.leaves(whole))

    stepped = jax.jit(lambda u, reset: by_steps(run, u, reset)[0])(u, reset)
    assert_close(stepped, output(name, options, u, jnp.ones_like(mask), reset))


@pytest.mark.parametrize(("name", "options"), FORWARD[:2])
def test_jit_changes_nothing(x64, name, options):
    u, mask, reset = inputs()
    y = make(name, options).module()(u, mask=mask, reset=reset)[0]
    assert_close(y, output(name, options, u, mask, reset))


@pytest.mark.parametrize(("name", "options"), FORWARD)
def test_all_masked_piece_keeps_the_state(x64, name, options):
    """Before the first input and after it: also the special first step of a stationary start is not used up."""
    run = make(name, options)
    u, _, _ = inputs()
    none = jnp.zeros((BATCH, STEPS), bool)
    call = jax.jit(lambda u, state, mask: run.module()(u, state, mask=mask)[:2])
    fresh = jax.jit(lambda: run.module().initial_state(BATCH))()
    y, after_none = call(u, fresh, none)
    assert not y.any()
    assert_close(jax.tree.leaves(after_none), jax.tree.leaves(fresh))
    _, begun = call(u, after_none, ~none)
    assert_close(jax.tree.leaves(begun), jax.tree.leaves(call(u, fresh, ~none)[1]))
    assert_close(jax.tree.leaves(call(u, begun, none)[1]), jax.tree.leaves(begun))


@pytest.mark.parametrize(("name", "options"), OPTIONS.items())
def test_gradients_are_finite_for_short_and_long_inputs(name, options):
    """Float32, both directions; T = 1 and T = 4096."""
    run = Run.drawn(name, WIDTH, **options, **({"direction": "bidirectional"} if name in DIRECTED else {}))
    assert all(x.dtype == jnp.float32 for x in run.params.values())
    value = lambda params, u: (run.on(params).module()(u)[0] ** 2).mean()  # noqa: E731
    grad = jax.jit(jax.grad(value, (0, 1)))
    for steps in (1, 4096):
        grads = grad(run.params, jnp.float32(normals(1, steps, WIDTH)))
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(grads))
        assert np.abs(grads[1]).max() > 0


@pytest.mark.parametrize("direction", [Direction.BACKWARD, Direction.BIDIRECTIONAL])
@pytest.mark.parametrize(("name", "options"), DIRECTED.items())
def test_streaming_is_refused_where_the_future_is_read(name, options, direction):
    forward, layer = (Run.drawn(name, WIDTH, direction=d, **options).module() for d in ("forward", direction))
    shapes = jax.eval_shape(lambda: forward.initial_state(BATCH))
    state = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    u = jnp.ones((BATCH, 4, WIDTH))
    for what, call in {
        "initial_state": lambda: layer.initial_state(BATCH),
        "step": lambda: layer.step(u[:, 0], state),
        "a carried state": lambda: layer(u, state),
    }.items():
        with pytest.raises(ValueError, match=f"{what} needs direction=forward: this layer is {direction}"):
            call()


@pytest.mark.parametrize(("name", "options"), ALL)
def test_initial_parameters(name, options):
    """Float32, drawn from the key alone, each with a role."""
    one, same, other = (Run.of(name, WIDTH, seed, **options) for seed in (0, 0, 1))
    assert all(x.dtype == jnp.float32 for x in one.params.values())
    assert one.params.keys() <= LAYERS[name].roles.keys()
    for key, value in one.params.items():
        np.testing.assert_array_equal(value, same.params[key])
        # The eigenvalues of S5 start at HiPPO and W_in of MRU at 0, whatever the key.
        fixed = key in ("Lambda_re", "Lambda_im") or not np.any(value)
        assert (value != other.params[key]).any() != fixed, key
    config = LAYERS[name].make_config(WIDTH, options)
    if direction_of(options) == "forward":
        carried = jax.tree.leaves(jax.eval_shape(lambda: one.module().initial_state(1)))
        assert carried[0].size == config.real_state_size


@pytest.mark.parametrize(("name", "options"), ALL)
def test_probe(x64, name, options):
    """Reduced values per head and direction; the energy of all valid steps is that of all their places."""
    run, times = make(name, options), tuple(range(1, STEPS + 1))
    u, mask, _ = inputs()
    y, _, found = jax.jit(lambda u, mask: run.module()(u, mask=mask, probe=times))(u, mask)
    assert_close(y, output(name, options, u, mask, jnp.zeros_like(mask)))
    heads = run.module().heads * (2 if direction_of(options) == "bidirectional" else 1)
    assert all(value.shape == () for value in found.pop("log", {}).values())
    split = ("gain_align",) if name in DIRECTED else ()
    per_head = dict.fromkeys(("energy", "gain", "log_decay", *split), (heads,))
    assert {key: value.shape for key, value in found.items()} == per_head | {"energy_t": (STEPS,)}
    assert (np.asarray(found["energy"]) > 0).all()
    assert (np.asarray(found["log_decay"]) < 0).all()
    reached = (np.asarray(mask).sum(1)[:, None] >= np.array(times)).sum(0)
    np.testing.assert_allclose((found["energy_t"] * reached).sum() / reached.sum(), found["energy"].sum(), rtol=1e-12)


def test_unknown_layers_are_refused():
    with pytest.raises(ValueError, match=r"unknown layer 'rnn': expected one of rotrnn, lru"):
        layer_spec("rnn")
