"""One block: norm, layer, mixing over channels, residual."""

from typing import NamedTuple, assert_never

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Float

from models.contract import Layer
from models.norm import BatchNorm, Moments, Norm
from models.precision import dense
from models.split_time import call_layer
from scans import Choice, Mask, like_activations, step_mask


class Mixing(Choice):
    """How channels are mixed after the layer; h its output, g = Drop(GELU(h)), s the logistic function.

    full_glu   Drop((W1 g + b1) s(W2 g + b2))
    half_glu1  Drop(g s(W g + b))
    half_glu2  Drop(h s(W g + b))
    gelu       g
    """

    FULL_GLU = "full_glu"
    HALF_GLU1 = "half_glu1"
    HALF_GLU2 = "half_glu2"
    GELU = "gelu"


def drop(
    x: Float[Array, "B T D"], rate: float, key: jax.Array | None, *, shared_over_time: bool = True
) -> Float[Array, "B T D"]:
    """Dropout, with one mask for all times of a sequence or one for each; none without a key."""
    if key is None or rate == 0:
        return x
    keep = jax.random.bernoulli(key, 1 - rate, (x.shape[0], 1 if shared_over_time else x.shape[1], x.shape[2]))
    return x * keep / (1 - rate)


class Mix(nnx.Module):
    """The channel mixing of a block (see `Mixing`). Source: arXiv 2208.04933, 2303.06349 and their code."""

    def __init__(self, width: int, mixing: Mixing, dropout: float, *, rngs: nnx.Rngs):
        self.mixing = mixing
        self.dropout = dropout
        if mixing is not Mixing.GELU:
            self.gate = nnx.Linear(width, width, rngs=rngs)
        if mixing is Mixing.FULL_GLU:
            self.value = nnx.Linear(width, width, rngs=rngs)

    def __call__(self, h: Float[Array, "B T D"], key: jax.Array | None) -> Float[Array, "B T D"]:
        """(B, T, D) -> (B, T, D); dropout acts only with a key."""
        inner, outer = (None, None) if key is None else jax.random.split(key)
        g = drop(jax.nn.gelu(h), self.dropout, inner)
        match self.mixing:
            case Mixing.GELU:
                return g
            case Mixing.FULL_GLU:
                mixed = like_activations(dense(self.value, g), g) * self._gates(g)
            case Mixing.HALF_GLU1:
                mixed = g * self._gates(g)
            case Mixing.HALF_GLU2:
                mixed = h * self._gates(g)
            case unreachable:
                assert_never(unreachable)
        return drop(mixed, self.dropout, outer)

    def _gates(self, g: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        return like_activations(jax.nn.sigmoid(dense(self.gate, g)), g)


class BlockOutput(NamedTuple):
    """The output, the diagnostics, and the moments of batch norm (None without it)."""

    x: Float[Array, "B T D"]
    diagnostics: dict[str, Array]
    moments: Moments | None


class Block(nnx.Module):
    """x + Mix(Layer(Norm(x))).

    Norm and biases make padded positions non-zero, so the layer gets the mask in every block.
    """

    def __init__(
        self, layer: Layer, width: int, mixing: Mixing, dropout: float, norm: Norm = Norm.LAYER, *, rngs: nnx.Rngs
    ):
        self.norm = BatchNorm(width) if norm is Norm.BATCH else nnx.LayerNorm(width, rngs=rngs)
        self.layer = layer
        self.mix = Mix(width, mixing, dropout, rngs=rngs)

    def __call__(
        self,
        x: Float[Array, "B T D"],
        mask: Mask | None,
        *,
        key: jax.Array | None = None,
        probe: tuple[int, ...] | None = None,
        moments: Moments | None = None,
    ) -> BlockOutput:
        """Diagnostics are, with `probe`, those of `models.contract.Layer`, and whether x is `finite`.

        moments: what batch norm uses instead of the moments of this batch.
        """
        if isinstance(self.norm, BatchNorm):
            normed, moments = self.norm(x, step_mask(mask, x.shape[1]), moments)
        else:
            normed, moments = like_activations(self.norm(x), x), None
        h, _, diagnostics = call_layer(self.layer, normed, None, mask, probe)
        x = x + self.mix(h, key)
        if probe is not None:
            diagnostics = {**diagnostics, "finite": jnp.isfinite(x).all()}
        return BlockOutput(x, lax.stop_gradient(diagnostics), moments)
