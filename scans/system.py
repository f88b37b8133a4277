"""The time-invariant complex diagonal system under RotRNN, LRU and S5."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class DiagonalSystem(NamedTuple):
    """x_t = lambda x_{t-1} + B u_t,  y_t = Re(C x_t) + d u_t,  lambda = exp(log_mag + i phase), as real arrays.

    N complex modes, model width D. With c_backward the layer reads both ways: y_t gains Re(C' x'_t), where
    x'_t = lambda x'_{t+1} + B u_t runs over the same inputs from the end.
    start_gain, if given, scales B u_t at the first input of a sequence (the stationary start of RotRNN).
    """

    log_mag: Float[Array, " N"]
    phase: Float[Array, " N"]
    b_re: Float[Array, "N D"]
    b_im: Float[Array, "N D"]
    c_re: Float[Array, "D N"]
    c_im: Float[Array, "D N"]
    d: Float[Array, " D"]
    c_backward_re: Float[Array, "D N"] | None = None
    c_backward_im: Float[Array, "D N"] | None = None
    start_gain: Float[Array, " N"] | None = None

    @property
    def bidirectional(self) -> bool:
        return self.c_backward_re is not None

    @property
    def transition(self) -> Float[Array, " W"]:
        """lambda as [Re | Im]."""
        modulus = jnp.exp(self.log_mag)
        return jnp.concatenate([modulus * jnp.cos(self.phase), modulus * jnp.sin(self.phase)])

    def readout(self, backward: bool) -> Float[Array, "W D"]:
        """[Re C, -Im C]^T: [Re x | Im x] times it is Re(C x). `backward`: that of the second direction."""
        if not backward:
            return jnp.concatenate([self.c_re, -self.c_im], 1).T
        assert self.c_backward_re is not None
        assert self.c_backward_im is not None
        return jnp.concatenate([self.c_backward_re, -self.c_backward_im], 1).T
