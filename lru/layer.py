"""The LRU as a flax module: it owns the parameters, `scans` runs them."""

import math

from flax import nnx

from lru import init
from lru.config import Gamma, LRUConfig
from lru.parametrize import diagonal_system
from scans import DiagonalRecurrence, DiagonalSystem, Direction


class LRU(DiagonalRecurrence, nnx.Module):
    """Linear recurrent unit.

        x_t = lambda x_{t-1} + exp(gamma_log) (B_re + i B_im) u_t,   y_t = Re((C_re + i C_im) x_t) + D u_t

    u (B, T, D) -> y (B, T, D); N complex modes. Bidirectional: y gains Re(C_backward x'_t), x' run from the end.
    Source: arXiv 2303.06349.
    """

    def __init__(self, config: LRUConfig, *, rngs: nnx.Rngs):
        width, modes = config.width, config.state_size
        self.config = config
        self.direction = config.direction
        self.modes = self.heads = modes
        nu_log, gamma_log = init.ring(rngs.params(), modes, config.r_min, config.r_max)
        b_std, c_std = 1 / math.sqrt(2 * width), 1 / math.sqrt(modes)
        self.nu_log = nnx.Param(nu_log)
        self.theta_log = nnx.Param(init.phases(rngs.params(), modes, config.max_phase))
        if config.gamma is Gamma.LEARNED:
            self.gamma_log = nnx.Param(gamma_log)
        self.B_re = nnx.Param(init.normal(rngs.params(), (modes, width), b_std))
        self.B_im = nnx.Param(init.normal(rngs.params(), (modes, width), b_std))
        self.C_re = nnx.Param(init.normal(rngs.params(), (width, modes), c_std))
        self.C_im = nnx.Param(init.normal(rngs.params(), (width, modes), c_std))
        self.D = nnx.Param(init.normal(rngs.params(), (width,), 1.0))
        if config.direction is Direction.BIDIRECTIONAL:
            self.C_backward_re = nnx.Param(init.normal(rngs.params(), (width, modes), c_std))
            self.C_backward_im = nnx.Param(init.normal(rngs.params(), (width, modes), c_std))

    def system(self) -> DiagonalSystem:
        """The diagonal system of the present parameters."""
        backward = self.direction is Direction.BIDIRECTIONAL
        return diagonal_system(
            nu_log=self.nu_log[...],
            theta_log=self.theta_log[...],
            gamma_log=self.gamma_log[...] if self.config.gamma is Gamma.LEARNED else None,
            B_re=self.B_re[...],
            B_im=self.B_im[...],
            C_re=self.C_re[...],
            C_im=self.C_im[...],
            D=self.D[...],
            C_backward_re=self.C_backward_re[...] if backward else None,
            C_backward_im=self.C_backward_im[...] if backward else None,
            gamma=self.config.gamma,
            held=self.config.held,
        )
