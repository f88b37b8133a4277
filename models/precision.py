"""In which type activations are kept and multiplied."""

from typing import assert_never

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from scans import Choice, is_low, project


class Precision(Choice):
    """The type of activations between blocks and of the factors of products.

    FLOAT32    everything
    BFLOAT16   activations and factors; sums of products, parameters and their updates, states of recurrences, moments
               of norms, softmax, pooling, logits and loss stay float32
    """

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"

    def cast(self, x: Float[Array, "*axes D"]) -> Float[Array, "*axes D"]:
        """The activations x in this type; FLOAT32 leaves them as they are."""
        match self:
            case Precision.FLOAT32:
                return x
            case Precision.BFLOAT16:
                return x.astype(jnp.bfloat16)
            case unreachable:
                assert_never(unreachable)


def at_least_float32(x: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """For sums and moments over many numbers."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def dense(linear: nnx.Linear, x: Float[Array, "*axes D"]) -> Float[Array, "*axes E"]:
    """x W + b. Of bfloat16 activations the factors are bfloat16, the result is float32."""
    if not is_low(x.dtype):
        return linear(x)
    assert linear.bias is not None
    return project(x, linear.kernel[...]) + linear.bias[...]
