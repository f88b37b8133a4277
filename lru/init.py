"""Initial distributions of the LRU (arXiv 2303.06349, section 3)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# Uniform draws stay this far from 0 and 1, where logarithms would be infinite.
MARGIN = 1e-6


def ring(key: jax.Array, modes: int, r_min: float, r_max: float) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """nu_log and gamma_log for |lambda| uniform in area on the ring [r_min, r_max].

    |lambda|^2 ~ U(r_min^2, r_max^2), nu_log = log(-log|lambda|), gamma_log = log(1 - |lambda|^2) / 2. Large
    |lambda| are formed from q = 1 - |lambda|^2, so that nothing cancels near the unit circle nor near 0.
    """
    u = jax.random.uniform(key, (modes,), minval=MARGIN, maxval=1 - MARGIN)
    squared = u * (r_max**2 - r_min**2) + r_min**2
    q = (1 - u) * (r_max**2 - r_min**2) + (1 - r_max**2)
    return jnp.log(-0.5 * jnp.where(squared < 0.5, jnp.log(squared), jnp.log1p(-q))), 0.5 * jnp.log(q)


def phases(key: jax.Array, modes: int, max_phase: float) -> Float[Array, " N"]:
    """theta_log for phases uniform in (0, max_phase)."""
    return jnp.log(max_phase * jax.random.uniform(key, (modes,), minval=MARGIN, maxval=1 - MARGIN))


def normal(key: jax.Array, shape: tuple[int, ...], std: float) -> Array:
    """N(0, std^2)."""
    return std * jax.random.normal(key, shape)
