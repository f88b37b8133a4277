"""matrix_scan against the float64 loop: values, gradients, resets, carried products, rescaling, structure."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from reference import matrix_gradients, matrix_loop

from scans import ScaledMatrix, ScanMethod, linear_scan, matrix_scan, scaled_matrix_scan

METHODS = [ScanMethod.SEQUENTIAL, ScanMethod.ASSOCIATIVE, ScanMethod.CHUNKED]
LENGTHS = [1, 2, 3, 5, 17, 255, 256, 257]
HEADS = 2

# Nearly all the time of these tests is compilation; without optimisation it takes a seventh.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def draw(steps, n=3, spread=0.4, seed=0):
    """m, h0, reset and cotangents of all products and the last. Row 0 starts from I without resets, row 1 has both."""
    rng = np.random.default_rng(seed)
    m = np.eye(n) + spread * rng.normal(size=(2, steps, HEADS, n, n)) / np.sqrt(n)
    h0, reset = rng.normal(size=(2, HEADS, n, n)), rng.random((2, steps)) < 0.2
    h0[0], reset[0] = np.eye(n), False
    return m, h0, reset, rng.normal(size=m.shape), rng.normal(size=h0.shape)


@functools.partial(jit, static_argnums=0)
def values_and_gradients(method, m, h0, reset, g, g_last):
    """(h, last), (dm, dh0)"""
    out, pull = jax.vjp(lambda m, h0: matrix_scan(m, h0, reset=reset, method=method), m, h0)
    return out, pull((g, g_last))


def assert_close(found, expected, tolerance=1e-12):
    for i, (x, y) in enumerate(zip(found, expected, strict=True)):
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * np.abs(y).max(), err_msg=str(i))


@pytest.mark.every(2)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("steps", "n"), [*((steps, 3) for steps in LENGTHS), (17, 9)])
def test_values_and_gradients_equal_the_loop(x64, method, steps, n):
    m, h0, reset, g, g_last = draw(steps, n)
    out, gradients = values_and_gradients(method, m, h0, reset, g, g_last)
    assert_close(out, matrix_loop(m, h0, reset))
    last = np.zeros(g.shape)
    last[:, -1] = g_last
    assert_close(gradients, matrix_gradients(m, h0, reset, g + last))


@pytest.mark.parametrize("method", METHODS)
def test_what_is_left_out_is_the_identity_and_no_reset(x64, method):
    m, h0, reset, _, _ = draw(5)
    for given in ({}, {"h0": h0}, {"reset": reset}):
        found = jit(lambda m, given: matrix_scan(m, **given, method=method))(m, given)
        assert_close(found, matrix_loop(m, **given))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("axes", [(), (2, 3)])
def test_any_number_of_head_axes(x64, method, axes):
    rng = np.random.default_rng(0)
    m, h0 = rng.normal(size=(2, 5, *axes, 3, 3)), rng.normal(size=(2, *axes, 3, 3))
    reset = rng.random((2, 5)) < 0.4
    heads = (int(np.prod(axes)), 3, 3)
    h, last = matrix_loop(m.reshape(2, 5, *heads), h0.reshape(2, *heads), reset)
    found = jit(lambda m, h0, reset: matrix_scan(m, h0, reset=reset, method=method))(m, h0, reset)
    assert_close(found, (h.reshape(m.shape), last.reshape(h0.shape)))


@pytest.mark.parametrize("method", METHODS)
def test_two_calls_with_the_carried_product_are_one(x64, method):
    m, h0, reset, _, _ = draw(12)
    scan = jit(lambda m, h0, reset: matrix_scan(m, h0, reset=reset, method=method))
    whole, last = scan(m, h0, reset)
    first, carried = scan(m[:, :6], h0, reset[:, :6])
    second, end = scan(m[:, 6:], carried, reset[:, 6:])
    assert_close((jnp.concatenate([first, second], 1), end), (whole, last))


@pytest.mark.parametrize("method", [ScanMethod.SEQUENTIAL, ScanMethod.CHUNKED])
def test_own_gradient_rule_equals_autodiff(x64, method):
    for steps in (1, 2, 9):
        arrays = draw(steps, seed=steps)
        own, autodiff = (values_and_gradients(way, *arrays)[1] for way in (method, ScanMethod.ASSOCIATIVE))
        assert_close(own, autodiff)


@pytest.mark.parametrize("method", METHODS)
def test_gradients_equal_finite_differences(x64, method):
    m, h0, reset, _, _ = draw(5)
    scan = jax.jit(lambda m, h0: matrix_scan(m, h0, reset=jnp.asarray(reset), method=method))
    check_grads(scan, (m, h0), order=1, modes=["rev"], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_forward_mode_is_refused(method):
    m = jnp.asarray(draw(4)[0])
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jvp(lambda m: matrix_scan(m, method=method)[1], (m,), (jnp.ones_like(m),))


@pytest.mark.parametrize("method", METHODS)
def test_float32_stays_within_rounding(method):
    arrays = draw(65, spread=0.1)
    narrow = [x.astype(np.float32) if x.dtype == float else x for x in arrays]
    (h, last), _ = values_and_gradients(method, *narrow)
    assert h.dtype == last.dtype == jnp.float32
    m, h0, reset, *_ = (x.astype(float) if x.dtype == np.float32 else x for x in narrow)
    assert_close((h, last), matrix_loop(m, h0, reset), 5e-6)


def lines(f, *shapes):
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return len(jax.jit(f).lower(*arrays).as_text().splitlines())


@pytest.mark.parametrize("scan", [matrix_scan, scaled_matrix_scan])
def test_program_size_does_not_depend_on_length(scan):
    def size(steps):
        loss = lambda m: jax.tree.leaves(scan(m, method=ScanMethod.SEQUENTIAL))[0].sum()  # noqa: E731
        return lines(jax.grad(loss), (2, steps, 1, 4, 4))

    assert size(64) == size(4096)


@pytest.mark.parametrize("method", METHODS)
def test_the_gradient_keeps_factors_and_products_only(method):
    """What the backward pass holds on to: M and H, and the start; autodiff of the parallel form needs 3.8 times M."""
    m = jnp.ones((2, 64, 1, 4, 4))
    pull = jax.eval_shape(lambda m: jax.vjp(lambda m: matrix_scan(m, method=method)[0], m)[1], m)
    assert sum(x.size for x in jax.tree.leaves(pull)) / m.size <= 2 + 1 / 32


def test_auto_is_sequential_on_cpu():
    m = jnp.float32(draw(33)[0])
    auto, own = (jit(functools.partial(matrix_scan, method=way))(m) for way in ("auto", "sequential"))
    np.testing.assert_array_equal(auto[0], own[0])


def scaled(h):
    """A product as e^l H with |H|_F = sqrt(n)."""
    log = np.log(np.linalg.norm(h, axis=(-1, -2)) / np.sqrt(h.shape[-1]))
    return ScaledMatrix(jnp.asarray(h / np.exp(log)[..., None, None]), jnp.asarray(log))


def unscaled(x):
    return np.exp(x.log_scale)[..., None, None] * np.asarray(x.matrix)


@pytest.mark.every(2)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("steps", [1, 2, 17])
def test_scaled_products_are_the_same_products(x64, method, steps):
    m, h0, reset, _, _ = draw(steps)
    scan = jit(functools.partial(scaled_matrix_scan, method=method))
    found = scan(jnp.asarray(m), scaled(h0), reset=jnp.asarray(reset))
    assert_close(map(unscaled, found), matrix_loop(m, h0, reset))
    for x in found:
        np.testing.assert_allclose(np.linalg.norm(x.matrix, axis=(-1, -2)), np.sqrt(3), rtol=1e-13)
    assert_close(map(unscaled, scan(jnp.asarray(m))), matrix_loop(m))


@pytest.mark.parametrize("method", METHODS)
def test_gradients_of_direction_and_log_norm_are_exact(x64, method):
    m, h0, reset, g, g_last = map(jnp.asarray, draw(17))
    h0, weight = scaled(h0), jnp.cos(jnp.arange(m[..., 0, 0].size)).reshape(m.shape[:-2])

    def loss(h, log, last, log_last):
        size, size_last = (jnp.linalg.norm(x, axis=(-1, -2)) for x in (h, last))
        ends = jnp.sum(g_last * last / size_last[..., None, None]) + jnp.sum(log_last + jnp.log(size_last))
        return jnp.sum(g * h / size[..., None, None]) + jnp.sum(weight * (log + jnp.log(size))) + ends

    def by_scaled(m, start):
        h, last = scaled_matrix_scan(m, h0._replace(matrix=start), reset=reset, method=method)
        return loss(*h, *last)

    def by_plain(m, start):
        h, last = matrix_scan(m, jnp.exp(h0.log_scale)[..., None, None] * start, reset=reset)
        return loss(h, 0, last, 0)

    found, expected = (jit(jax.value_and_grad(f, (0, 1)))(m, h0.matrix) for f in (by_scaled, by_plain))
    assert_close([found[0], *found[1]], [expected[0], *expected[1]])


@pytest.mark.parametrize("method", METHODS)
def test_scaled_products_do_not_overflow(method):
    """Products of e^577 in float32; a zero product stays zero and finite."""
    m = jnp.broadcast_to(jnp.asarray([[2.0, 1.0], [0.0, 2.0]]), (1, 800, 1, 2, 2))
    m = jnp.concatenate([m, jnp.zeros_like(m)], 2).at[:, 0, 1].set(jnp.eye(2))
    h, last = jit(functools.partial(scaled_matrix_scan, method=method))(m)
    # M^T = 2^T [[1, T/2], [0, 1]], of norm 2^T sqrt(2 + T^2 / 4)
    np.testing.assert_allclose(last.log_scale[0, 0], 800 * np.log(2) + 0.5 * np.log(1 + 800**2 / 8), rtol=1e-5)
    np.testing.assert_allclose(last.matrix[0, 0], np.array([[0, 1], [0, 0]]) * np.sqrt(2), atol=0.01)
    assert all(np.isfinite(x).all() for x in h)
    assert (h.matrix[0, 1:, 1] == 0).all()


ONES = np.ones((2, 5, 3, 4, 4), np.float32)


@pytest.mark.parametrize(
    ("m", "h0", "method", "message"),
    [
        (ONES[:, :0], None, "auto", r"matrix_scan: m has shape \(2, 0, 3, 4, 4\): at least one time step"),
        (ONES[..., :3], None, "auto", r"square matrices \(B, T, ..., n, n\), got shape \(2, 5, 3, 4, 3\)"),
        (ONES[0, 0], None, "auto", r"square matrices \(B, T, ..., n, n\), got shape \(3, 4, 4\)"),
        (ONES, ONES[:, 0, :2], "auto", r"h0 must have shape \(2, 3, 4, 4\) .* got \(2, 2, 4, 4\)"),
        (ONES.astype(np.float16), None, "auto", "m must be float32 or float64, got float16"),
        (ONES, None, "quick", "unknown ScanMethod 'quick': expected one of auto, sequential, associative, chunked"),
    ],
)
def test_refuses(m, h0, method, message):
    with pytest.raises(ValueError, match=message):
        matrix_scan(jnp.asarray(m), None if h0 is None else jnp.asarray(h0), method=method)


def test_the_elementwise_scan_offers_no_chunks():
    offered = "expected one of auto, sequential, associative$"
    with pytest.raises(ValueError, match=f"linear_scan: method=chunked is not offered here: {offered}"):
        linear_scan(jnp.ones(3), jnp.ones((1, 2, 3)), method="chunked")


def test_marks_and_scales_that_do_not_fit_are_refused():
    m = jnp.float32(draw(5)[0])
    with pytest.raises(ValueError, match=r"matrix_scan: reset must have shape \(2, 5\), got \(5, 2\)"):
        matrix_scan(m, reset=jnp.zeros((5, 2), bool))
    start = ScaledMatrix(jnp.zeros((m.shape[0], *m.shape[2:])), jnp.zeros(3))
    with pytest.raises(ValueError, match="scaled_matrix_scan: the scale of h0 must have shape"):
        scaled_matrix_scan(m, start)
