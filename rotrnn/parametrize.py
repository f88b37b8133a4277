"""Raw RotRNN parameters -> the diagonal system.

Per head, A = P Theta P^T with Theta a block-diagonal of plane rotations. In the coordinates z = P^T x the plane k is
one complex mode z_2k + i z_2k+1 of eigenvalue gamma exp(i theta_k), so P is absorbed into B and C once per call and
never touches an array as long as the sequence.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Complex, Float

from scans import DiagonalSystem, held_system


def one_minus_gamma_squared(gamma_log: Float[Array, " H"]) -> Float[Array, " H"]:
    """1 - gamma^2 for gamma = exp(-exp(gamma_log)), without cancellation near gamma = 1."""
    return -jnp.expm1(-2 * jnp.exp(gamma_log))


def frobenius_norm(B: Float[Array, "H n D"]) -> Float[Array, " H"]:
    """|B_h|_F; a head of zero B gets 1, so that value and gradient stay finite (its input is zero anyway)."""
    squared = (B**2).sum((1, 2))
    return jnp.sqrt(jnp.where(squared > 0, squared, 1.0))


def xi(gamma_log: Float[Array, " H"], B: Float[Array, "H n D"]) -> Float[Array, " H"]:
    """sqrt((1 - gamma^2) / tr(B^T B)): white unit inputs keep E|x|^2 = 1 in every head (arXiv 2407.07239)."""
    return jnp.sqrt(one_minus_gamma_squared(gamma_log)) / frobenius_norm(B)


def diagonal_system(
    *,
    gamma_log: Float[Array, " H"],
    theta: Float[Array, "H planes"],
    P: Float[Array, "H n n"] | None,
    B: Float[Array, "H n D"],
    C: Float[Array, "D N"],
    D: Float[Array, " D"],
    C_backward: Float[Array, "D N"] | None = None,
    gain: Float[Array, " H"],
    stationary: bool = False,
    held: int = 1,
) -> DiagonalSystem:
    """x_t = gamma A x_{t-1} + gain B u_t,  y_t = C x_t + D u_t, heads side by side, modes head-major.

    Args:
        P: orthogonal basis per head; None is the identity.
        gain: input gain per head (xi, or what an ablation puts in its place).
        stationary: the first input of a sequence is scaled so that a state of gain xi has energy 1 from the start on.
        held: old steps for which one input stands; 2 reads inputs of half the rate of training (see `held_system`).
    """
    planes = theta.shape[1]
    inputs = gain[:, None, None] * B
    if P is not None:
        inputs = jnp.einsum("hij,hid->hjd", P, inputs, precision=lax.Precision.HIGHEST)
    inputs = inputs.reshape(-1, B.shape[-1])
    c_re, c_im = _output_modes(C, P)
    c_backward_re, c_backward_im = (None, None) if C_backward is None else _output_modes(C_backward, P)
    start_gain = jnp.repeat(1 / jnp.sqrt(one_minus_gamma_squared(gamma_log)), planes) if stationary else None
    system = DiagonalSystem(
        log_mag=jnp.repeat(-jnp.exp(gamma_log), planes),
        phase=theta.reshape(-1),
        b_re=inputs[0::2],
        b_im=inputs[1::2],
        c_re=c_re,
        c_im=c_im,
        d=D,
        c_backward_re=c_backward_re,
        c_backward_im=c_backward_im,
        start_gain=start_gain,
    )
    return held_system(system, held)


def _output_modes(
    C: Float[Array, "D N"], P: Float[Array, "H n n"] | None
) -> tuple[Float[Array, "D modes"], Float[Array, "D modes"]]:
    """C P per head as complex columns c_2k - i c_2k+1, so that C x = Re(c (z_2k + i z_2k+1))."""
    if P is not None:
        by_head = C.reshape(C.shape[0], P.shape[0], -1)
        C = jnp.einsum("dhi,hij->dhj", by_head, P, precision=lax.Precision.HIGHEST).reshape(C.shape)
    return C[:, 0::2], -C[:, 1::2]


def original_basis(modes: Complex[Array, "*axes modes"], P: Float[Array, "H n n"]) -> Float[Array, "*axes H n"]:
    """States x = P z of every head from the complex modes z_2k + i z_2k+1."""
    z = jnp.stack([modes.real, modes.imag], -1).reshape(*modes.shape[:-1], P.shape[0], P.shape[1])
    return jnp.einsum("hij,...hj->...hi", P, z, precision=lax.Precision.HIGHEST)
