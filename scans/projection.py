"""Dense products around the recurrences, in the precision of the activations."""

import math

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float


def project(x: Float[Array, "*axes D"], w: Float[Array, "D E"], dtype: jnp.dtype | None = None) -> Array:
    """x w (*axes, E), for activations of `dtype` (default: that of x).

    Multiplied as one matrix of all steps: XLA's CPU backend takes twice as long for the gradient of w where that sums
    over two axes.
    bfloat16: factors are rounded to it, sums and result are float32, as everything between two projections is (states,
    matrices, softmax). Others: full precision on every platform, where an accelerator would take less.
    """
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    if is_low(dtype or x.dtype):
        y = jnp.matmul(rows.astype(jnp.bfloat16), w.astype(jnp.bfloat16), preferred_element_type=jnp.float32)
    else:
        y = jnp.matmul(rows, w, precision=lax.Precision.HIGHEST)
    return y.reshape(*x.shape[:-1], w.shape[1])


def like_activations(y: Float[Array, "*axes"], u: Float[Array, "*axes2"]) -> Float[Array, "*axes"]:
    """The output y of a layer in bfloat16 if its input u is."""
    return y.astype(u.dtype) if is_low(u.dtype) else y


def is_low(dtype: jnp.dtype) -> bool:
    """Whether activations of this type are to be multiplied in it."""
    return dtype == jnp.bfloat16
