"""Level 1: the elementwise linear recurrence."""

from typing import assert_never

import jax.numpy as jnp
from jaxtyping import Array, Bool, Inexact

from scans import associative
from scans.choice import ScanMethod, resolve
from scans.sequential import recurrence


def linear_scan(
    a: Inexact[Array, "..."],
    b: Inexact[Array, "B T N"],
    h0: Inexact[Array, "B N"] | None = None,
    *,
    reset: Bool[Array, "B T"] | None = None,
    reverse: bool = False,
    method: ScanMethod | str = ScanMethod.AUTO,
) -> tuple[Inexact[Array, "B T N"], Inexact[Array, "B N"]]:
    """h_t = a_t h_{t-1} + b_t for t = 1..T; with `reverse`, h_t = a_t h_{t+1} + b_t for t = T..1.

    Args:
        a: real or complex transition that broadcasts to b: (N,) is the same at all times (and never expanded over
            time), (T, N), (B, T, N), (B, T, 1).
        b: real or complex increments.
        h0: state before the first processed step; None is zero.
        reset: where set, the state before that step (h0 included) counts as zero. It acts in processing order.
        method: SEQUENTIAL keeps only a, h0 and h for its hand-written reverse-mode gradient and refuses forward-mode
            differentiation; ASSOCIATIVE is plain autodiff.
    Returns:
        all states (B, T, N), and the state after the last processed step (B, N).
    Raises:
        ValueError: for T = 0, or an `a` that does not broadcast to b.

    Source: Blelloch, "Prefix sums and their applications" (1990), for the parallel form.
    """
    batch, steps, width = b.shape
    if steps == 0:
        raise ValueError(f"linear_scan: b has shape {b.shape}: at least one time step is needed")
    fits = all(n in (1, m) for n, m in zip(a.shape[::-1], b.shape[::-1], strict=False))
    if not (1 <= a.ndim <= 3 and fits):
        raise ValueError(f"linear_scan: a of shape {a.shape} does not broadcast to b of shape {b.shape}")
    for name, given, expected in (("h0", h0, (batch, width)), ("reset", reset, (batch, steps))):
        if given is not None and given.shape != expected:
            raise ValueError(f"linear_scan: {name} must have shape {expected}, got {given.shape}")
    dtype = jnp.result_type(a, b) if h0 is None else jnp.result_type(a, b, h0)
    a, b = a.astype(dtype), b.astype(dtype)
    h0 = jnp.zeros((batch, width), dtype) if h0 is None else h0.astype(dtype)
    keep = None if reset is None else (~reset).astype(b.real.dtype)[..., None]
    match resolve(method, "linear_scan"):
        case ScanMethod.SEQUENTIAL:
            return _sequential(a, b, h0, keep, reverse)
        case ScanMethod.ASSOCIATIVE:
            h = _associative(a, b, h0, keep, reverse)
            return h, h[:, 0 if reverse else -1]
        case ScanMethod.AUTO | ScanMethod.CHUNKED:
            raise AssertionError("resolve returns neither here")
        case unreachable:
            assert_never(unreachable)


def _sequential(a: Array, b: Array, h0: Array, keep: Array | None, reverse: bool) -> tuple[Array, Array]:
    """Complex arrays run as they are: taking them apart and joining them again costs as much as the recurrence."""
    a = jnp.swapaxes(a.reshape((1,) * (3 - a.ndim) + a.shape), 0, 1)  # (T or 1, B or 1, N or 1)
    alpha = None if keep is None else jnp.swapaxes(keep, 0, 1)
    h, h_last = recurrence(False, reverse, 1, a, jnp.swapaxes(b, 0, 1), h0, alpha)
    return jnp.swapaxes(h, 0, 1), h_last


def _associative(a: Array, b: Array, h0: Array, keep: Array | None, reverse: bool) -> Array:
    if keep is None:
        keep = jnp.ones((*b.shape[:2], 1), b.real.dtype)
    # A carried state enters through the first increment: products of many transitions would lose its precision.
    first = b.shape[1] - 1 if reverse else 0
    a_first = a[..., min(first, a.shape[-2] - 1), :] if a.ndim > 1 else a
    b = b.at[:, first].add(keep[:, first] * a_first * h0)
    if a.ndim == 1:
        return associative.scan_fixed(a, b, keep, reverse)
    return associative.scan_varying(jnp.broadcast_to(keep * a, b.shape), b, reverse)
