"""Raw parameters -> the real system that the scan needs. Real parameters are that system already."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class RealSystem(NamedTuple):
    """x_t = W x_{t-1} + B u_t,  y_t = C x_t + D u_t on real states; those of complex parameters are [Re | Im]."""

    w: Float[Array, "W W"]
    b: Float[Array, "W D"]
    c: Float[Array, "D W"]
    d: Float[Array, " D"]


def real_system(
    *,
    W: Float[Array, "n n *parts"],
    B: Float[Array, "n D *parts"],
    C: Float[Array, "D n *parts"],
    D: Float[Array, " D"],
) -> RealSystem:
    """Of complex parameters (parts: real and imaginary, last) the block form: W -> [[Re, -Im], [Im, Re]],
    B -> [Re; Im] because u is real, C -> [Re, -Im] because y = Re(C x).
    """
    if W.ndim == 2:
        return RealSystem(W, B, C, D)
    rows = _real_part(W), jnp.concatenate([W[..., 1], W[..., 0]], 1)
    return RealSystem(jnp.concatenate(rows), jnp.concatenate([B[..., 0], B[..., 1]]), _real_part(C), D)


def _real_part(z: Float[Array, "rows columns 2"]) -> Float[Array, "rows 2*columns"]:
    """[Re z, -Im z]: what Re(z x) takes from [Re x | Im x]."""
    return jnp.concatenate([z[..., 0], -z[..., 1]], 1)


def energies(squares: Float[Array, "*axes W"], coordinates: int) -> Float[Array, "*axes n"]:
    """Re^2 + Im^2 of every coordinate, from the squares of [Re | Im]; of a real state the squares themselves."""
    return squares.reshape(*squares.shape[:-1], -1, coordinates).sum(-2)
