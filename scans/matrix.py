"""Prefix products of matrices, H_t = H_{t-1} M_t: plain, or rescaled so that they never overflow."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, assert_never

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Shaped

from scans.choice import ScanMethod, resolve
from scans.matrix_sequential import Factors, Product, choose, matrix_recurrence, multiply, norm, rescale

Form = Callable[[Factors, Product], tuple[Product, Product]]
"""All products and the last, of factors and a start."""


class ScaledMatrix(NamedTuple):
    """e^log_scale * matrix, with |matrix|_F = sqrt(n) (a zero matrix stays zero)."""

    matrix: Float[Array, "*axes n n"]
    log_scale: Float[Array, "*axes"]


def matrix_scan(
    m: Shaped[Array, "..."],
    h0: Shaped[Array, "..."] | None = None,
    *,
    reset: Bool[Array, "B T"] | None = None,
    method: ScanMethod | str = ScanMethod.AUTO,
    axis: str | None = None,
) -> tuple[Float[Array, "B T *heads n n"], Float[Array, "B *heads n n"]]:
    """H_t = H_{t-1} M_t for t = 1..T, the new factor on the right: H_t = H_0 M_1 M_2 ... M_t.

    Args:
        m: factors (B, T, ..., n, n), float32 or float64. The axes between T and the matrices are independent heads.
        h0: H_0 (B, ..., n, n); None is the identity.
        reset: where set, H_t = M_t.
        method: SEQUENTIAL is a loop over time. ASSOCIATIVE takes about log2 T parallel steps. CHUNKED is SEQUENTIAL
            inside all chunks of about sqrt(T) steps at once, and then over the chunks. Each has a hand-written
            reverse-mode gradient that keeps only m and h, and refuses forward-mode differentiation.
        axis: of a mesh that splits time into equal parts, inside a `jax.shard_map` over it: m, reset and all H are
            those of the part on this device, h0 and the last H those of the whole.
    Returns:
        all H (B, T, ..., n, n), and the last one (B, ..., n, n).
    Raises:
        ValueError: for T = 0, shapes that do not fit, or another dtype (float16 holds no more than e^11).

    Source: Blelloch, "Prefix sums and their applications" (1990), for the parallel form.
    """
    products, last = _scan(
        "matrix_scan", m, None if h0 is None else Product(h0, None), reset, method, axis, scaled=False
    )
    return products.h, last.h


def scaled_matrix_scan(
    m: Shaped[Array, "..."],
    h0: ScaledMatrix | None = None,
    *,
    reset: Bool[Array, "B T"] | None = None,
    method: ScanMethod | str = ScanMethod.AUTO,
    axis: str | None = None,
) -> tuple[ScaledMatrix, ScaledMatrix]:
    """The products of `matrix_scan` as e^l H with |H|_F = sqrt(n): they overflow at no length.

    Every product is divided by k = |H|_F / sqrt(n), and log k is added to l. The scales are constants for
    differentiation: no gradient flows through l, and that of any function of the direction H / |H|, or of l + log|H|,
    is exact.

    Args, errors: see `matrix_scan`; h0 is scaled.
    Returns:
        all products, and the last one.
    """
    start = None if h0 is None else Product(*h0)
    products, last = _scan("scaled_matrix_scan", m, start, reset, method, axis, scaled=True)
    assert products.log is not None
    assert last.log is not None
    return ScaledMatrix(products.h, products.log), ScaledMatrix(last.h, last.log)


def _scan(
    where: str,
    m: Array,
    start: Product | None,
    reset: Array | None,
    method: ScanMethod | str,
    axis: str | None,
    *,
    scaled: bool,
) -> tuple[Product, Product]:
    """All products and the last; time-major inside."""
    chosen = resolve(method, where, chunked=True)
    _check(where, m, start, reset)
    m = jnp.swapaxes(m, 0, 1)
    shape, n = m.shape[1:-2], m.shape[-1]
    if reset is not None:
        reset = jnp.swapaxes(reset, 0, 1).reshape(*m.shape[:2], *(1,) * (len(shape) - 1))
    if start is None:
        eye = jnp.broadcast_to(jnp.eye(n, dtype=m.dtype), (*shape, n, n))
        start = Product(eye, jnp.zeros(shape, m.dtype) if scaled else None)
    else:
        start = Product(start.h.astype(m.dtype), None if start.log is None else start.log.astype(m.dtype))
    factors = Factors(m, reset, jnp.zeros(m.shape[:-2], m.dtype) if scaled else None)
    match chosen:
        case ScanMethod.SEQUENTIAL:
            form = matrix_recurrence
        case ScanMethod.ASSOCIATIVE:
            form = partial(_by_rule, form=_associative)
        case ScanMethod.CHUNKED:
            form = partial(_by_rule, form=_chunked)
        case ScanMethod.AUTO:
            raise AssertionError("resolve never returns AUTO")
        case unreachable:
            assert_never(unreachable)
    products, last = form(factors, start) if axis is None else _in_parts(factors, start, form, axis)
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), products), last


def _check(where: str, m: Array, start: Product | None, reset: Array | None) -> None:
    if m.ndim < 4 or m.shape[-1] != m.shape[-2] or 0 in m.shape[-2:]:
        raise ValueError(f"{where}: m must be square matrices (B, T, ..., n, n), got shape {m.shape}")
    if m.shape[1] == 0:
        raise ValueError(f"{where}: m has shape {m.shape}: at least one time step is needed")
    if m.dtype not in (jnp.float32, jnp.float64):
        raise ValueError(f"{where}: m must be float32 or float64, got {m.dtype}")
    if reset is not None and reset.shape != m.shape[:2]:
        raise ValueError(f"{where}: reset must have shape {m.shape[:2]}, got {reset.shape}")
    expected = (m.shape[0], *m.shape[2:])
    if start is not None and start.h.shape != expected:
        raise ValueError(f"{where}: h0 must have shape {expected} for m of shape {m.shape}, got {start.h.shape}")
    if start is not None and start.log is not None and start.log.shape != expected[:-2]:
        raise ValueError(f"{where}: the scale of h0 must have shape {expected[:-2]}, got {start.log.shape}")


def _parallel(factors: Factors, start: Product, form: Form) -> tuple[Product, Product]:
    """All products and the last by a parallel form, whose own autodiff would keep twice as much as its gradient needs.

    B_t = (G_t + B_{t+1} M_{t+1}^T) / k_t, the rule of `matrix_sequential`, is a recurrence in B that runs from the end:
    pairs (A, C) with B_t = B_{t+1} A_t + C_t combine to (A' A, C' A + C), the later one on the left.
    """
    return form(factors, start)


def _parallel_forward(factors: Factors, start: Product, form: Form):
    products, last = form(factors, start)
    return (products, last), (factors, start.h, products.h)


def _parallel_backward(form: Form, residuals, cotangents):
    (m, reset, log), h0, h = residuals
    g, g_last = (cotangent.h for cotangent in cotangents)
    before = jnp.concatenate([h0[None], h[:-1]])
    carries = jnp.swapaxes(m, -1, -2)
    if reset is not None:
        before = jnp.where(reset[..., None, None], jnp.eye(m.shape[-1], dtype=m.dtype), before)
        carries = jnp.where(reset[..., None, None], 0, carries)
    a = jnp.concatenate([carries[1:], jnp.zeros_like(m[:1])])
    c = g.at[-1].add(g_last)
    if log is not None:
        k = norm(multiply(before, m))[..., None, None]
        a, c = a / k, c / k

    def combine(later, earlier):
        return multiply(later[0], earlier[0]), multiply(later[1], earlier[0]) + earlier[1]

    _, b = lax.associative_scan(combine, (a, c), reverse=True)
    dh0 = multiply(b[0], carries[0])
    return Factors(multiply(jnp.swapaxes(before, -1, -2), b), None, None), Product(dh0, None)


_by_rule = jax.custom_vjp(_parallel, nondiff_argnums=(2,))
_by_rule.defvjp(_parallel_forward, _parallel_backward)


def _associative(factors: Factors, start: Product) -> tuple[Product, Product]:
    """Parallel prefix products. One that has met a reset hides what stands to its left."""
    m, reset, log = factors
    # Inside the first factor, the start costs no product per step.
    first = Product(multiply(start.h, m[0]), None if log is None or start.log is None else start.log + log[0])
    first = choose(None if reset is None else reset[0], Product(m[0], None if log is None else log[0]), first)
    elements = jax.tree.map(lambda x, x0: x.at[0].set(x0), Product(m, log), first)

    def combine(left, right):
        (x, _), (y, reset_y) = left, right
        both = rescale(multiply(x.h, y.h), None if x.log is None else x.log + y.log)
        if reset_y is None:
            return both, None
        return choose(reset_y, y, both), left[1] | reset_y

    products, _ = lax.associative_scan(combine, (rescale(*elements), reset))
    return products, jax.tree.map(lambda x: x[-1], products)


def chunk_length(steps: int) -> int:
    """The smallest power of two whose square is at least `steps`."""
    return 1 << ((steps - 1).bit_length() + 1) // 2


def _chunked(factors: Factors, start: Product) -> tuple[Product, Product]:
    """Products within chunks, then of whole chunks, then what stands before each chunk times what is within."""
    steps = len(factors.m)
    length = chunk_length(steps)
    chunks = -(-steps // length)
    eye = jnp.eye(factors.m.shape[-1], dtype=factors.m.dtype)

    def cut(x):
        """(T, ...) -> (length, chunks, ...); the last chunk is filled up with I, without reset or scale."""
        fill = eye if x.ndim == factors.m.ndim else jnp.zeros((), x.dtype)
        x = jnp.concatenate([x, jnp.broadcast_to(fill, (chunks * length - steps, *x.shape[1:]))])
        return jnp.swapaxes(x.reshape(chunks, length, *x.shape[1:]), 0, 1)

    def joined(x):
        """(length, chunks, ...) -> (T, ...)"""
        return jnp.swapaxes(x, 0, 1).reshape(chunks * length, *x.shape[2:])[:steps]

    m, reset, log = jax.tree.map(cut, factors)
    within, whole = matrix_recurrence(Factors(m, reset, log), _identities(m[0], log))
    met = _met(reset)
    ends, last = matrix_recurrence(Factors(whole.h, None if met is None else met[-1], whole.log), start)
    before = jax.tree.map(lambda x0, x: jnp.concatenate([x0[None], x[:-1]]), start, ends)
    return jax.tree.map(joined, _continued(before, within, met)), last


def _in_parts(factors: Factors, start: Product, form: Form, axis: str) -> tuple[Product, Product]:
    """The same with time split over the devices of a mesh axis: their whole products are gathered, all else is local.

    The gradient is that of these steps, of which only `form` has its own rule.
    """
    within, whole = form(factors, _identities(factors.m[0], factors.log))
    met = _met(factors.reset)
    parts = lax.all_gather(Factors(whole.h, None if met is None else met[-1], whole.log), axis)
    ends, last = matrix_recurrence(parts, start)
    here = lax.axis_index(axis)
    before = jax.tree.map(lambda x0, x: jnp.concatenate([x0[None], x[:-1]])[here], start, ends)
    return _continued(before, within, met), last


def _identities(m: Float[Array, "*axes n n"], log: Array | None) -> Product:
    """I, as many as m has matrices; with scale 0 if there are scales."""
    eye = jnp.broadcast_to(jnp.eye(m.shape[-1], dtype=m.dtype), m.shape)
    return Product(eye, None if log is None else jnp.zeros(m.shape[:-2], m.dtype))


def _met(reset: Bool[Array, "T *axes"] | None) -> Bool[Array, "T *axes"] | None:
    """Where a reset has been met."""
    return None if reset is None else lax.cummax(reset.astype(jnp.int8)).astype(bool)


def _continued(before: Product, within: Product, met: Bool[Array, "T *axes"] | None) -> Product:
    """The products `within` a stretch of time, with what stands before it; not where a reset was met."""
    h = multiply(jnp.broadcast_to(before.h, within.h.shape), within.h)
    products = rescale(h, None if before.log is None or within.log is None else before.log + within.log)
    return choose(met, within, products)
