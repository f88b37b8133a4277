"""RotRNN as a flax module: it owns the parameters, `scans` runs them."""

from typing import assert_never

import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Float

from linalg import expm_skew, skew
from rotrnn import init
from rotrnn.config import Normalise, Orthogonal, RotRNNConfig, Start, ThetaStorage
from rotrnn.parametrize import diagonal_system, xi
from scans import DiagonalRecurrence, DiagonalSystem, Direction


class RotRNN(DiagonalRecurrence, nnx.Module):
    """Rotational recurrence with principled normalisation, per head h:

        x_t = gamma A x_{t-1} + xi B u_t,   A = P Theta P^T,   P = expm(M - M^T),   gamma = exp(-exp(gamma_log)),
        xi = sqrt((1 - gamma^2) / tr(B^T B)),   y_t = C [x^(1)_t; ...; x^(H)_t] + D u_t

    u (B, T, D) -> y (B, T, D); H heads of n real numbers, N = H n. Every head reads all of u_t, C mixes the heads.
    Bidirectional: y gains C_backward x'_t, the same recurrence run over the inputs from the end.
    Source: arXiv 2407.07239.
    """

    def __init__(self, config: RotRNNConfig, *, rngs: nnx.Rngs):
        width, size, heads, n = config.width, config.state_size, config.heads, config.head_size
        std = init.stds(config)
        self.config = config
        self.direction = config.direction
        self.modes = size // 2
        self.heads = heads
        self.gamma_log = nnx.Param(init.gamma_log(rngs.params(), config))
        theta = init.theta(rngs.params(), config)
        match config.theta_storage:
            case ThetaStorage.RAW:
                self.theta = nnx.Param(theta)
            case ThetaStorage.LOG:
                self.theta_log = nnx.Param(jnp.log(theta))
            case unreachable:
                assert_never(unreachable)
        if config.orthogonal is Orthogonal.EXPM:
            self.M = nnx.Param(init.normal(rngs.params(), (heads, n, n), std.m))
        b = init.normal(rngs.params(), (heads, n, width), std.b)
        start_gain = xi(self.gamma_log[...], b)
        if config.normalise is Normalise.FOLDED:
            b = start_gain[:, None, None] * b
        if config.normalise is Normalise.INIT:
            self.xi = nnx.Param(start_gain)
        self.B = nnx.Param(b)
        self.C = nnx.Param(init.normal(rngs.params(), (width, size), std.c))
        self.D = nnx.Param(init.normal(rngs.params(), (width,), 1.0))
        if config.direction is Direction.BIDIRECTIONAL:
            self.C_backward = nnx.Param(init.normal(rngs.params(), (width, size), std.c))

    def angles(self) -> Float[Array, "H planes"]:
        """theta, one angle per plane."""
        return self.theta[...] if self.config.theta_storage is ThetaStorage.RAW else jnp.exp(self.theta_log[...])

    def basis(self) -> Float[Array, "H n n"] | None:
        """P = expm(M - M^T) per head; None stands for the identity."""
        if self.config.orthogonal is Orthogonal.IDENTITY:
            return None
        return expm_skew(skew(self.M[...]))

    def input_gain(self) -> Float[Array, " H"]:
        """What multiplies B in each head."""
        match self.config.normalise:
            case Normalise.XI:
                return xi(self.gamma_log[...], self.B[...])
            case Normalise.INIT:
                return lax.stop_gradient(self.xi[...])
            case Normalise.FOLDED | Normalise.OFF:
                return jnp.ones_like(self.gamma_log[...])
            case unreachable:
                assert_never(unreachable)

    def system(self) -> DiagonalSystem:
        """The diagonal system of the present parameters."""
        return diagonal_system(
            gamma_log=self.gamma_log[...],
            theta=self.angles(),
            P=self.basis(),
            B=self.B[...],
            C=self.C[...],
            D=self.D[...],
            C_backward=self.C_backward[...] if self.direction is Direction.BIDIRECTIONAL else None,
            gain=self.input_gain(),
            stationary=self.config.start is Start.STATIONARY,
            held=self.config.held,
        )
