"""Elements of a token -> its matrix M, and the norms of a state before it is read. All per head.

    variant             elements    M
    identity            n^2         A + I
    orthogonal_cayley   n(n-1)/2    (I - K)^-1 (I + K)
    orthogonal_expm     n(n-1)/2    exp(K)
    ldu                 n^2         (L(A) + Delta)(U(A) + Delta),  Delta = diag(exp((a - mean a) / 2))
    qr_cayley, qr_expm  n^2         Q R,  Q the Cayley map or exponential of L(A) - L(A)^T,
                                    R = U(A) + diag(exp(a - mean a))
    determinant         n^2         (A + I) / |det(A + I)|^(1/n)

A: elements row by row, a its diagonal, L and U its strict lower and upper part. K: elements fill the strict lower part
row by row, the upper part is its negative transpose. M = I at elements 0. For the same small elements a Cayley map
turns twice as far as an exponential: one learning rate is not one effective rate.

Source: mikayahlevi/mru-lm (code: identity, orthogonal_cayley, qr_cayley, ldu; text only: orthogonal_expm, qr_expm,
determinant, whose exponent, absolute value and + I are our reading).
"""

from typing import assert_never

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from linalg import cayley, expm_skew, log_abs_det, skew, skew_of_elements
from mru.config import OutputNorm, Variant
from scans.matrix_sequential import multiply


def input_states(
    elements: Float[Array, "*axes z"], order: int, variant: Variant, det_eps: float = 0.0
) -> Float[Array, "*axes n n"]:
    """M of every token and head. det_eps is added to |det(A + I)| in the variant `determinant`."""
    if variant in (Variant.ORTHOGONAL_CAYLEY, Variant.ORTHOGONAL_EXPM):
        k = skew_of_elements(elements, order)
        return cayley(k) if variant is Variant.ORTHOGONAL_CAYLEY else expm_skew(k)
    a = elements.reshape(*elements.shape[:-1], order, order)
    match variant:
        case Variant.IDENTITY:
            return a + _eye(a)
        case Variant.LDU:
            delta = _diagonal(a, 0.5)
            return multiply(jnp.tril(a, -1) + delta, jnp.triu(a, 1) + delta)
        case Variant.QR_CAYLEY:
            return multiply(cayley(skew(jnp.tril(a, -1))), jnp.triu(a, 1) + _diagonal(a, 1.0))
        case Variant.QR_EXPM:
            return multiply(expm_skew(skew(jnp.tril(a, -1))), jnp.triu(a, 1) + _diagonal(a, 1.0))
        case Variant.DETERMINANT:
            log_det = log_abs_det(a + _eye(a))
            if det_eps:
                log_det = jnp.logaddexp(log_det, jnp.log(det_eps))
            return (a + _eye(a)) * jnp.exp(-log_det / order)[..., None, None]
        case unreachable:
            assert_never(unreachable)


def _eye(a: Array) -> Array:
    return jnp.eye(a.shape[-1], dtype=a.dtype)


def _diagonal(a: Float[Array, "*axes n n"], share: float) -> Float[Array, "*axes n n"]:
    """diag(exp(share (a - mean a))), a the diagonal of A: of determinant 1."""
    diagonal = jnp.sum(a * _eye(a), axis=-1)
    centred = diagonal - diagonal.mean(-1, keepdims=True)
    return jnp.exp(share * centred)[..., None] * _eye(a)


def normalised(states: Float[Array, "*axes n n"], kind: OutputNorm) -> Float[Array, "*axes n n"]:
    """The states as the layer reads them, see `OutputNorm`; zero matrices and rows stay zero."""
    match kind:
        case OutputNorm.NONE:
            return states
        case OutputNorm.FROBENIUS:
            return states.shape[-1] ** 0.5 * _unit(states, (-2, -1))
        case OutputNorm.ROW:
            return _unit(states, (-1,))
        case unreachable:
            assert_never(unreachable)


def _unit(x: Array, axes: tuple[int, ...]) -> Array:
    """x over its Euclidean norm. Dividing by the largest entry first, a constant, lets no square overflow."""
    largest = lax.stop_gradient(jnp.max(jnp.abs(x), axis=axes, keepdims=True))
    x = x / jnp.where(largest > 0, largest, 1)
    square = jnp.sum(x * x, axis=axes, keepdims=True)
    return x * lax.rsqrt(jnp.where(square > 0, square, 1))
