"""The backbone of language models: residual sublayers between an embedding and its transpose."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from models.block import BlockOutput, drop
from models.contract import Layer
from models.norm import Stats
from models.padding import Padding
from models.sequence import Output
from scans import project

EPS = 1e-5
STD = 0.02


class Sublayer(nnx.Module):
    """h + Drop(Layer(LN(h))), LN with a scale and without a bias."""

    def __init__(self, layer: Layer, width: int, dropout: float, *, rngs: nnx.Rngs):
        self.norm = nnx.LayerNorm(width, epsilon=EPS, use_bias=False, rngs=rngs)
        self.layer = layer
        self.dropout = dropout

    def __call__(
        self,
        h: Float[Array, "B T D"],
        mask: Bool[Array, "B T"] | None,
        *,
        key: jax.Array | None = None,
        probe: tuple[int, ...] | None = None,
    ) -> BlockOutput:
        """As `models.block.Block`, without moments."""
        y, _, diagnostics = self.layer(self.norm(h), mask=mask, probe=probe)
        h = h + drop(y, self.dropout, key, shared_over_time=False)
        if probe is not None:
            diagnostics = {**diagnostics, "finite": jnp.isfinite(h).all()}
        return BlockOutput(h, lax.stop_gradient(diagnostics), None)


class LanguageModel(nnx.Module):
    """Embedding -> sublayers -> LN -> logits LN(h) E^T with the embedding E; no bias anywhere.

    E starts as N(0, 0.02^2). The sublayers are called blocks, as in the other model.
    Source: GPT-2 (Radford et al., 2019) as in mikayahlevi/mru-lm.
    """

    def __init__(
        self, tokens: int, width: int, layers: list[Layer], dropout: float, padding: Padding, *, rngs: nnx.Rngs
    ):
        self.padding, self.dropout = padding, dropout
        self.embedding = nnx.Param(STD * jax.random.normal(rngs.params(), (tokens, width)))
        self.blocks = nnx.List([Sublayer(layer, width, dropout, rngs=rngs) for layer in layers])
        self.norm = nnx.LayerNorm(width, epsilon=EPS, use_bias=False, rngs=rngs)

    def __call__(
        self,
        inputs: Int[Array, "B T"],
        lengths: Int[Array, " B"],
        *,
        key: jax.Array | None = None,
        probe: tuple[int, ...] | None = None,
        stats: Stats | None = None,
    ) -> Output:
        """Logits of the next token at every step (B, T, tokens); see `models.sequence.SequenceModel`."""
        mask, _ = self.padding.masks(lengths, inputs.shape[1])
        keys = [None] * (len(self.blocks) + 1) if key is None else jax.random.split(key, len(self.blocks) + 1)
        h = drop(self.embedding[...][inputs], self.dropout, keys[0], shared_over_time=False)
        diagnostics = []
        for block, block_key in zip(self.blocks, keys[1:], strict=True):
            h, found, _ = block(h, mask, key=block_key, probe=probe)
            diagnostics.append(found)
        return Output(project(self.norm(h), self.embedding[...].T), diagnostics, (None,) * len(self.blocks))
