"""Prefix products of matrices as a loop over time with its own gradient rule, plain or rescaled. Time-major.

A rescaled product is carried as e^l H with |H|_F = sqrt(n), so that no length overflows. The scales are constants for
differentiation: the gradient of any function of the direction H / |H|, or of l + log|H|, is exact all the same, because
the product does not depend on how it is split.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float


class Factors(NamedTuple):
    """What is multiplied: e^log_t M_t, on a product that is I before a reset. log None: plain, never rescaled."""

    m: Float[Array, "T *axes n n"]
    reset: Bool[Array, "T *axes"] | None
    log: Float[Array, "T *axes"] | None


class Product(NamedTuple):
    """e^log h; log None: h."""

    h: Float[Array, "*axes n n"]
    log: Float[Array, "*axes"] | None


def multiply(a: Float[Array, "*axes n n"], b: Float[Array, "*axes n n"]) -> Float[Array, "*axes n n"]:
    """a @ b, batched, in full precision on every platform."""
    if a.shape[-1] < 8:
        # XLA's CPU compiler runs a batched product of such matrices one by one: 40x slower at 64 matrices of order 4.
        return jnp.sum(a[..., :, :, None] * b[..., None, :, :], axis=-2)
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def correlate(a: Float[Array, "*axes n n"], b: Float[Array, "*axes n n"]) -> Float[Array, "*axes n n"]:
    """a^T @ b, batched, in full precision on every platform."""
    n = a.shape[-1]
    if 8 <= n <= 16:
        # As a sum of outer products it is one pass for XLA's CPU compiler, twice as fast as its product at order 8.
        outer = [a[..., j, :, None] * b[..., j, None, :] for j in range(n)]
        return sum(outer[1:], outer[0])
    return multiply(jnp.swapaxes(a, -1, -2), b)


def norm(h: Float[Array, "*axes n n"]) -> Float[Array, "*axes"]:
    """k = |h|_F / sqrt(n), a constant for differentiation; 1 for a zero matrix, which no scale can help."""
    h = lax.stop_gradient(h)
    k = jnp.sqrt(jnp.mean(h * h, axis=(-1, -2)) * h.shape[-1])
    return jnp.where(k > 0, k, 1)


def rescale(h: Float[Array, "*axes n n"], log: Float[Array, "*axes"] | None) -> Product:
    """e^log h as (h / k, log + log k); without a scale h itself."""
    if log is None:
        return Product(h, None)
    k = norm(h)
    return Product(h / k[..., None, None], log + jnp.log(k))


def choose(where: Bool[Array, "..."] | None, new: Product, old: Product) -> Product:
    """`new` where the flag is set, `old` elsewhere and without flags. Flags have as many axes as a scale."""
    if where is None:
        return old
    h = jnp.where(where[..., None, None], new.h, old.h)
    return Product(h, None if new.log is None or old.log is None else jnp.where(where, new.log, old.log))


def identity(like: Product) -> Product:
    """I with scale 0, to be broadcast."""
    dtype = like.h.dtype
    return Product(jnp.eye(like.h.shape[-1], dtype=dtype), None if like.log is None else jnp.zeros((), dtype))


def _loop(factors: Factors, start: Product) -> tuple[Product, Product]:
    """H_t = H_{t-1} M_t, or H_t = M_t where reset: all products (T, ..., n, n), and the last.

    The gradient keeps M, H_0, H (and, if rescaled, one scale k_t a matrix). With G_t the cotangent of H_t and W_t what
    flows back into it from later steps:
        B_t = (G_t + W_t) / k_t,   dM_t = H_{t-1}^T B_t,   W_{t-1} = B_t M_t^T,   dH_0 = W_0;
    where reset, H_{t-1} counts as I and W_{t-1} as 0. Scales carry none.
    """
    return _run(factors, start)[0]


def _run(factors: Factors, start: Product) -> tuple[tuple[Product, Product], Float[Array, "T *axes"] | None]:
    """The products and, if rescaled, all k_t."""

    def step(before, x):
        m, reset, log = x
        before = choose(reset, identity(before), before)
        h = multiply(before.h, m)
        after = rescale(h, None if log is None else before.log + log)
        return after, (after, None if log is None else norm(h))

    last, (products, k) = lax.scan(step, start, factors)
    return (products, last), k


matrix_recurrence = jax.custom_vjp(_loop)


def _forward(factors, start):
    (products, last), k = _run(factors, start)
    return (products, last), (factors, start.h, products.h, k)


def _backward(residuals, cotangents):
    (m, reset, _), h0, h, k = residuals
    g, g_last = (cotangent.h for cotangent in cotangents)
    eye = jnp.eye(m.shape[-1], dtype=m.dtype)

    def step(w, x):
        t, g_t, m_t, reset_t, k_t = x
        b = g_t + w
        if k_t is not None:
            b = b / k_t[..., None, None]
        # Reading H_{t-1} by index spares a shifted copy of all products.
        before = lax.dynamic_index_in_dim(h, jnp.maximum(t - 1, 0), keepdims=False)
        before = jnp.where(t == 0, h0, before)
        w = multiply(b, jnp.swapaxes(m_t, -1, -2))
        if reset_t is not None:
            before, w = (jnp.where(reset_t[..., None, None], x, y) for x, y in ((eye, before), (0.0, w)))
        return w, correlate(before, b)

    dh0, dm = lax.scan(step, g_last, (jnp.arange(len(m)), g, m, reset, k), reverse=True)
    return Factors(dm, None, None), Product(dh0, None)


matrix_recurrence.defvjp(_forward, _backward)
