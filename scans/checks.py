"""What every layer refuses at a call, with the numbers in the message."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Shaped

Mask = Bool[Array, "B T"] | Int[Array, " B"]
"""Which steps are valid: a flag each, or how many of the first of each sequence (padding at the end)."""


def check_marks(
    where: str, shape: tuple[int, ...], mask: Shaped[Array, "..."] | None, reset: Shaped[Array, "..."] | None
) -> None:
    """Raises ValueError unless mask is flags (B, T) = `shape` or lengths (B,), and reset is (B, T)."""
    lengths = mask is not None and mask.shape == shape[:1] and jnp.issubdtype(mask.dtype, jnp.integer)
    flags = mask is not None and mask.shape == shape and mask.dtype == bool
    if mask is not None and not (lengths or flags):
        raise ValueError(
            f"{where}: mask must be flags of shape {shape} or whole lengths of shape {shape[:1]}, "
            f"got {mask.dtype} of shape {mask.shape}"
        )
    if reset is not None and reset.shape != shape:
        raise ValueError(f"{where}: reset must have shape {shape}, got {reset.shape}")


def step_mask(mask: Mask | None, steps: int) -> Bool[Array, "B T"] | None:
    """A flag for each step."""
    return mask if mask is None or mask.ndim == 2 else jnp.arange(steps) < mask[:, None]


def check_call(
    where: str,
    u: Shaped[Array, "..."],
    width: int,
    initial_state: Callable[[int], Any],
    state: Any | None,
    mask: Shaped[Array, "..."] | None = None,
    reset: Shaped[Array, "..."] | None = None,
) -> Bool[Array, "B T"] | None:
    """The mask as a flag for each step.

    Raises ValueError unless u is (B, T, width) with T >= 1, a carried state has the form of initial_state(B), mask and
    reset are as `check_marks` says.
    """
    if u.ndim != 3 or u.shape[1] < 1 or u.shape[2] != width:
        raise ValueError(f"{where}: u must be (B, T, {width}) with at least one time step, got shape {u.shape}")
    check_marks(where, u.shape[:2], mask, reset)
    if state is not None:
        expected, given = _shapes(jax.eval_shape(lambda: initial_state(u.shape[0]))), _shapes(state)
        if expected != given:
            raise ValueError(f"{where}: the carried state must have shapes {expected}, got {given}")
    return step_mask(mask, u.shape[1])


def _shapes(state: Any) -> dict[str, tuple[int, ...]]:
    """Name -> shape, of every array of a state."""
    leaves = jax.tree.leaves_with_path(state)
    return {jax.tree_util.keystr(path, simple=True, separator="."): tuple(leaf.shape) for path, leaf in leaves}
