"""Orthogonal maps of skew-symmetric matrices: the exponential and the Cayley map.

Both send a skew K (K^T = -K) to an orthogonal matrix with determinant +1, for any leading batch axes.

How the exponential is computed, and why so. K is halved s times, s the same for the whole batch, until its norm is
below 1/2; Y = exp(K / 2^s) - I is a short Taylor sum; then Y <- 2Y + Y^2 doubles the angle s times. Carrying exp - I
instead of exp loses no digits to the identity, so halving a small matrix of the batch too often costs no accuracy. One
Newton-Schulz step then removes the defect of orthogonality that the doublings leave (4e-6 at ||K|| = 320, n = 128).
The gradient needs no second algorithm: with Q = exp(K) and S = skew part of Q^T G it is the mean of the rotated S,
    dL/dK = int_0^1 e^{tK} S e^{-tK} dt,        mean over [0, 2h] = (mean over [0, h] + its rotation by e^{hK}) / 2,
so it is doubled beside Y, and each doubling is an average, which amplifies no error.

Why not a library's: jax.scipy.linalg.expm is off by 1e-4 in float32 at order 2 and an angle of 23 (this file: 3e-7) and
takes three times as long to compile; `python -m benchmarks.orthogonal` prints both. Plain scaling and squaring of exp
loses orthogonality at large orders; eigenvectors of -iK cost more on many small matrices.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

# Degrees of the two Taylor sums, for ||A|| <= 1/2: exp(A) - I in A, and the mean rotation in ad_A (norm <= 1).
# The first neglected term is below the rounding of the type.
_DEGREES = {"float32": (8, 9), "float64": (14, 17)}


def skew(m: Shaped[Array, "..."]) -> Float[Array, "*batch n n"]:
    """K = M - M^T (not halved): the skew matrix of a free parameter M (..., n, n).

    Raises:
        ValueError: if m is not a stack of square, non-empty float32 or float64 matrices.
    """
    _check(m, "skew")
    return m - jnp.swapaxes(m, -1, -2)


def skew_of_elements(elements: Float[Array, "*axes z"], order: int) -> Float[Array, "*axes n n"]:
    """K^T = -K with the z = n (n - 1) / 2 elements below its diagonal, row by row: (1,0), (2,0), (2,1), (3,0), ...

    One concatenation with zeros: a scatter of all tokens is slower, in its gradient too.
    """
    starts = [i * (i - 1) // 2 for i in range(order + 1)]
    zero = jnp.zeros((*elements.shape[:-1], order), elements.dtype)
    pieces = [
        piece for i in range(order) for piece in (elements[..., starts[i] : starts[i] + i], zero[..., : order - i])
    ]
    return skew(jnp.concatenate(pieces, axis=-1).reshape(*elements.shape[:-1], order, order))


def expm_skew(k: Shaped[Array, "..."]) -> Float[Array, "*batch n n"]:
    """Q = exp(K) for skew K: orthogonal, determinant +1.

    Args:
        k: skew matrices (..., n, n), K^T = -K (not checked: values are unknown under jit); ||K|| up to 1e4 in float32.
    Returns:
        Q, of k's shape and dtype; entries of Q^T Q - I below 1e-5 in float32. The angles carry K's own rounding: Q is
        exact to a few units of rounding times max(1, ||K||), 5e-8 ||K|| in float32.
    Gradient (reverse mode only): skew, that is, the part of the gradient that lies in the domain.
    Raises:
        ValueError: if k is not a stack of square, non-empty float32 or float64 matrices.
    Source: scaling and squaring and the integral for the derivative: Higham, Functions of Matrices (2008), ch. 10.
    """
    _check(k, "expm_skew")
    return _in_layout(_expm, k)


def cayley(k: Shaped[Array, "..."]) -> Float[Array, "*batch n n"]:
    """Q = (I - K)^{-1} (I + K) for skew K: orthogonal, determinant +1, no eigenvalue -1.

    To first order it turns twice as far as exp(K): for n = 2 by the angle 2 arctan(K_21).

    Args:
        k: skew matrices (..., n, n), K^T = -K (not checked: values are unknown under jit).
    Returns:
        Q, of k's shape and dtype; entries of Q^T Q - I below 1e-5 in float32, up to norms of 1e4.
    Gradient (reverse mode only): skew, that is, the part of the gradient that lies in the domain.
    Raises:
        ValueError: if k is not a stack of square, non-empty float32 or float64 matrices.
    Source: Helfrich, Willmott, Ye, arXiv 1707.09520 (with the inverse on the other side; the two factors commute).
    """
    _check(k, "cayley")
    return _in_layout(_cayley, k)


def _check(m: Array, name: str) -> None:
    if m.ndim < 2 or m.shape[-1] != m.shape[-2] or m.shape[-1] == 0:
        raise ValueError(f"{name}: needs square matrices (..., n, n) with n >= 1, got shape {m.shape}")
    if m.dtype.name not in _DEGREES:
        raise ValueError(f"{name}: needs dtype float32 or float64, got {m.dtype.name}")


class _Trailing:
    """Arithmetic of matrices (..., n, n)."""

    row = -1

    @staticmethod
    def transpose(m: Array) -> Array:
        return jnp.swapaxes(m, -1, -2)

    @staticmethod
    def product(a: Array, b: Array) -> Array:
        """In full precision on every platform (the default is TF32 or bfloat16 on accelerators)."""
        return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)

    @staticmethod
    def eye(m: Array) -> Array:
        return jnp.eye(m.shape[-1], dtype=m.dtype)

    @staticmethod
    def inverse(m: Array) -> Array:
        return jnp.linalg.inv(m)


class _Leading:
    """Arithmetic of small matrices (n, n, batch).

    XLA's CPU compiler runs a batched product of such matrices one by one. Here it is n sums over the whole batch, 20
    times faster at 2,560 matrices of order 6.
    """

    row = 1

    @staticmethod
    def transpose(m: Array) -> Array:
        return jnp.swapaxes(m, 0, 1)

    @staticmethod
    def product(a: Array, b: Array) -> Array:
        total = a[:, 0, None] * b[None, 0]
        for j in range(1, a.shape[1]):
            total += a[:, j, None] * b[None, j]
        return total

    @staticmethod
    def eye(m: Array) -> Array:
        return jnp.eye(m.shape[0], dtype=m.dtype)[..., None]

    @staticmethod
    def inverse(m: Array) -> Array:
        return jnp.moveaxis(jnp.linalg.inv(jnp.moveaxis(m, -1, 0)), 0, -1)


_Layout = type[_Trailing] | type[_Leading]
_SMALL = 8  # the order from which a library's product is faster


def _in_layout(f: Any, k: Array) -> Array:
    n = k.shape[-1]
    if n >= _SMALL:
        return f(_Trailing, k)
    return jnp.moveaxis(f(_Leading, jnp.moveaxis(k.reshape(-1, n, n), 0, -1)), -1, 0).reshape(k.shape)


def _skew_part(at: _Layout, m: Array) -> Array:
    return (m - at.transpose(m)) / 2


def _nearest_orthogonal(at: _Layout, q: Array) -> Array:
    """One Newton-Schulz step to the orthogonal factor of the polar decomposition: a defect d becomes 3/4 d^2.

    At an orthogonal Q the derivative of that factor is E -> Q skew_part(Q^T E), so the gradient rules below account
    for this step, exactly, by taking the skew part of Q^T G.
    """
    return 1.5 * q - 0.5 * at.product(q, at.product(at.transpose(q), q))


def _halvings(at: _Layout, k: Array) -> Int[Array, ""]:
    """s >= 0 with ||K / 2^s||_2 < 1/2 for every matrix of the batch (bound: largest row sum)."""
    row_sums = jnp.sum(jnp.abs(k), axis=at.row)
    # A matrix with inf or nan gives nan whatever s is; it must not decide about the others.
    largest = jnp.max(row_sums, initial=0.0, where=jnp.isfinite(row_sums))
    return jnp.maximum(jnp.frexp(largest)[1] + 1, 0)


def _small_expm1(at: _Layout, a: Array) -> Array:
    """exp(A) - I for ||A||_2 <= 1/2 by Horner's rule, in a loop: compiled once, whatever the degree."""
    degree, _ = _DEGREES[a.dtype.name]
    return jax.lax.fori_loop(1, degree, lambda i, y: (a + at.product(a, y)) / (degree - i), a / degree)


def _double(at: _Layout, y: Array) -> Array:
    """exp(2A) - I from Y = exp(A) - I."""
    return 2 * y + at.product(y, y)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _expm(at: _Layout, k: Array) -> Array:
    return _expm_forward(at, k)[0]


def _expm_forward(at: _Layout, k: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    s = _halvings(at, k)
    a = jnp.ldexp(k, -s)
    y = jax.lax.fori_loop(0, s, lambda _, y: _double(at, y), _small_expm1(at, a))
    q = _nearest_orthogonal(at, y + at.eye(k))
    return q, (a, s, q)


def _expm_backward(at: _Layout, residuals: tuple[Array, Array, Array], g: Array) -> tuple[Array]:
    a, s, q = residuals
    _, degree = _DEGREES[a.dtype.name]

    def taylor(i, carry):
        # sum_i ad_A^i S / (i + 1)!;  the commutator of two skew matrices is twice the skew part of their product.
        term, mean = carry
        term = 2 * _skew_part(at, at.product(a, term)) / (i + 1)
        return term, mean + term

    def double(_, carry):
        y, mean = carry
        half = mean + at.product(y, mean)
        rotated = half + at.product(half, at.transpose(y))
        return _double(at, y), (mean + rotated) / 2

    s_matrix = _skew_part(at, at.product(at.transpose(q), g))
    _, mean = jax.lax.fori_loop(1, degree + 1, taylor, (s_matrix, s_matrix))
    _, mean = jax.lax.fori_loop(0, s, double, (_small_expm1(at, a), mean))
    return (mean,)


_expm.defvjp(_expm_forward, _expm_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _cayley(at: _Layout, k: Array) -> Array:
    return _cayley_forward(at, k)[0]


def _cayley_forward(at: _Layout, k: Array) -> tuple[Array, tuple[Array, Array]]:
    # Q = 2W - I with W = (I - K)^{-1}. dQ = 2 W dK W and W^T Q = W, so the gradient needs W and no second solve.
    w = at.inverse(at.eye(k) - k)
    q = _nearest_orthogonal(at, 2 * w - at.eye(k))
    return q, (w, q)


def _cayley_backward(at: _Layout, residuals: tuple[Array, Array], g: Array) -> tuple[Array]:
    w, q = residuals
    turned = _skew_part(at, at.product(at.transpose(q), g))
    return (2 * at.product(at.product(w, turned), at.transpose(w)),)


_cayley.defvjp(_cayley_forward, _cayley_backward)
