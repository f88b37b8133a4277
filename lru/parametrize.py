"""Raw LRU parameters -> the diagonal system."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from lru.config import Gamma
from scans import DiagonalSystem, held_system


def input_gain(nu_log: Float[Array, " N"], gamma_log: Float[Array, " N"] | None, gamma: Gamma) -> Float[Array, " N"]:
    """The gain of each mode's input; 1 - |lambda|^2 = -expm1(-2 exp(nu_log)) without cancellation."""
    match gamma:
        case Gamma.LEARNED:
            assert gamma_log is not None, "a learned gamma is a parameter"
            return jnp.exp(gamma_log)
        case Gamma.RECOMPUTED:
            return jnp.sqrt(-jnp.expm1(-2 * jnp.exp(nu_log)))
        case Gamma.OFF:
            return jnp.ones_like(nu_log)


def diagonal_system(
    *,
    nu_log: Float[Array, " N"],
    theta_log: Float[Array, " N"],
    gamma_log: Float[Array, " N"] | None,
    B_re: Float[Array, "N D"],
    B_im: Float[Array, "N D"],
    C_re: Float[Array, "D N"],
    C_im: Float[Array, "D N"],
    D: Float[Array, " D"],
    C_backward_re: Float[Array, "D N"] | None = None,
    C_backward_im: Float[Array, "D N"] | None = None,
    gamma: Gamma = Gamma.LEARNED,
    held: int = 1,
) -> DiagonalSystem:
    """lambda = exp(-exp(nu_log) + i exp(theta_log)),  B = exp(gamma_log) (B_re + i B_im),  C = C_re + i C_im.

    held: old steps for which one input stands; 2 reads inputs of half the rate of training (see `held_system`).
    Source: arXiv 2303.06349, equations 5 to 8.
    """
    gain = input_gain(nu_log, gamma_log, gamma)[:, None]
    system = DiagonalSystem(
        log_mag=-jnp.exp(nu_log),
        phase=jnp.exp(theta_log),
        b_re=gain * B_re,
        b_im=gain * B_im,
        c_re=C_re,
        c_im=C_im,
        d=D,
        c_backward_re=C_backward_re,
        c_backward_im=C_backward_im,
    )
    return held_system(system, held)
