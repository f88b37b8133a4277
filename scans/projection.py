"""Dense products around the recurrences, in the precision of the activations."""

import math

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float


def project(x: Float[Array, "*axes D"], w: Float[Array, "D E"], dtype: jnp.dtype | None = None) -> Array:
    """x w (*axes, E), for activations of `dtype` (default: that of x).

    bfloat16: factors are rounded to it, sums and result are float32, as everything between two projections is (states,
    matrices, softmax). Others: full precision on every platform, where an accelerator would take less; multiplied as
    one matrix of all steps, because XLA's CPU backend takes twice as long for the gradient of w where that sums over
    two axes.
    """
    if is_low(dtype or x.dtype):
        return _low_product(x.astype(jnp.bfloat16), w)
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    return jnp.matmul(rows, w, precision=lax.Precision.HIGHEST).reshape(*x.shape[:-1], w.shape[1])


@jax.custom_vjp
def _low_product(x: Float[Array, "*axes D"], w: Float[Array, "D E"]) -> Float[Array, "*axes E"]:
    """x w, factors rounded to bfloat16 and sums in float32; those of the gradient too, where autodiff would multiply
    its float32 by bfloat16, which takes the time of float32, and round the gradient of w.

    The axes stay apart: joined, time and records that lie on different devices would have to be gathered first."""
    return jnp.matmul(x, w.astype(jnp.bfloat16), preferred_element_type=jnp.float32)


def _low_forward(x, w):
    return _low_product(x, w), (x, w)


def _low_backward(residuals, g):
    x, w = residuals
    g = g.astype(jnp.bfloat16)
    by_x = jnp.matmul(g, w.T.astype(jnp.bfloat16), preferred_element_type=jnp.float32)
    if jax.sharding.get_abstract_mesh().empty:
        by_w = _over_steps(*(a.reshape(-1, a.shape[-1]) for a in (x, g)))
    else:
        full = lambda x, g: _over_steps(x.astype(w.dtype), g.astype(w.dtype))  # noqa: E731
        by_w = lax.platform_dependent(x, g, cpu=full, default=_over_steps)
    return by_x.astype(x.dtype), by_w.astype(w.dtype)


def _over_steps(x, g):
    """x^T g of all steps, sums in float32; XLA's CPU backend cannot sum products of bfloat16 over two axes."""
    steps = tuple(range(x.ndim - 1))
    return lax.dot_general(x, g, ((steps, steps), ((), ())), preferred_element_type=jnp.float32)


_low_product.defvjp(_low_forward, _low_backward)


def like_activations(y: Float[Array, "*axes"], u: Float[Array, "*axes2"]) -> Float[Array, "*axes"]:
    """The output y of a layer in bfloat16 if its input u is."""
    return y.astype(u.dtype) if is_low(u.dtype) else y


def is_low(dtype: jnp.dtype) -> bool:
    """Whether activations of this type are to be multiplied in it."""
    return dtype == jnp.bfloat16
