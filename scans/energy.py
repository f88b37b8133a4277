"""Exact state energies of a diagonal system on a fixed batch, reduced inside the loop: no trajectory is stored."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from scans.autocovariance import autocovariance, stationary_energy
from scans.diagonal import Timeline, apply_start_gain, project_inputs
from scans.sequential import product
from scans.system import DiagonalSystem


class ModeEnergies(NamedTuple):
    """What one pass over a batch says about the size of the state, per complex mode or per time.

    energy: mean of |x_t|^2 over all valid positions.
    energy_t: sum over modes of the mean of |x_t|^2 over the sequences that have a t-th valid element, at the asked t
        (nan where none has).
    coloured_t: what energy_t would be, were the inputs stationary with the autocovariance that they have on average
        (`scans.autocovariance`), at the asked t.
    gain: |B|^2 / (1 - |lambda|^2), the stationary energy under white unit input, a function of the parameters alone.
    gain_align: tr(B S B^H) / (1 - |lambda|^2) with S the mean of u u^T over valid positions.
    """

    energy: Float[Array, " N"]
    energy_t: Float[Array, " K"]
    coloured_t: Float[Array, " K"]
    gain: Float[Array, " N"]
    gain_align: Float[Array, " N"]


def diagonal_energy(
    system: DiagonalSystem,
    u: Float[Array, "B T D"],
    times: tuple[int, ...],
    *,
    mask: Bool[Array, "B T"] | None = None,
    reverse: bool = False,
) -> ModeEnergies:
    """Energies of the states x_t of one pass from the zero state; no gradient flows.

    `times` are counted from 1 at the first valid element in the order of processing.
    """
    # In float32 at least: what is measured is the state, not the rounding of the activations.
    system, u = lax.stop_gradient((system, u.astype(jnp.promote_types(u.dtype, jnp.float32))))
    mask = jnp.ones(u.shape[:2], bool) if mask is None else mask
    u = jnp.where(mask[..., None], u, 0)
    timeline = Timeline.of(mask, None, None, reverse)
    w = project_inputs(system, u)
    v = apply_start_gain(system, w, timeline)
    alpha, beta = timeline.weights(v.dtype)

    def step(carry, x):
        h, total = carry
        v_t, alpha_t, beta_t = x
        h = alpha_t * product(system.transition, h, split=True) + beta_t * h + v_t
        re, im = jnp.split(alpha_t * h, 2, -1)
        squared = re**2 + im**2
        return (h, total + squared.sum(0)), squared.sum(-1)

    start = (jnp.zeros_like(v[0]), jnp.zeros_like(system.log_mag))
    (_, total), by_step = lax.scan(step, start, (v, alpha, beta), reverse=reverse)
    count = mask.sum()
    spread = -jnp.expm1(2 * system.log_mag)
    covariance = jnp.einsum("btd,bte->de", u, u, precision=lax.Precision.HIGHEST) / count
    aligned = sum(
        jnp.einsum("nd,de,ne->n", b, covariance, b, precision=lax.Precision.HIGHEST) for b in (system.b_re, system.b_im)
    )
    norm = (system.b_re**2 + system.b_im**2).sum(1)
    r = autocovariance(lax.complex(*jnp.split(w.swapaxes(0, 1), 2, -1)), mask)
    coloured = stationary_energy(system, r.conj() if reverse else r).sum(1)[jnp.asarray(times) - 1]
    by_time = mean_at_times(by_step.T, mask, times, reverse)
    return ModeEnergies(total / count, by_time, coloured, norm / spread, aligned / spread)


def mean_at_times(
    by_step: Float[Array, "B T"], mask: Bool[Array, "B T"], times: tuple[int, ...], reverse: bool
) -> Float[Array, " K"]:
    """Mean over the sequences of what stands at their t-th valid step, for each t in `times`."""
    place = lax.cumsum(mask.astype(jnp.int32), axis=1, reverse=reverse)

    def at(t):
        here = (place == t) & mask
        return jnp.where(here, by_step, 0).sum() / here.sum()

    return jax.lax.map(at, jnp.asarray(times))
