"""What a diagonal system does with inputs that are stationary in time: their autocovariance, and the energies it gives.

    r(tau) = E w_s conj(w_{s-tau}),   w = B u,
    E_1 = s^2 a_0,   E_m = |lambda|^2 E_{m-1} + a_0 + 2 sum_{tau=1}^{m-1} a_tau + 2 (s - 1) a_{m-1},
    a_tau = Re conj(lambda)^tau r(tau)

per mode, from the zero state; s scales the first input (1, or the start gain of a stationary start). The same as
`theory.diagonal.aligned_energy`, which has it from a given law of inputs, in NumPy.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Complex, Float, Inexact

from scans.system import DiagonalSystem


def autocovariance(w: Complex[Array, "B T N"], mask: Bool[Array, "B T"]) -> Complex[Array, "T N"]:
    """r(tau) of every coordinate, tau counted in valid elements: the mean over all pairs of them; 0 if there is none.

    Sequence by sequence through the spectrum, so that a batch needs no more memory than one of its sequences.
    """
    steps = w.shape[1]

    def add(total, sequence):
        spectrum = jnp.fft.fft(sequence, 2 * steps, axis=0)
        return total + spectrum.real**2 + spectrum.imag**2, None

    spectrum, _ = lax.scan(add, jnp.zeros((2 * steps, w.shape[2]), w.real.dtype), _joined(w, mask))
    return _over_pairs(jnp.fft.ifft(spectrum, axis=0)[:steps], mask)


def cross_covariance(w: Float[Array, "B T N"], mask: Bool[Array, "B T"]) -> Float[Array, "T N N"]:
    """R(tau) = E w_s w_{s-tau}^T, of all pairs as by `autocovariance`, column by column."""
    steps = w.shape[1]
    spectrum = jnp.fft.rfft(_joined(w, mask), 2 * steps, axis=1)

    def column(one):
        found = jnp.einsum("bfn,bf->fn", spectrum, one.conj(), precision=lax.Precision.HIGHEST)
        return _over_pairs(jnp.fft.irfft(found, 2 * steps, axis=0)[:steps], mask)

    return jnp.moveaxis(lax.map(column, jnp.moveaxis(spectrum, 2, 0)), 0, 2)


def _joined(w: Inexact[Array, "B T N"], mask: Bool[Array, "B T"]) -> Inexact[Array, "B T N"]:
    """The valid elements of every sequence, without gaps, and zeros after them."""
    valid_first = jnp.argsort(~mask, axis=1, stable=True)
    return jnp.take_along_axis(jnp.where(mask[..., None], w, 0), valid_first[..., None], axis=1)


def _over_pairs(sums: Inexact[Array, "T N"], mask: Bool[Array, "B T"]) -> Inexact[Array, "T N"]:
    """Sums over all pairs that are tau apart, by how many these are."""
    pairs = jnp.maximum(mask.sum(1)[:, None] - jnp.arange(mask.shape[1]), 0).sum(0)[:, None]
    return jnp.where(pairs > 0, sums / jnp.maximum(pairs, 1), 0)


def stationary_energy(system: DiagonalSystem, r: Complex[Array, "T N"]) -> Float[Array, "T N"]:
    """E|x_m|^2 of every mode after m = 1, ..., T inputs with the autocovariance r, from the zero state."""
    tau = jnp.arange(len(r))[:, None]
    aligned = (jnp.exp(tau * (system.log_mag - 1j * system.phase)) * r).real
    gained = 2 * jnp.cumsum(aligned, axis=0) - aligned[0]
    if system.start_gain is not None:
        gained += 2 * (system.start_gain - 1) * aligned
        gained = gained.at[0].set(system.start_gain**2 * aligned[0])

    def step(energy, brought):
        energy = jnp.exp(2 * system.log_mag) * energy + brought
        return energy, energy

    return lax.scan(step, jnp.zeros_like(aligned[0]), gained)[1]
