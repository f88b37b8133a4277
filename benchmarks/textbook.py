"""The LRU and RotRNN in their published form, to measure against: written from the equations, nothing made faster.

What the published implementations have in common: one sequence at a time under vmap over the batch, a transition array
repeated over time, `jax.lax.associative_scan`, no gradient rule of their own. Parameters are dicts with the names and
shapes of the layers in `lru` and `rotrnn`. u and y: (B, T, D).
"""

import jax
import jax.numpy as jnp
import jax.scipy.linalg
from jaxtyping import Array, Float

Params = dict[str, Array]


def lru(params: Params, u: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
    """x_t = lambda x_{t-1} + exp(gamma_log) (B_re + i B_im) u_t,  y_t = Re((C_re + i C_im) x_t) + D u_t.

    Complex matrices times real inputs, complex64 states. With C_backward_re and C_backward_im in params: bidirectional.
    Source: arXiv 2303.06349.
    """
    return jax.vmap(lambda sequence: _lru_sequence(params, sequence))(u)


def rotrnn(params: Params, u: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
    """x_t = gamma P Theta P^T x_{t-1} + xi B u_t per head,  y_t = C [x^(1)_t; ...; x^(H)_t] + D u_t.

    The scan carries decays and angles and turns states inside its operator; P multiplies the T-long inputs and states.
    With C_backward in params: bidirectional. Source: arXiv 2407.07239.
    """
    return jax.vmap(lambda sequence: _rotrnn_sequence(params, sequence))(u)


def _lru_sequence(params: Params, u: Float[Array, "T D"]) -> Float[Array, "T D"]:
    lam = jnp.exp(-jnp.exp(params["nu_log"]) + 1j * jnp.exp(params["theta_log"]))
    b = (params["B_re"] + 1j * params["B_im"]) * jnp.exp(params["gamma_log"])[:, None]
    c = params["C_re"] + 1j * params["C_im"]
    elements = (jnp.broadcast_to(lam, (u.shape[0], lam.size)), jax.vmap(lambda u_t: b @ u_t)(u))

    def then(earlier, later):
        return later[0] * earlier[0], later[0] * earlier[1] + later[1]

    _, x = jax.lax.associative_scan(then, elements)
    y = jax.vmap(lambda x_t: (c @ x_t).real)(x) + params["D"] * u
    if "C_backward_re" in params:
        c_backward = params["C_backward_re"] + 1j * params["C_backward_im"]
        _, x = jax.lax.associative_scan(then, elements, reverse=True)
        y = y + jax.vmap(lambda x_t: (c_backward @ x_t).real)(x)
    return y


def _rotrnn_sequence(params: Params, u: Float[Array, "T D"]) -> Float[Array, "T D"]:
    m, b = params["M"], params["B"]
    gamma = jnp.exp(-jnp.exp(params["gamma_log"]))
    p = jax.scipy.linalg.expm(m - jnp.swapaxes(m, -1, -2))
    xi = jnp.sqrt((1 - gamma**2) / jnp.sum(b**2, axis=(1, 2)))
    inputs = jnp.einsum("hnd,td->thn", xi[:, None, None] * b, u)
    rotated = jnp.einsum("hmn,thm->thn", p, inputs)
    steps = u.shape[0]
    elements = (
        jnp.broadcast_to(gamma, (steps, *gamma.shape)),
        jnp.broadcast_to(params["theta"], (steps, *params["theta"].shape)),
        rotated,
    )

    def output(c, reverse):
        _, _, z = jax.lax.associative_scan(_turn_and_add, elements, reverse=reverse)
        x = jnp.einsum("hmn,thn->thm", p, z)
        return x.reshape(steps, -1) @ c.T

    y = output(params["C"], reverse=False) + params["D"] * u
    return y + output(params["C_backward"], reverse=True) if "C_backward" in params else y


def _turn_and_add(earlier, later):
    gamma_i, theta_i, z_i = earlier
    gamma_j, theta_j, z_j = later
    cos, sin = jnp.cos(theta_j), jnp.sin(theta_j)
    even, odd = z_i[..., 0::2], z_i[..., 1::2]
    turned = jnp.stack([cos * even - sin * odd, sin * even + cos * odd], axis=-1).reshape(z_i.shape)
    return gamma_j * gamma_i, theta_j + theta_i, gamma_j[..., None] * turned + z_j
