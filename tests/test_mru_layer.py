"""The MRU as a layer: its equations, streaming, masks, resets, norms, errors, initial values, diagnostics."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from reference import matrix_loop

from models.build import split_model
from mru import MRU, MRUConfig, MRUState, OutputNorm, StateScan, Variant
from mru.parametrize import input_states, normalised

WIDTH, HEADS, N = 12, 2, 3
SIZES = {"width": WIDTH, "state_size": HEADS * N**2, "heads": HEADS}
BATCH, STEPS = 3, 7
SCANS = [("plain", "none"), ("plain", "row"), ("rescaled", "row"), ("rescaled", "frobenius")]

# Nearly all the time of these tests is compilation; without optimisation it takes a seventh.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def make(spread=0.3, seed=0, **options):
    """Static part and parameters of a layer whose elements have deviation `spread`."""
    graphdef, shapes = split_model(nnx.eval_shape(lambda: MRU(MRUConfig(**SIZES, **options), rngs=nnx.Rngs(0))))
    rng = np.random.default_rng(seed)
    params = {name: rng.normal(size=leaf.shape) for name, leaf in sorted(shapes.items())}
    params["W_in"] = params["W_in"] * spread / math.sqrt(WIDTH)
    return graphdef, {name: jnp.asarray(value, float) for name, value in params.items()}


def draw(seed=1):
    """Inputs, a mask of ragged lengths with a gap, and flags of resets (one of them on a masked step)."""
    rng = np.random.default_rng(seed)
    mask = np.arange(STEPS) < np.array([[7], [5], [1]])
    mask[0, 2] = False
    reset = np.zeros((BATCH, STEPS), bool)
    reset[0, [2, 4]] = reset[1, 0] = True
    return jnp.asarray(rng.normal(size=(BATCH, STEPS, WIDTH))), jnp.asarray(mask), jnp.asarray(reset)


def total(state: MRUState) -> np.ndarray:
    """The product that a state stands for."""
    s = np.asarray(state.s)
    return s if state.log_scale is None else np.exp(state.log_scale)[..., None, None] * s


def assert_close(found, expected, tolerance=1e-12):
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * max(1, np.abs(expected).max()))


@pytest.mark.parametrize(("state_scan", "output_norm"), SCANS)
def test_equals_the_equations(x64, state_scan, output_norm):
    graphdef, params = make(variant="qr_cayley", state_scan=state_scan, output_norm=output_norm)
    u, mask, reset = draw()
    y, last, _ = jit(lambda p: nnx.merge(graphdef, p)(u, mask=mask, reset=reset))(params)
    e = (np.asarray(u) @ params["W_in"]).reshape(BATCH, STEPS, HEADS, N * N)
    m = np.array(input_states(jnp.asarray(e), N, Variant.QR_CAYLEY))
    m[~np.asarray(mask)] = np.eye(N)
    s, s_last = matrix_loop(m, None, np.asarray(reset))
    read = np.asarray(normalised(jnp.asarray(s), OutputNorm(output_norm)))
    flat = np.concatenate(
        [(read[:, :, h] @ params["W_down"][h]).reshape(BATCH, STEPS, -1) for h in range(HEADS)], axis=-1
    )
    assert_close(y, (flat @ params["W_out"]) * np.asarray(mask)[..., None])
    assert_close(total(last), s_last)


@pytest.mark.parametrize(("state_scan", "output_norm"), SCANS)
def test_whole_split_and_stepwise_use_agree(x64, state_scan, output_norm):
    graphdef, params = make(variant="ldu", state_scan=state_scan, output_norm=output_norm)
    u, _, reset = draw()

    @jit
    def run(params):
        layer = nnx.merge(graphdef, params)
        whole, last, _ = layer(u, reset=reset)
        first, state, _ = layer(u[:, :4], reset=reset[:, :4])
        second, state, _ = layer(u[:, 4:], state, reset=reset[:, 4:])
        stepped, walked = [], layer.initial_state(BATCH)
        for t in range(STEPS):
            y_t, walked = layer.step(u[:, t], walked, reset=reset[:, t])
            stepped.append(y_t)
        return (whole, last), (jnp.concatenate([first, second], 1), state), (jnp.stack(stepped, 1), walked)

    (whole, last), *others = run(params)
    for y, state in others:
        assert_close(y, whole)
        assert_close(total(state), total(last))


@pytest.mark.parametrize("variant", Variant)
def test_padding_is_not_seen(x64, variant):
    """Masked steps hold the state and give 0; whatever stands there, even NaN, reaches no output and no gradient."""
    graphdef, params = make(variant=variant)
    u, mask, _ = draw()

    def loss(params, u):
        y, last, _ = nnx.merge(graphdef, params)(u, mask=mask)
        return (y * jnp.cos(jnp.arange(y.size)).reshape(y.shape)).sum(), (y, last.s)

    run = jit(jax.value_and_grad(loss, (0, 1), has_aux=True))
    (_, (y, s)), (by_params, by_u) = run(params, u)
    (_, (y_other, s_other)), (by_params_other, by_u_other) = run(params, jnp.where(mask[..., None], u, jnp.nan))
    assert (np.asarray(y)[~np.asarray(mask)] == 0).all()
    assert (np.asarray(by_u)[~np.asarray(mask)] == 0).all()
    one_step = jit(lambda p, u: nnx.merge(graphdef, p)(u)[1].s)(params, u[2:, :1])
    assert_close(s[2:], one_step)
    pairs = [(y, y_other), (s, s_other), (by_u, by_u_other), *((by_params[k], by_params_other[k]) for k in by_params)]
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)


def test_what_reaches_an_output(x64):
    """Earlier inputs of the same sequence do, later ones and other sequences do not."""
    graphdef, params = make(variant="identity")
    u = draw()[0][:2, :4]
    slope = jit(jax.jacrev(lambda u: nnx.merge(graphdef, params)(u)[0].sum(-1)))(u)
    reaches = np.abs(slope).max(-1) > 1e-6
    expected = np.eye(2, dtype=bool)[:, None, :, None] & np.tri(4, dtype=bool)[None, :, None, :]
    np.testing.assert_array_equal(reaches, expected)


@pytest.mark.parametrize("output_norm", ["row", "frobenius"])
def test_rescaling_changes_no_value_and_no_gradient(x64, output_norm):
    (plain, params), (rescaled, _) = (
        make(variant="ldu", output_norm=output_norm, state_scan=scan) for scan in StateScan
    )
    u, mask, reset = draw()

    def run(graphdef):
        return jit(jax.grad(lambda p, u: (nnx.merge(graphdef, p)(u, mask=mask, reset=reset)[0] ** 2).sum(), (0, 1)))

    for found, expected in zip(*(jax.tree.leaves(run(g)(params, u)) for g in (rescaled, plain)), strict=True):
        assert_close(found, expected)


@pytest.mark.parametrize("variant", Variant)
def test_gradients_are_finite_for_short_and_long_inputs(variant):
    """Float32, elements of deviation 0.02."""
    graphdef, params = make(0.02, variant=variant)
    gradient = jit(jax.grad(lambda p, u: (nnx.merge(graphdef, p)(u)[0] ** 2).mean(), (0, 1)))
    for steps in (1, 4096):
        u = jnp.asarray(np.random.default_rng(0).normal(size=(1, steps, WIDTH)), jnp.float32)
        found = gradient(params, u)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(found))
        assert np.abs(found[1]).max() > 0


@pytest.mark.parametrize("variant", Variant)
def test_start(variant):
    """M = I: one constant vector is added to every token; W_in, though 0, has a gradient."""
    config = MRUConfig(64, 256, 4, variant=variant, sublayers=4)
    graphdef, params = split_model(MRU(config, rngs=nnx.Rngs(3)))
    z = 28 if "orthogonal" in variant else 64
    shapes = {name: leaf.shape for name, leaf in params.items()}
    assert shapes == {"W_in": (64, 4 * z), "W_down": (4, 8, 2), "W_out": (64, 64)}
    assert all(leaf.dtype == jnp.float32 for leaf in params.values())
    assert (params["W_in"] == 0).all()
    for name, std in (("W_down", 0.02 * math.sqrt(8)), ("W_out", 0.02 / math.sqrt(4))):
        size = params[name].size
        assert abs(np.std(params[name]) / std - 1) < 5 / math.sqrt(2 * size)
        assert abs(np.mean(params[name])) < 5 * std / math.sqrt(size)
    u = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 64)), jnp.float32)

    def loss(params):
        y = nnx.merge(graphdef, params)(u)[0]
        return (y * jnp.sin(jnp.arange(y.size)).reshape(y.shape)).sum(), y

    (_, y), gradient = jit(jax.value_and_grad(loss, has_aux=True))(params)
    np.testing.assert_allclose(y, np.broadcast_to(y[:1, :1], y.shape), rtol=1e-4)
    assert np.abs(y).max() > 0
    assert (np.abs(gradient["W_in"]).max(0) > 0).mean() > 0.8


@pytest.mark.parametrize(("width", "heads", "order", "count"), [(384, 6, 8, 295_296), (768, 3, 16, 1_180_416)])
def test_published_parameter_counts(width, heads, order, count):
    """2 D^2 + D with H n^2 = D, half of attention's."""
    config = MRUConfig(width, heads * order**2, heads)
    _, params = split_model(nnx.eval_shape(lambda: MRU(config, rngs=nnx.Rngs(0))))
    assert sum(math.prod(leaf.shape) for leaf in params.values()) == count == 2 * width**2 + width


def test_low_precision_inputs_do_not_touch_the_products():
    graphdef, params = make(variant="ldu")
    u = jnp.asarray(draw()[0], jnp.float32)
    run = jit(lambda p, u: nnx.merge(graphdef, p)(u)[:2])
    single = {name: jnp.asarray(value, jnp.float32) for name, value in params.items()}
    y, state = run(single, u)
    y_half, state_half = run({name: value.astype(jnp.bfloat16) for name, value in single.items()}, u.astype("bfloat16"))
    assert (y.dtype, state.s.dtype, y_half.dtype, state_half.s.dtype) == ("float32", "float32", "bfloat16", "float32")
    np.testing.assert_allclose(y_half.astype("float32"), y, rtol=0, atol=0.03 * np.abs(y).max())


def test_a_state_of_another_shape_is_refused():
    plain, rescaled = (nnx.merge(*make(output_norm="row", state_scan=scan)) for scan in StateScan)
    u = jnp.zeros((BATCH, 2, WIDTH))
    cases = [
        (plain, plain.initial_state(BATCH + 1), r"\(3, 2, 3, 3\).*got.*\(4, 2, 3, 3\)"),
        (plain, MRUState(jnp.zeros((BATCH, HEADS, 4, 4)), None), r"\(3, 2, 3, 3\).*got.*\(3, 2, 4, 4\)"),
        (plain, rescaled.initial_state(BATCH), r"got.*'log_scale': \(3, 2\)"),
        (rescaled, plain.initial_state(BATCH), r"'log_scale': \(3, 2\).*got.*\{'s'"),
    ]
    for layer, state, message in cases:
        with pytest.raises(ValueError, match=f"mru: the carried state must have shapes .*{message}"):
            layer(u, state)


def test_an_input_of_another_width_is_refused():
    layer = nnx.merge(*make())
    with pytest.raises(ValueError, match=r"mru: u must be \(B, T, 12\) with at least one time step"):
        layer(jnp.zeros((BATCH, 2, 5)))
    with pytest.raises(ValueError, match=r"mru: u must be \(B, T, 12\) with at least one time step"):
        layer.step(jnp.zeros((BATCH, 5)), layer.initial_state(BATCH))


@pytest.mark.parametrize("variant", ["ldu", "orthogonal_cayley"])
@pytest.mark.parametrize("state_scan", StateScan)
def test_diagnostics(x64, variant, state_scan):
    """Energies over the valid steps only, and how near the products are to their limits."""
    graphdef, params = make(variant=variant, state_scan=state_scan, output_norm="row")
    u, valid, _ = draw()
    found = jit(lambda p: nnx.merge(graphdef, p)(u, mask=valid, probe=(1, 3, 6, 7))[2])(params)
    mask = np.asarray(valid)
    e = np.where(mask[..., None], np.asarray(u) @ params["W_in"], 0).reshape(BATCH, STEPS, HEADS, -1)
    s, last = matrix_loop(np.asarray(input_states(jnp.asarray(e), N, Variant(variant))))
    square = (s**2).sum((-1, -2))
    assert_close(found["energy"], square[mask].mean(0))
    # The first sequence has six valid steps, the second five, the third one.
    first = square.sum(-1)
    assert_close(found["energy_t"][0], first[:, 0].mean())
    assert_close(found["energy_t"][1], (first[0, 3] + first[1, 2]) / 2)
    assert_close(found["energy_t"][2], first[0, 6])
    assert np.isnan(found["energy_t"][3])
    np.testing.assert_array_equal(found["gain"], [N, N])
    np.testing.assert_array_equal(found["log_decay"], [-np.inf, -np.inf])
    assert "gain_align" not in found
    if variant == "orthogonal_cayley":
        assert_close(found["energy"], np.full(HEADS, N))
    log = found["log"]
    assert log.keys() == {"max_element", "max_log_norm", "log10_cond"}
    assert_close(log["max_element"], np.abs(e).max())
    assert_close(log["max_log_norm"], 0.5 * np.log(square[mask].max() / N))
    assert_close(log["log10_cond"], np.median(np.log10([np.linalg.cond(x) for x in last[0]])), 1e-9)


def test_diagnostics_only_when_asked_for():
    layer = nnx.merge(*make())
    assert layer(jnp.zeros((1, 2, WIDTH)))[2] == {}
