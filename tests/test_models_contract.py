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
from training import checkpoint

WIDTH, STEPS, BATCH = 2, 8, 3
OPTIONS = {
    "rotrnn": {"state_size": 4, "heads": 2},
    "lru": {"state_size": 3},
    # Arbitrary parameters of S5 are stable only if clipped.
    "s5": {"state_size": 4, "blocks": 2, "clip_eigs": True},
    "mru": {"state_size": 4, "heads": 1},
    "dense": {"state_size": 3},
    "attention": {"heads": 1},
    "linear_attention": {"heads": 1},
    "mlp": {},
}
assert OPTIONS.keys() == LAYERS.keys(), "every registered layer needs sizes here"
# The others read forward only.
DIRECTED = {name: options for name, options in OPTIONS.items() if "direction" in configs.OPTIONS[name]}
# Those that carry more: whether there has been an input; a scale; the turn reached so far.
STREAMED = [
    *OPTIONS.items(),
    ("rotrnn", OPTIONS["rotrnn"] | {"start": "stationary", "normalise": "init"}),
    ("mru", OPTIONS["mru"] | {"state_scan": "rescaled", "output_norm": "row"}),
    ("dense", OPTIONS["dense"] | {"weights": "real"}),
    ("attention", OPTIONS["attention"] | {"position": "mru", "mru_order": 2}),
]
FORWARD = [pytest.param(name, options, id=f"{name}{i}") for i, (name, options) in enumerate(STREAMED)]
ALL = [
    pytest.param(name, options | {"direction": direction}, id=f"{name}-{direction}")
    for name, options in DIRECTED.items()
    for direction in Direction
] + [pytest.param(name, options, id=name) for name, options in OPTIONS.items() if name not in DIRECTED]
WITHOUT_ENERGY = {"attention", "linear_attention", "mlp"}
MULTIPLIED = {"mru": "W_in", "attention": "W_turn", "dense": "W"}
"""What makes the matrices that are multiplied over time: only if they are near I, or small, their products stay
bounded."""


def moved(name: str, options: dict, elements: float = 0.1) -> Run:
    """The layer with its parameters off their initial values; elements of multiplied matrices have this deviation."""
    run = Run.drawn(name, WIDTH, **options)
    small = {key: run.array(key) for layer, key in MULTIPLIED.items() if layer == name and key in run.params}
    return run.with_params(**{key: value * elements / value.std() / WIDTH**0.5 for key, value in small.items()})


@functools.cache
def _make(name: str, options: tuple) -> Run:
    return moved(name, dict(options))


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
    """dy_t/du_s vanishes exactly where the direction says so, and only there: a layer that mixes does mix here."""
    run, steps = make(name, options), 5
    u = jnp.asarray(normals(1, steps, WIDTH))
    jacobian = jax.jit(jax.jacrev(lambda u: run.module()(u[None])[0][0]))(u[0])
    seen = np.abs(np.asarray(jacobian)).max((1, 3))
    below, above = np.tril(np.ones((steps, steps), bool), -1), np.triu(np.ones((steps, steps), bool), 1)
    reads_past, reads_future = direction_of(options) != "backward", direction_of(options) != "forward"
    reads_past &= name != "mlp"
    assert (seen.diagonal() > 1e-6).all()
    for part, reads in ((below, reads_past), (above, reads_future)):
        assert (seen[part] > 1e-9).all() if reads else not seen[part].any()


CHUNKED = [
    pytest.param(name, options | {"direction": direction, "chunk": 3}, id=f"{name}-{direction}-chunked")
    for name, options in DIRECTED.items()
    for direction in Direction
]


@pytest.mark.parametrize(("name", "options"), ALL + CHUNKED)
def test_lengths_are_a_mask(x64, name, options):
    """Of padding at the end; also where steps are computed together, which flags would not allow."""
    u, lengths = jnp.asarray(normals(BATCH, STEPS, WIDTH)), jnp.asarray([STEPS, 5, 1])
    layer = make(name, options).module()
    run = jax.jit(lambda mask: layer(u, mask=mask))
    y, state, _ = run(jnp.arange(STEPS) < lengths[:, None])
    found, found_state, _ = run(lengths)
    for x, expected in zip(jax.tree.leaves((found, found_state)), jax.tree.leaves((y, state)), strict=True):
        assert_close(np.asarray(x), np.asarray(expected), 1e-12)


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


@pytest.mark.parametrize(("name", "options"), OPTIONS.items())
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
    directed = {"direction": "bidirectional"} if name in DIRECTED else {}
    run = moved(name, options | directed, elements=0.02)
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
        # The eigenvalues of S5 start at HiPPO, W_in of MRU and W_turn of attention at 0, whatever the key.
        fixed = key in ("Lambda_re", "Lambda_im") or not np.any(value)
        assert (value != other.params[key]).any() != fixed, key
    config = LAYERS[name].make_config(WIDTH, options)
    if direction_of(options) == "forward":
        carried = jax.tree.leaves(jax.eval_shape(lambda: one.module().initial_state(1)))
        assert sum(x.size for x in carried if x.dtype == jnp.float32) == config.real_state_size


@pytest.mark.parametrize("name", sorted(WITHOUT_ENERGY))
def test_a_layer_without_a_state_energy_says_nothing(name):
    u, mask, _ = inputs()
    assert moved(name, OPTIONS[name]).module()(u, mask=mask, probe=(1,))[2] == {}


@pytest.mark.parametrize(("name", "options"), [case for case in ALL if case.values[0] not in WITHOUT_ENERGY])
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
    theory = {"dense": ("white_t", "coloured_t")}.get(name, ("coloured_t",) if name in DIRECTED else ())
    over_time = dict.fromkeys(("energy_t", *theory), (STEPS,))
    assert {key: value.shape for key, value in found.items()} == per_head | over_time
    assert (np.asarray(found["energy"]) > 0).all()
    assert (np.asarray(found["log_decay"]) < 0).all()
    reached = (np.asarray(mask).sum(1)[:, None] >= np.array(times)).sum(0)
    np.testing.assert_allclose((found["energy_t"] * reached).sum() / reached.sum(), found["energy"].sum(), rtol=1e-12)


BFLOAT16_ERROR = 0.03
"""Of bfloat16 activations, relative to the largest output: factors of 8 bits, two projections in a row."""


@pytest.mark.parametrize(("name", "options"), STREAMED)
def test_bfloat16_projections(name, options):
    """Activations in bfloat16, states in float32, outputs within the stated error, which is not zero."""
    run = moved(name, options)
    u, mask, reset = inputs(64)
    call = jax.jit(lambda u: run.module()(u, mask=mask, reset=reset)[:2])
    (low, state), (full, _) = call(jnp.asarray(u, jnp.bfloat16)), call(jnp.asarray(u, jnp.float32))
    assert (low.dtype, full.dtype) == (jnp.bfloat16, jnp.float32)
    assert jnp.bfloat16 not in {x.dtype for x in jax.tree.leaves(state)}
    error = np.abs(np.asarray(low, np.float32) - full).max() / np.abs(full).max()
    assert 0 < error < BFLOAT16_ERROR


@pytest.mark.parametrize(("name", "options"), OPTIONS.items())
def test_a_step_of_training_lowers_the_loss(name, options):
    run = moved(name, options)
    u, mask, _ = inputs()
    target = jnp.asarray(normals(BATCH, STEPS, WIDTH, seed=1))
    loss = lambda params: ((run.on(params).module()(u, mask=mask)[0] - target) ** 2).mean()  # noqa: E731
    slope = jax.jit(jax.value_and_grad(loss))
    value, gradient = slope(run.params)
    assert slope(jax.tree.map(lambda p, g: p - 1e-3 * g, run.params, gradient))[0] < value


@pytest.mark.parametrize(("name", "options"), OPTIONS.items())
def test_a_checkpoint_gives_the_same_layer_back(name, options, tmp_path):
    run = moved(name, options)
    checkpoint.save(tmp_path, 1, run.params, {})
    restored = checkpoint.restore(tmp_path, jax.eval_shape(lambda: run.params))
    assert restored is not None
    u = jnp.float32(normals(BATCH, STEPS, WIDTH))
    outputs = jax.jit(lambda params: run.on(params).module()(u)[0])
    assert outputs(run.params).tobytes() == outputs(restored.tree).tobytes()


def test_unknown_layers_are_refused():
    with pytest.raises(ValueError, match=r"unknown layer 'rnn': expected one of rotrnn, lru"):
        layer_spec("rnn")
