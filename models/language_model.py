"""The backbone of language models: residual sublayers between an embedding and its transpose."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Float, Int

from models.block import drop
from models.contract import Layer, State
from models.norm import Stats
from models.padding import Padding
from models.precision import Precision
from models.sequence import Output
from models.split_time import call_layer, on_parts, splits_time
from scans import DiagonalRecurrence, DiagonalSystem, Mask, like_activations, project

EPS = 1e-5
STD = 0.02


States = tuple[State, ...]
"""The carried state of every sublayer."""

Systems = tuple[DiagonalSystem | None, ...]
"""See `LanguageModel.systems`."""


class SublayerOutput(NamedTuple):
    """The output, the carried state after the last valid step, and the diagnostics."""

    h: Float[Array, "B T D"]
    state: State
    diagnostics: dict[str, Any]


class Sublayer(nnx.Module):
    """h + Drop(Layer(LN(h))), LN with a scale and without a bias."""

    def __init__(self, layer: Layer, width: int, dropout: float, *, rngs: nnx.Rngs):
        self.norm = nnx.LayerNorm(width, epsilon=EPS, use_bias=False, rngs=rngs)
        self.layer = layer
        self.dropout = dropout

    def __call__(
        self,
        h: Float[Array, "B T D"],
        mask: Mask | None,
        state: State | None = None,
        *,
        key: jax.Array | None = None,
        probe: tuple[int, ...] | None = None,
    ) -> SublayerOutput:
        """As `models.block.Block`, with the state that the layer starts from and without moments."""
        y, state, diagnostics = call_layer(self.layer, self._normed(h), state, mask, probe)
        h = h + drop(y, self.dropout, key, shared_over_time=False)
        if probe is not None:
            diagnostics = {**diagnostics, "finite": jnp.isfinite(h).all()}
        return SublayerOutput(h, state, lax.stop_gradient(diagnostics))

    def step(
        self, h_t: Float[Array, "B D"], state: State, system: DiagonalSystem | None = None
    ) -> tuple[Float[Array, "B D"], State]:
        """One token; dropout off. system: see `LanguageModel.systems`."""
        x = self._normed(h_t)
        if system is not None and isinstance(self.layer, DiagonalRecurrence):
            y_t, state = self.layer.step(x, state, system=system)
        else:
            y_t, state = self.layer.step(x, state)
        return h_t + y_t, state

    def system(self) -> DiagonalSystem | None:
        """That of a diagonal layer; None for another."""
        return self.layer.system() if isinstance(self.layer, DiagonalRecurrence) else None

    def _normed(self, h: Float[Array, "*axes D"]) -> Float[Array, "*axes D"]:
        return like_activations(self.norm(h), h)


class LanguageModel(nnx.Module):
    """Embedding -> sublayers -> LN -> logits LN(h) E^T with the embedding E; no bias anywhere.

    E starts as N(0, 0.02^2). The sublayers are called blocks, as in the other model. One call over a text, calls over
    its pieces that hand on the state, and steps give the same logits.
    Source: GPT-2 (Radford et al., 2019) as in mikayahlevi/mru-lm.
    """

    def __init__(
        self,
        tokens: int,
        width: int,
        layers: list[Layer],
        dropout: float,
        padding: Padding,
        precision: Precision,
        *,
        rngs: nnx.Rngs,
    ):
        self.padding, self.dropout, self.precision = padding, dropout, precision
        self.embedding = nnx.Param(STD * jax.random.normal(rngs.params(), (tokens, width)))
        self.blocks = nnx.List([Sublayer(layer, width, dropout, rngs=rngs) for layer in layers])
        self.norm = nnx.LayerNorm(width, epsilon=EPS, use_bias=False, rngs=rngs)

    def initial_state(self, batch: int) -> States:
        """The state before the first token. Raises ValueError if a layer reads backward."""
        return tuple(block.layer.initial_state(batch) for block in self.blocks)

    def __call__(
        self,
        inputs: Int[Array, "B T"],
        lengths: Int[Array, " B"],
        state: States | None = None,
        *,
        key: jax.Array | None = None,
        probe: tuple[int, ...] | None = None,
        stats: Stats | None = None,
        remat: bool = False,
    ) -> Output:
        """Logits of the next token at every step (B, T, tokens); see `models.sequence.SequenceModel`.

        state: what came before, from `initial_state`, `step` or another call; None: nothing did. With
        `Padding.FULL` the state of the output is that after the `lengths` valid steps.
        """
        mask, _ = self.padding.masks(lengths, inputs.shape[1])
        keys = [None] * (len(self.blocks) + 1) if key is None else jax.random.split(key, len(self.blocks) + 1)
        h = drop(self._embedded(inputs), self.dropout, keys[0], shared_over_time=False)
        before = (None,) * len(self.blocks) if state is None else state
        diagnostics, after = [], []
        for block, block_state, block_key in zip(self.blocks, before, keys[1:], strict=True):
            run = partial(block, mask=mask, probe=probe)
            run = jax.checkpoint(run) if remat else run
            h, block_state, found = run(h, state=block_state, key=block_key)
            diagnostics.append(found)
            after.append(block_state)
        return Output(self._logits(h, splits_time(probe)), diagnostics, (None,) * len(self.blocks), tuple(after))

    def systems(self) -> Systems:
        """What diagonal layers make of their parameters before they run, for `step`, which else makes it every time."""
        return tuple(block.system() for block in self.blocks)

    def step(
        self, token: Int[Array, " B"], state: States, systems: Systems | None = None
    ) -> tuple[Float[Array, "B tokens"], States]:
        """Logits of the token after `token`, and the state with `token` in it; dropout off."""
        h, after = self._embedded(token), []
        for block, block_state, system in zip(self.blocks, state, systems or self.systems(), strict=True):
            h, block_state = block.step(h, block_state, system)
            after.append(block_state)
        return self._logits(h), tuple(after)

    def _embedded(self, tokens: Int[Array, "*axes"]) -> Float[Array, "*axes D"]:
        return self.precision.cast(self.embedding[...][tokens])

    def _logits(self, h: Float[Array, "*axes D"], split: bool = False) -> Float[Array, "*axes tokens"]:
        """split: time is split over devices; as one matrix of all steps the product would be brought together."""

        def read(embedding, h, _=None):
            return project(h, embedding.T)

        embedding, h = self.embedding[...], like_activations(self.norm(h), h)
        return on_parts(read, embedding, h) if split else read(embedding, h)
