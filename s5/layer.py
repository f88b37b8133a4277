"""S5 as a flax module: it owns the parameters, `scans` runs them."""

import jax
import jax.numpy as jnp
from flax import nnx

from s5 import init
from s5.config import S5Config
from s5.parametrize import diagonal_system
from scans import DiagonalRecurrence, DiagonalSystem, Direction


class S5(DiagonalRecurrence, nnx.Module):
    """Simplified state space layer.

        x_t = Lambda_bar x_{t-1} + B_bar u_t,   y_t = s Re(C x_t) + D u_t

    with Lambda_bar, B_bar the discretisation of Lambda = Lambda_re + i Lambda_im and B by the steps
    Delta = step_rescale exp(log_step); s = 2 with conj_sym, else 1. u (B, T, D) -> y (B, T, D). Bidirectional: C1
    reads the forward states, C2 those of the same recurrence run from the end, y_t = s Re(C1 x_t + C2 x'_t) + D u_t.
    Source: arXiv 2208.04933.
    """

    def __init__(self, config: S5Config, *, rngs: nnx.Rngs):
        self.config = config
        self.direction = config.direction
        self.modes = self.heads = config.modes
        eigenvalues, vectors = init.stored_modes(config)
        self.Lambda_re = nnx.Param(jnp.real(eigenvalues))
        self.Lambda_im = nnx.Param(jnp.imag(eigenvalues))
        self.log_step = nnx.Param(init.log_step(rngs.params(), config))
        self.B = nnx.Param(init.input_matrix(rngs.params(), config, vectors))
        if config.direction is Direction.BIDIRECTIONAL:
            self.C1 = nnx.Param(init.output_matrix(rngs.params(), config, vectors))
            self.C2 = nnx.Param(init.output_matrix(rngs.params(), config, vectors))
        else:
            self.C = nnx.Param(init.output_matrix(rngs.params(), config, vectors))
        self.D = nnx.Param(jax.random.normal(rngs.params(), (config.width,)))

    def system(self) -> DiagonalSystem:
        """The diagonal system of the present parameters."""
        both = self.direction is Direction.BIDIRECTIONAL
        return diagonal_system(
            Lambda_re=self.Lambda_re[...],
            Lambda_im=self.Lambda_im[...],
            log_step=self.log_step[...],
            B=self.B[...],
            C=self.C1[...] if both else self.C[...],
            D=self.D[...],
            C_backward=self.C2[...] if both else None,
            discretization=self.config.discretization,
            conj_sym=self.config.conj_sym,
            clip_eigs=self.config.clip_eigs,
            step_rescale=self.config.step_rescale,
        )
