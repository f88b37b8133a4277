"""linear_scan against the float64 loop: values, gradients, resets, direction, structure."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from reference import linear_loop

from scans import ScanMethod, linear_scan

METHODS = [ScanMethod.SEQUENTIAL, ScanMethod.ASSOCIATIVE]
SHAPES = {"fixed": lambda b, t, n: (n,), "time": lambda b, t, n: (t, n), "full": lambda b, t, n: (b, t, n),
          "row": lambda b, t, n: (b, t, 1)}  # fmt: skip
LENGTHS = [1, 2, 3, 16, 17, 257]


def arrays(x):
    return None if x is None else np.asarray(x)


def draw(shape, steps, dtype, seed=0, batch=2, width=3):
    """Row 0 starts from zero and has no reset, row 1 has both: one program covers either case."""
    rng = np.random.default_rng(seed)

    def normal(size):
        x = rng.normal(size=size)
        return x + 1j * rng.normal(size=size) if dtype is complex else x

    a = normal(SHAPES[shape](batch, steps, width))
    a = 0.95 * a / np.maximum(1, np.abs(a))
    b, h0, reset = normal((batch, steps, width)), normal((batch, width)), rng.random((batch, steps)) < 0.3
    h0[0], reset[0] = 0, False
    return [jnp.asarray(x) for x in (a, b, h0, reset)]


def check(method, a, b, h0, reset, *, reverse):
    run = jax.jit(lambda *x: linear_scan(*x[:3], reset=x[3], reverse=reverse, method=method))
    results = run(a, b, h0, reset)
    for got, expected in zip(results, linear_loop(*map(arrays, (a, b, h0, reset)), reverse=reverse), strict=True):
        bound = 1e-12 * np.abs(expected).max()
        np.testing.assert_allclose(got, expected, rtol=0, atol=bound, err_msg=f"{b.shape} reverse={reverse}")


@pytest.mark.every(5)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_loop(x64, method, dtype, shape):
    for steps, reverse in itertools.product(LENGTHS, [False, True]):
        check(method, *draw(shape, steps, dtype), reverse=reverse)
    a, b, h0, reset = draw(shape, 17, dtype, seed=1)
    for optional in ((None, None), (h0, None), (None, reset)):
        check(method, a, b, *optional, reverse=True)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [float, complex])
def test_float32_stays_within_rounding(x64, method, dtype):
    narrow = jnp.complex64 if dtype is complex else jnp.float32
    for shape, reverse in (("fixed", False), ("full", True)):
        a, b, h0, reset = draw(shape, 257, dtype)
        a, b, h0 = (x.astype(narrow) for x in (a, b, h0))
        assert linear_scan(a, b, h0, method=ScanMethod.SEQUENTIAL)[0].dtype == narrow
        wide = [x.astype(dtype) for x in (a, b, h0)]
        expected, _ = linear_loop(*map(arrays, (*wide, reset)), reverse=reverse)
        run = jax.jit(lambda *x, r=reverse: linear_scan(*x[:3], reset=x[3], reverse=r, method=method)[0])
        np.testing.assert_allclose(run(a, b, h0, reset), expected, rtol=0, atol=2e-5 * np.abs(expected).max())


def gradients(method, a, b, h0, reset, reverse):
    rng = np.random.default_rng(1)
    g = rng.normal(size=b.shape) + 1j * rng.normal(size=b.shape)
    g_last = rng.normal(size=h0.shape) + 1j * rng.normal(size=h0.shape)

    def loss(a, b, h0):
        h, last = linear_scan(a, b, h0, reset=reset, reverse=reverse, method=method)
        return jnp.real(jnp.sum(g * h) + jnp.sum(g_last * last))

    return jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(a, b, h0)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("shape", SHAPES)
def test_own_gradient_rule_equals_autodiff(x64, dtype, shape):
    for steps, reverse in itertools.product([1, 2, 9], [False, True]):
        a, b, h0, reset = draw(shape, steps, dtype)
        own = gradients(ScanMethod.SEQUENTIAL, a, b, h0, reset, reverse)
        autodiff = gradients(ScanMethod.ASSOCIATIVE, a, b, h0, reset, reverse)
        for name, x, y in zip(("a", "b", "h0"), own, autodiff, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-11, err_msg=f"{name} T={steps} reverse={reverse}")


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_equal_finite_differences(x64, shape):
    a, b, h0, reset = draw(shape, 5, float)
    scan = jax.jit(lambda *x: linear_scan(*map(jnp.asarray, x), reset=reset, method=ScanMethod.SEQUENTIAL))
    check_grads(scan, (a, b, h0), order=1, modes=["rev"], atol=1e-6, rtol=1e-6)


def test_last_state_alone_carries_gradient(x64):
    a, b, h0, _ = draw("fixed", 9, float)
    grad = jax.grad(lambda b: linear_scan(a, b, h0, method=ScanMethod.SEQUENTIAL)[1].sum())(b)
    expected = np.stack([a ** (8 - t) for t in range(9)])
    np.testing.assert_allclose(grad, np.broadcast_to(expected, b.shape), rtol=1e-12)


def test_nothing_as_long_as_time_is_made_from_a_fixed_transition():
    """A (B, T, N) array appears only where b or h are: the program must not expand `a` over time."""
    batch, steps, width = 2, 512, 3
    b = jnp.ones((batch, steps, width))
    run = lambda a: linear_scan(a, b, method=ScanMethod.ASSOCIATIVE)[0]  # noqa: E731
    jaxpr = jax.make_jaxpr(run)(jnp.ones(width))
    expanded = [
        e for e in jaxpr.jaxpr.eqns if e.primitive.name == "broadcast_in_dim" and e.outvars[0].aval.size >= b.size
    ]
    assert not expanded


def test_program_size_does_not_depend_on_length():
    def size(steps):
        run = lambda a, b: linear_scan(a, b, method=ScanMethod.SEQUENTIAL)[0].sum()  # noqa: E731
        lowered = jax.jit(jax.grad(run, argnums=(0, 1))).lower(jnp.ones(3), jnp.ones((2, steps, 3)))
        return len(lowered.as_text().splitlines())

    assert size(64) == size(4096)


@pytest.mark.parametrize("modulus", [0.99, 0.9999])
def test_rounding_grows_no_faster_than_memory(modulus):
    """Float32 states at T = 16384 stay within 5e-8 / (1 - |a|) of float64."""
    rng = np.random.default_rng(0)
    phase = rng.uniform(0, 2 * np.pi, 16).astype(np.float32).astype(float)
    modulus = float(np.float32(modulus))
    b = rng.normal(size=(1, 16384, 16)) + 1j * rng.normal(size=(1, 16384, 16))
    expected, _ = linear_loop(modulus * np.exp(1j * phase), b)
    for method in METHODS:
        a = jnp.float32(modulus) * jnp.exp(1j * jnp.float32(phase))
        h = jax.jit(lambda a, b, method=method: linear_scan(a, b, method=method)[0])(a, jnp.complex64(b))
        error = np.abs(h - expected).max() / np.abs(expected).max()
        assert error < 5e-8 / (1 - modulus)


def test_auto_is_sequential_on_cpu():
    a, b, _, _ = draw("fixed", 33, float)
    auto = jax.jit(lambda: linear_scan(jnp.float32(a), jnp.float32(b)))()
    own = jax.jit(lambda: linear_scan(jnp.float32(a), jnp.float32(b), method=ScanMethod.SEQUENTIAL))()
    np.testing.assert_array_equal(auto[0], own[0])


@pytest.mark.parametrize(
    ("a", "b", "method", "message"),
    [
        (np.ones(3), np.ones((2, 0, 3)), "auto", "at least one time step"),
        (np.ones(4), np.ones((2, 5, 3)), "auto", r"\(4,\) does not broadcast to b of shape \(2, 5, 3\)"),
        (
            np.ones(3),
            np.ones((2, 5, 3)),
            "quick",
            "unknown ScanMethod 'quick': expected one of auto, sequential, assoc",
        ),
    ],
)
def test_refuses(a, b, method, message):
    with pytest.raises(ValueError, match=message):
        linear_scan(jnp.asarray(a), jnp.asarray(b), method=method)
