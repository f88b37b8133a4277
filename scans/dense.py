"""The recurrence with a dense transition, as a loop over time."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Shaped

from scans.checks import Mask, check_marks, step_mask


def dense_scan(
    w: Shaped[Array, "..."],
    b: Shaped[Array, "..."],
    h0: Shaped[Array, "..."] | None = None,
    *,
    mask: Mask | None = None,
    reset: Bool[Array, "B T"] | None = None,
) -> tuple[Shaped[Array, "B T W"], Shaped[Array, "B W"]]:
    """h_t = W h_{t-1} + b_t for t = 1..T, one W for all steps.

    A complex recurrence is a real one of twice the width: h = [Re | Im] and W = [[Re, -Im], [Im, Re]], which is no more
    work than the complex product.

    Args:
        w: transition (W, W), float32 or float64; its products are taken in full precision.
        b: increments (B, T, W) of the same type.
        h0: state before the first step (B, W); None is zero.
        mask: which steps are valid, as flags or as lengths. A masked step holds the state. None: all steps are valid.
        reset: where set, the state before that step (h0 included) counts as zero.
    Returns:
        all states (B, T, W), and the last one (B, W).
    Raises:
        ValueError: for T = 0, or shapes that do not fit.

    There is no parallel form: a product of two transitions costs W times as much as their action on a state.
    """
    _check(w, b, h0)
    check_marks("dense_scan", b.shape[:2], mask, reset)
    flags = step_mask(mask, b.shape[1])
    turned = w.T

    def step(h, x):
        b_t, valid, forget = x
        if forget is not None:
            h = jnp.where(forget, 0, h)
        moved = jnp.matmul(h, turned, precision=lax.Precision.HIGHEST) + b_t
        h = moved if valid is None else jnp.where(valid, moved, h)
        return h, h

    start = jnp.zeros_like(b[:, 0]) if h0 is None else h0.astype(b.dtype)
    last, h = lax.scan(step, start, (jnp.swapaxes(b, 0, 1), _time_major(flags), _time_major(reset)))
    return jnp.swapaxes(h, 0, 1), last


def _time_major(flags: Bool[Array, "B T"] | None) -> Bool[Array, "T B 1"] | None:
    return None if flags is None else flags.T[..., None]


def _check(w: Array, b: Array, h0: Array | None) -> None:
    if b.ndim != 3 or 0 in b.shape[1:]:
        raise ValueError(f"dense_scan: b must be (B, T, W) with at least one time step, got shape {b.shape}")
    batch, _, width = b.shape
    for name, given, expected in (("w", w, (width, width)), ("h0", h0, (batch, width))):
        if given is not None and given.shape != expected:
            raise ValueError(f"dense_scan: {name} must have shape {expected} for b of {b.shape}, got {given.shape}")
