"""Initial distributions of RotRNN.

Standard deviations by `Init` (D width, N state size):

    option     M              B              C              gamma
    training   1/sqrt(D+N)    1/sqrt(D+N)    1/sqrt(D+N)    log_uniform   (P near I; the authors' searches)
    clean      1              1/sqrt(D+N)    1/sqrt(D+N)    log_uniform
    simple     1              1/sqrt(D)      1/sqrt(N)      log_uniform
    appendix   1              1/sqrt(D)      1/sqrt(N)      ring

Source: arXiv 2407.07239 and its appendix; the searches of the authors' code.
"""

import math
from typing import NamedTuple, assert_never

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rotrnn.config import GammaInit, Init, OutputInit, RotRNNConfig

# Uniform draws stay this far from 0 and 1, where logarithms would be infinite.
MARGIN = 1e-6


class Stds(NamedTuple):
    """Standard deviations of the normal draws."""

    m: float
    b: float
    c: float


def stds(config: RotRNNConfig) -> Stds:
    """The row of the table above, with the output option applied."""
    joint = 1 / math.sqrt(config.width + config.state_size)
    match config.init:
        case Init.TRAINING:
            chosen = Stds(joint, joint, joint)
        case Init.CLEAN:
            chosen = Stds(1.0, joint, joint)
        case Init.SIMPLE | Init.APPENDIX:
            chosen = Stds(1.0, 1 / math.sqrt(config.width), 1 / math.sqrt(config.state_size))
        case unreachable:
            assert_never(unreachable)
    if config.output_init is OutputInit.UNIT_OUTPUT:
        return chosen._replace(c=1 / math.sqrt(config.heads))
    return chosen


def gamma_log(key: jax.Array, config: RotRNNConfig) -> Float[Array, " H"]:
    """log(-log gamma) per head, gamma in [gamma_min, gamma_max]."""
    low, high = config.gamma_min, config.gamma_max
    u = jax.random.uniform(key, (config.heads,), minval=MARGIN, maxval=1 - MARGIN)
    match config.gamma_init:
        case GammaInit.LOG_UNIFORM:
            longest, shortest = math.log(-math.log(high)), math.log(-math.log(low))
            return longest + u * (shortest - longest)
        case GammaInit.RING:
            # Large gamma^2 from q = 1 - gamma^2, so that nothing cancels near 1 nor near 0.
            squared = u * (high**2 - low**2) + low**2
            q = (1 - u) * (high**2 - low**2) + (1 - high**2)
            return jnp.log(-0.5 * jnp.where(squared < 0.5, jnp.log(squared), jnp.log1p(-q)))
        case GammaInit.BY_INIT:
            raise AssertionError("RotRNNConfig resolves by_init")
        case unreachable:
            assert_never(unreachable)


def theta(key: jax.Array, config: RotRNNConfig) -> Float[Array, "H planes"]:
    """Angles uniform in (0, theta_max), one per plane."""
    shape = (config.heads, config.head_size // 2)
    return config.theta_max * jax.random.uniform(key, shape, minval=MARGIN, maxval=1 - MARGIN)


def normal(key: jax.Array, shape: tuple[int, ...], std: float) -> Array:
    """N(0, std^2)."""
    return std * jax.random.normal(key, shape)
