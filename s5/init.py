"""Initial distributions of S5 (arXiv 2208.04933, appendix B; lindermanlab/S5).

The state matrix starts as J copies, on the diagonal, of the normal part of HiPPO-LegS. With V its eigenvectors:

    B        V^H b, b real (N, D), truncated normal of variance 1/N
    C        lecun_normal           c V, real and imaginary part of c (D, N) of variance 1/(N D): very small
             trunc_standard_normal  c V, of variance 1/N (not 1, in spite of its name)
             complex_normal         of variance 1/2 directly in the eigenbasis
    log_step uniform in (log dt_min, log dt_max)
    D        N(0, 1)

The published code stores the two directions of complex_normal in one array; here they are C1 and C2, as in the others.
"""

import functools
import math
from typing import assert_never

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Complex, Float

from s5.config import CInit, S5Config

# Standard deviation of a standard normal cut off at -2 and 2.
CUT_STD = 0.87962566103423978


@functools.cache
def hippo_normal(size: int) -> tuple[Complex[np.ndarray, " n"], Complex[np.ndarray, "n n"]]:
    """Eigenvalues and orthonormal eigenvectors (columns) of the normal part of the HiPPO-LegS matrix.

    A_ij = -sqrt((2i+1)(2j+1)) for i > j, -(i+1) on the diagonal, 0 above. With p_i = sqrt(i + 1/2), A + p p^T is -1/2
    plus a skew matrix; the eigenvalues are -1/2 + i w, w ascending and symmetric about 0.
    Source: arXiv 2008.07669 (HiPPO), 2111.00396 (the normal part).
    """
    p = np.sqrt(np.arange(size) + 0.5)
    lower = np.tril(np.outer(p, p), -1)
    w, v = np.linalg.eigh(-1j * (lower.T - lower))
    # An eigenvector is unique up to its phase, which LAPACK leaves open: the first entry shall be positive.
    return -0.5 + 1j * w, v * (np.abs(v[0]) / v[0])


def stored_modes(config: S5Config) -> tuple[Complex[np.ndarray, " M"], Complex[np.ndarray, "N M"]]:
    """Eigenvalues of the stored modes and their eigenvectors in the full state; with conj_sym those with w < 0."""
    eigenvalues, vectors = hippo_normal(config.block_size)
    kept = config.modes // config.blocks
    return np.tile(eigenvalues[:kept], config.blocks), np.kron(np.eye(config.blocks), vectors[:, :kept])


def input_matrix(key: jax.Array, config: S5Config, vectors: Complex[np.ndarray, "N M"]) -> Float[Array, "M D 2"]:
    """V^H b, real and imaginary part on the last axis."""
    b = _truncated_normal(key, (config.state_size, config.width), 1 / config.state_size)
    return _parts(jnp.matmul(vectors.conj().T, b, precision=lax.Precision.HIGHEST))


def output_matrix(key: jax.Array, config: S5Config, vectors: Complex[np.ndarray, "N M"]) -> Float[Array, "D M 2"]:
    """C of one direction by the law of `config.C_init`, real and imaginary part on the last axis."""
    n, d = config.state_size, config.width
    match config.C_init:
        case CInit.LECUN_NORMAL:
            variance = 1 / (n * d)
        case CInit.TRUNC_STANDARD_NORMAL:
            variance = 1 / n
        case CInit.COMPLEX_NORMAL:
            return math.sqrt(0.5) * jax.random.normal(key, (d, config.modes, 2))
        case unreachable:
            assert_never(unreachable)
    c = _truncated_normal(key, (d, n, 2), variance)
    return _parts(jnp.matmul(lax.complex(c[..., 0], c[..., 1]), vectors, precision=lax.Precision.HIGHEST))


def log_step(key: jax.Array, config: S5Config) -> Float[Array, "M 1"]:
    """log Delta, one step size per stored mode."""
    low, high = math.log(config.dt_min), math.log(config.dt_max)
    return jax.random.uniform(key, (config.modes, 1), minval=low, maxval=high)


def _truncated_normal(key: jax.Array, shape: tuple[int, ...], variance: float) -> Array:
    """A normal cut off at two standard deviations, scaled to `variance`."""
    return math.sqrt(variance) / CUT_STD * jax.random.truncated_normal(key, -2, 2, shape)


def _parts(z: Complex[Array, "*axes"]) -> Float[Array, "*axes 2"]:
    return jnp.stack([z.real, z.imag], -1)
