"""The exact energies of `theory.dense` in jax: the same sums, differentiable in the gain.

Float64 wants x64. In float32 log Q and log S are off by some 1e-6 times max(1, |log Q|).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Float

from theory.checks import gains, lags, one, widths
from theory.dense import sums


class LogEnergies(NamedTuple):
    """log Q_{n,k} and log S_{n,t} for k, t = 0..longest."""

    log_q: Float[Array, " times"]
    log_s: Float[Array, " times"]


def log_energies(n: int | Float[Array, ""], longest: int, gain: float | Float[Array, ""] = 1.0) -> LogEnergies:
    """The curves of one width and gain; vmap maps over either. `longest` is static.

    Raises:
      ValueError: longest < 0 or above 1e6; n < 1 or gain <= 0, where they are not traced.
    """
    last = one("longest", lags("longest", longest))
    # A float: jax has no integer for a width of 2^31 or more.
    width = n if isinstance(n, Tracer) else float(one("n", widths(n)))
    if not isinstance(gain, Tracer):
        gain = one("gain", gains(gain))
    log_q = sums(jnp, width, last) + 2 * jnp.arange(last + 1) * jnp.log(gain)
    return LogEnergies(log_q, lax.cumlogsumexp(log_q))
