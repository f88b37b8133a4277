"""Batch norm whose statistics are values: a call returns those of its batch, the train step averages them."""

from typing import NamedTuple

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float

from models.precision import at_least_float32
from scans import Choice, like_activations

EPS = 1e-5


class Norm(Choice):
    """What stands before the layer of a block. LAYER: over the channels of a step. BATCH: see `BatchNorm`."""

    LAYER = "layer"
    BATCH = "batch"


class Moments(NamedTuple):
    """Mean and (biased) variance of each channel."""

    mean: Float[Array, " D"]
    var: Float[Array, " D"]


Stats = tuple[Moments | None, ...]
"""The running averages of a model, one entry a block; None for a block without batch norm."""


def batch_moments(x: Float[Array, "B T D"], mask: Bool[Array, "B T"] | None) -> Moments:
    """Mean and variance over batch and time, over the steps of the mask only (None: over all of them)."""
    if mask is None:
        return Moments(x.mean((0, 1)), x.var((0, 1)))
    valid, count = mask[..., None], mask.sum()
    mean = jnp.where(valid, x, 0).sum((0, 1)) / count
    # Masked before it is squared, so that no inf of a padding reaches a gradient.
    centred = jnp.where(valid, x - mean, 0)
    return Moments(mean, (centred**2).sum((0, 1)) / count)


def running(old: Moments, found: Moments, momentum: float) -> Moments:
    """momentum * old + (1 - momentum) * found: the momentum is the weight of the OLD value."""
    return Moments(*(momentum * before + (1 - momentum) * now for before, now in zip(old, found, strict=True)))


class BatchNorm(nnx.Module):
    """y = scale (x - mean) / sqrt(var + 1e-5) + bias, mean and variance of each channel over batch and time.

    The same moments serve every step, so those of padded steps are left out by the mask and nowhere else.
    Source: arXiv 1502.03167; momentum and place as in lindermanlab/S5.
    """

    def __init__(self, width: int):
        self.scale = nnx.Param(jnp.ones(width))
        self.bias = nnx.Param(jnp.zeros(width))

    def __call__(
        self, x: Float[Array, "B T D"], mask: Bool[Array, "B T"] | None, moments: Moments | None
    ) -> tuple[Float[Array, "B T D"], Moments]:
        """The normalised x, and the moments used: the given ones (evaluation), or those of this batch (None)."""
        exact = at_least_float32(x)
        used = batch_moments(exact, mask) if moments is None else moments
        y = (exact - used.mean) * (self.scale[...] / jnp.sqrt(used.var + EPS)) + self.bias[...]
        return like_activations(y, x), used
