"""What the padding of a batch may do to a model."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from scans import Choice, step_mask


class Padding(Choice):
    """Which steps of a padded sequence a model sees.

    FULL       padding has no influence on any output: layers hold their state over it, batch norm and pooling leave it
               out
    POOL_ONLY  padding is ordinary input, left out by the pooling alone (the published results of S5 and S4)
    NONE       padding is ordinary input, and the pooling is over all steps (minimal-LRU)
    """

    FULL = "full"
    POOL_ONLY = "pool_only"
    NONE = "none"

    def masks(self, lengths: Int[Array, " B"], steps: int) -> tuple[Int[Array, " B"] | None, Bool[Array, "B T"] | None]:
        """The lengths for layers and norms, and the mask of the pooling; None: every step is input."""
        if self is Padding.NONE:
            return None, None
        lengths = jnp.asarray(lengths)
        return (lengths if self is Padding.FULL else None), step_mask(lengths, steps)


def masked_mean(x: Float[Array, "B T D"], mask: Bool[Array, "B T"] | None) -> Float[Array, "B D"]:
    """Mean over the valid steps of each sequence (at least one); over all of them without a mask."""
    if mask is None:
        return x.mean(1)
    return jnp.where(mask[..., None], x, 0).sum(1) / mask.sum(1, keepdims=True)
