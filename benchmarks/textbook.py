"""LRU, RotRNN and MRU in their published form, to measure against: written from the equations, nothing made faster.

What the published implementations have in common: one sequence at a time under vmap over the batch, a transition array
repeated over time, `jax.lax.associative_scan`, no gradient rule of their own. Parameters are dicts with the names and
shapes of the layers in `lru`, `rotrnn` and `mru`. u and y: (B, T, D).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.scipy.linalg
from jaxtyping import Array, Complex, Float

from linalg import log_abs_det
from mru import Variant

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


def recurrence(a: Complex[Array, " N"], b: Complex[Array, "B T N"]) -> Complex[Array, "B T N"]:
    """h_t = a h_{t-1} + b_t, with a repeated over time."""

    def one(b):
        return jax.lax.associative_scan(_then, (jnp.broadcast_to(a, b.shape), b))[1]

    return jax.vmap(one)(b)


def products(m: Float[Array, "B T H n n"]) -> Float[Array, "B T H n n"]:
    """H_t = M_1 ... M_t."""
    return jax.lax.associative_scan(jnp.matmul, m, axis=1)


def mru(variant: Variant) -> Callable[[Params, Float[Array, "B T D"]], Float[Array, "B T D"]]:
    """(params, u) -> y of an MRU: M_t = f(u_t W_in), S_t = M_1 ... M_t, y_t = flatten(S_t W_down) W_out.

    Source: mikayahlevi/mru-lm; where that has only a text, our reading of it (see `mru.parametrize`).
    """

    def run(params, u):
        heads, order, _ = params["W_down"].shape
        elements = (u @ params["W_in"]).reshape(*u.shape[:2], heads, -1)
        read = jnp.einsum("bthij,hjc->bthic", products(_matrices(elements, order, variant)), params["W_down"])
        return read.reshape(u.shape) @ params["W_out"]

    return run


def _matrices(elements: Float[Array, "B T H z"], n: int, variant: Variant) -> Float[Array, "B T H n n"]:
    eye = jnp.eye(n, dtype=elements.dtype)
    if variant in (Variant.ORTHOGONAL_CAYLEY, Variant.ORTHOGONAL_EXPM):
        lower = jnp.zeros((*elements.shape[:-1], n, n), elements.dtype).at[..., *jnp.tril_indices(n, -1)].set(elements)
        return _orthogonal(lower, variant is Variant.ORTHOGONAL_CAYLEY)
    a = elements.reshape(*elements.shape[:-1], n, n)
    diagonal = jnp.diagonal(a, axis1=-2, axis2=-1)
    centred = diagonal - diagonal.mean(-1, keepdims=True)
    if variant is Variant.LDU:
        delta = jnp.exp(centred / 2)[..., None] * eye
        return (jnp.tril(a, -1) + delta) @ (jnp.triu(a, 1) + delta)
    if variant in (Variant.QR_CAYLEY, Variant.QR_EXPM):
        upper = jnp.triu(a, 1) + jnp.exp(centred)[..., None] * eye
        return _orthogonal(jnp.tril(a, -1), variant is Variant.QR_CAYLEY) @ upper
    if variant is Variant.DETERMINANT:
        return (a + eye) * jnp.exp(-log_abs_det(a + eye) / n)[..., None, None]
    return a + eye


def _orthogonal(lower: Float[Array, "*axes n n"], by_cayley: bool) -> Float[Array, "*axes n n"]:
    k = lower - jnp.swapaxes(lower, -1, -2)
    eye = jnp.eye(k.shape[-1], dtype=k.dtype)
    return jnp.linalg.solve(eye - k, eye + k) if by_cayley else jax.scipy.linalg.expm(k)


def _then(earlier, later):
    return later[0] * earlier[0], later[0] * earlier[1] + later[1]


def _lru_sequence(params: Params, u: Float[Array, "T D"]) -> Float[Array, "T D"]:
    lam = jnp.exp(-jnp.exp(params["nu_log"]) + 1j * jnp.exp(params["theta_log"]))
    b = (params["B_re"] + 1j * params["B_im"]) * jnp.exp(params["gamma_log"])[:, None]
    c = params["C_re"] + 1j * params["C_im"]
    elements = (jnp.broadcast_to(lam, (u.shape[0], lam.size)), jax.vmap(lambda u_t: b @ u_t)(u))

    _, x = jax.lax.associative_scan(_then, elements)
    y = jax.vmap(lambda x_t: (c @ x_t).real)(x) + params["D"] * u
    if "C_backward_re" in params:
        c_backward = params["C_backward_re"] + 1j * params["C_backward_im"]
        _, x = jax.lax.associative_scan(_then, elements, reverse=True)
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
