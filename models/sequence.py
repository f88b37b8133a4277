"""Encoder, stack of blocks and head: labels of whole sequences, or of their steps."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Num

from data.spec import InputKind, TaskKind, TaskSpec
from models.block import Block


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


def masked_mean(x: Float[Array, "B T D"], mask: Bool[Array, "B T"]) -> Float[Array, "B D"]:
    """Mean over the valid steps of each sequence (at least one)."""
    return jnp.where(mask[..., None], x, 0).sum(1) / mask.sum(1, keepdims=True)


class SequenceModel(nnx.Module):
    """Encoder -> blocks -> (mean over valid steps, to classify the whole) -> Dense(D -> classes).

    Padding has no influence on any output: layers hold their state over it and the mean leaves it out.
    """

    def __init__(
        self, task: TaskSpec, width: int, depth: int, make_block: Callable[[nnx.Rngs], Block], *, rngs: nnx.Rngs
    ):
        self.pooled = task.kind is TaskKind.CLASSIFICATION
        self.encoder = Encoder(task, width, rngs=rngs)
        self.blocks = nnx.List([make_block(rngs) for _ in range(depth)])
        self.head = nnx.Linear(width, task.classes, rngs=rngs)

    def __call__(
        self,
        inputs: Num[Array, "B T *channels"],
        lengths: Int[Array, " B"],
        *,
        key: jax.Array | None = None,
        probe: tuple[int, ...] | None = None,
    ) -> tuple[Float[Array, "B *T classes"], list[dict[str, Array]]]:
        """Logits, (B, classes) or at every step (B, T, classes), and one dict of diagnostics per block.

        Args:
            inputs: token ids or channels, padded on the right.
            lengths: valid steps of each sequence, at least 1.
            key: switches dropout on.
            probe: times at which state energies are wanted, see `models.contract.Layer`.
        """
        mask = jnp.arange(inputs.shape[1]) < lengths[:, None]
        x = self.encoder(inputs)
        diagnostics = []
        for depth, block in enumerate(self.blocks):
            block_key = None if key is None else jax.random.fold_in(key, depth)
            x, found = block(x, mask, key=block_key, probe=probe)
            diagnostics.append(found)
        return self.head(masked_mean(x, mask) if self.pooled else x), diagnostics
