"""Raw S5 parameters -> the diagonal system.

Everything is written in real and imaginary parts so that small steps lose no digits: with z = Lambda Delta, both
exp(z) - 1 and log|Lambda_bar| are small differences of numbers near 1.
"""

from typing import NamedTuple, assert_never

import jax.numpy as jnp
from jaxtyping import Array, Float

from s5.config import Discretization
from scans import DiagonalSystem

CLIP = -1e-4
"""Upper bound of the real part of Lambda with clip_eigs."""


class Discrete(NamedTuple):
    """log|Lambda_bar|, arg Lambda_bar, and the complex factor that turns the rows of B into those of B_bar."""

    log_mag: Float[Array, " M"]
    phase: Float[Array, " M"]
    factor_re: Float[Array, " M"]
    factor_im: Float[Array, " M"]


def zoh(re: Float[Array, " M"], im: Float[Array, " M"], delta: Float[Array, " M"]) -> Discrete:
    """Lambda_bar = exp(Lambda Delta),  factor = (exp(Lambda Delta) - 1) / Lambda.

    exp(a + i b) - 1 = expm1(a) cos b - 2 sin^2(b/2) + i exp(a) sin b.
    """
    a, b = re * delta, im * delta
    grown_re = jnp.expm1(a) * jnp.cos(b) - 2 * jnp.sin(b / 2) ** 2
    grown_im = jnp.exp(a) * jnp.sin(b)
    squared = re**2 + im**2
    return Discrete(a, b, (grown_re * re + grown_im * im) / squared, (grown_im * re - grown_re * im) / squared)


def bilinear(re: Float[Array, " M"], im: Float[Array, " M"], delta: Float[Array, " M"]) -> Discrete:
    """Lambda_bar = (1 + z) / (1 - z),  factor = Delta / (1 - z),  z = a + i b = Lambda Delta / 2.

    log|Lambda_bar| = artanh(2 a / (1 + |z|^2)),  arg Lambda_bar = arg(1 - |z|^2 + 2 i b).
    """
    a, b = re * delta / 2, im * delta / 2
    squared = a**2 + b**2
    below = (1 - a) ** 2 + b**2
    return Discrete(
        log_mag=jnp.arctanh(2 * a / (1 + squared)),
        phase=jnp.arctan2(2 * b, 1 - squared),
        factor_re=delta * (1 - a) / below,
        factor_im=delta * b / below,
    )


def diagonal_system(
    *,
    Lambda_re: Float[Array, " M"],
    Lambda_im: Float[Array, " M"],
    log_step: Float[Array, "M 1"],
    B: Float[Array, "M D 2"],
    C: Float[Array, "D M 2"],
    D: Float[Array, " D"],
    C_backward: Float[Array, "D M 2"] | None = None,
    discretization: Discretization = Discretization.ZOH,
    conj_sym: bool = True,
    clip_eigs: bool = False,
    step_rescale: float = 1.0,
) -> DiagonalSystem:
    """x_t = Lambda_bar x_{t-1} + B_bar u_t,  y_t = s Re(C x_t) + D u_t,  Delta = step_rescale exp(log_step).

    M stored modes; s = 2 with conj_sym, where a mode stands for its conjugate too, else 1. B and C hold real and
    imaginary parts on their last axis. Source: arXiv 2208.04933, section 3; the rules of `zoh` and `bilinear`.
    """
    re = jnp.minimum(Lambda_re, CLIP) if clip_eigs else Lambda_re
    delta = step_rescale * jnp.exp(log_step[:, 0])
    match discretization:
        case Discretization.ZOH:
            found = zoh(re, Lambda_im, delta)
        case Discretization.BILINEAR:
            found = bilinear(re, Lambda_im, delta)
        case unreachable:
            assert_never(unreachable)
    factor_re, factor_im = found.factor_re[:, None], found.factor_im[:, None]
    scale = 2 if conj_sym else 1
    return DiagonalSystem(
        log_mag=found.log_mag,
        phase=found.phase,
        b_re=factor_re * B[..., 0] - factor_im * B[..., 1],
        b_im=factor_re * B[..., 1] + factor_im * B[..., 0],
        c_re=scale * C[..., 0],
        c_im=scale * C[..., 1],
        d=D,
        c_backward_re=None if C_backward is None else scale * C_backward[..., 0],
        c_backward_im=None if C_backward is None else scale * C_backward[..., 1],
    )
