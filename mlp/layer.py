"""The MLP as a flax module."""

import math

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float

from mlp.config import MLPConfig
from scans import Mask, check_call, like_activations, project

STD = 0.02


class MLP(nnx.Module):
    """y_t = GELU(u_t W_in) W_out, GELU(x) = x Phi(x) in its exact form (arXiv 1606.08415).

    u (B, T, D) -> y (B, T, D); no token sees another one, and the carried state is empty: ().
    W_in starts as N(0, 0.02^2), W_out as N(0, (0.02 / sqrt(L))^2) with L residual sublayers in the model.
    Source: the feed-forward layer of GPT-2 (Radford et al., 2019), without biases.
    """

    def __init__(self, config: MLPConfig, *, rngs: nnx.Rngs):
        self.config = config
        width, hidden = config.width, config.expansion * config.width
        self.W_in = nnx.Param(STD * jax.random.normal(rngs.params(), (width, hidden)))
        self.W_out = nnx.Param(STD / math.sqrt(config.sublayers) * jax.random.normal(rngs.params(), (hidden, width)))

    def initial_state(self, batch: int) -> tuple[()]:
        """Nothing."""
        return ()

    def __call__(
        self,
        u: Float[Array, "B T D"],
        state: tuple[()] | None = None,
        *,
        mask: Mask | None = None,
        reset: Bool[Array, "B T"] | None = None,
        probe: tuple[int, ...] | None = None,
    ) -> tuple[Float[Array, "B T D"], tuple[()], dict[str, Array]]:
        """y, the empty state and no diagnostics; y = 0 at masked steps.

        Raises ValueError for an input, a mask or a state of another shape.
        """
        mask = check_call("mlp", u, self.config.width, self.initial_state, state, mask, reset)
        # Nothing in is nothing out. Masked on the way in, so that no nan of a padding reaches a gradient.
        return self._mapped(u if mask is None else jnp.where(mask[..., None], u, 0)), (), {}

    def step(
        self, u_t: Float[Array, "B D"], state: tuple[()], *, reset: Bool[Array, " B"] | None = None
    ) -> tuple[Float[Array, "B D"], tuple[()]]:
        """One token."""
        return self._mapped(u_t), ()

    def _mapped(self, u: Float[Array, "*axes D"]) -> Float[Array, "*axes D"]:
        hidden = jax.nn.gelu(project(u, self.W_in[...]), approximate=False)
        return like_activations(project(hidden, self.W_out[...], u.dtype), u)
