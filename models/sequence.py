"""Encoder, stack of blocks and head: labels of whole sequences, of their steps, or of pairs of sequences."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Num

from data.spec import InputKind, TaskKind, TaskSpec
from models.block import Block
from models.contract import State
from models.norm import Stats
from models.padding import Padding, masked_mean
from models.precision import Precision, at_least_float32, dense


class Encoder(nnx.Module):
    """Dense(input_width -> D) at every step, on one-hot tokens or on raw channels.

    For tokens the product with a one-hot vector is a row of the kernel, taken without making that vector.
    """

    def __init__(self, task: TaskSpec, width: int, *, rngs: nnx.Rngs):
        self.tokens = task.input_kind is InputKind.TOKENS
        self.dense = nnx.Linear(task.input_width, width, rngs=rngs)

    def __call__(self, inputs: Num[Array, "B T *channels"]) -> Float[Array, "B T D"]:
        """(B, T) token ids or (B, T, channels) -> (B, T, D)."""
        if self.tokens:
            assert self.dense.bias is not None
            return self.dense.kernel[...][inputs] + self.dense.bias[...]
        return self.dense(inputs)


class PairHead(nnx.Module):
    """Dense(D -> classes) o GELU o Dense(4D -> D) on [u, v, u - v, u v], u and v the pooled documents of a pair.

    Source: lindermanlab/S5 and state-spaces/s4, whose head for LRA Retrieval differs from the official one.
    """

    def __init__(self, width: int, classes: int, *, rngs: nnx.Rngs):
        self.hidden = nnx.Linear(4 * width, width, rngs=rngs)
        self.out = nnx.Linear(width, classes, rngs=rngs)

    def __call__(self, pooled: Float[Array, "2B D"]) -> Float[Array, "B classes"]:
        """All first documents, then all second ones -> logits of the pairs."""
        u, v = jnp.split(pooled, 2)
        return self.out(jax.nn.gelu(self.hidden(jnp.concatenate([u, v, u - v, u * v], -1))))


def as_sequences(pairs: Num[Array, "B 2 ..."]) -> Num[Array, "2B ..."]:
    """Pairs as twice as many sequences: all first ones, then all second ones."""
    return jnp.swapaxes(pairs, 0, 1).reshape(-1, *pairs.shape[2:])


class Output(NamedTuple):
    """Logits, (B, classes) or at every step (B, T, classes); diagnostics and moments have an entry for each block.

    state: of a language model, what every block carries on after the last valid step.
    """

    logits: Float[Array, "B *T classes"]
    diagnostics: list[dict[str, Array]]
    moments: Stats
    state: tuple[State, ...] = ()


class SequenceModel(nnx.Module):
    """Encoder -> blocks -> (mean over time, to classify the whole) -> head.

    The head is Dense(D -> classes), or `PairHead`: both sequences of a pair go through one encoder, in one batch.
    """

    def __init__(
        self,
        task: TaskSpec,
        width: int,
        depth: int,
        make_block: Callable[[nnx.Rngs], Block],
        padding: Padding = Padding.FULL,
        precision: Precision = Precision.FLOAT32,
        *,
        rngs: nnx.Rngs,
    ):
        self.kind, self.padding, self.precision = task.kind, padding, precision
        self.encoder = Encoder(task, width, rngs=rngs)
        self.blocks = nnx.List([make_block(rngs) for _ in range(depth)])
        head = PairHead if task.kind is TaskKind.PAIRS else nnx.Linear
        self.head = head(width, task.classes, rngs=rngs)

    def __call__(
        self,
        inputs: Num[Array, "B ..."],
        lengths: Int[Array, "B ..."],
        *,
        key: jax.Array | None = None,
        probe: tuple[int, ...] | None = None,
        stats: Stats | None = None,
        remat: bool = False,
    ) -> Output:
        """Args:
        inputs: token ids (B, T) or channels (B, T, C), padded on the right; of pairs (B, 2, T) or (B, 2, T, C).
        lengths: valid steps of each sequence (B,), at least 1; of pairs (B, 2).
        key: switches dropout on.
        probe: times at which state energies are wanted, see `models.contract.Layer`.
        stats: what batch norm uses (evaluation); None: the moments of this batch, over all 2B sequences of pairs.
        remat: keep the inputs of blocks for the gradient, and compute again what is inside of them.
        """
        if self.kind is TaskKind.PAIRS:
            inputs, lengths = as_sequences(inputs), as_sequences(lengths)
        mask, pool = self.padding.masks(lengths, inputs.shape[1])
        x = self.precision.cast(self.encoder(inputs))
        diagnostics, moments = [], []
        for depth, block in enumerate(self.blocks):
            block_key = None if key is None else jax.random.fold_in(key, depth)
            run = partial(block, mask=mask, probe=probe)
            run = jax.checkpoint(run) if remat else run
            x, found, used = run(x, key=block_key, moments=None if stats is None else stats[depth])
            diagnostics.append(found)
            moments.append(used)
        return Output(self._logits(x, pool), diagnostics, tuple(moments))

    def _logits(self, x: Float[Array, "B T D"], pool: Bool[Array, "B T"] | None) -> Float[Array, "B *T classes"]:
        if isinstance(self.head, PairHead) or self.kind is TaskKind.CLASSIFICATION:
            return self.head(masked_mean(at_least_float32(x), pool))
        return dense(self.head, x)
