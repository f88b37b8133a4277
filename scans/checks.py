"""What every layer refuses at a call, with the numbers in the message."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, Shaped


def check_call(
    where: str,
    u: Shaped[Array, "..."],
    width: int,
    initial_state: Callable[[int], Any],
    state: Any | None,
    **marks: Shaped[Array, "..."] | None,
) -> None:
    """Raises ValueError unless u is (B, T, width) with T >= 1, a carried state has the form of initial_state(B), and
    each of the marks (mask, reset) is (B, T)."""
    if u.ndim != 3 or u.shape[1] < 1 or u.shape[2] != width:
        raise ValueError(f"{where}: u must be (B, T, {width}) with at least one time step, got shape {u.shape}")
    for name, mark in marks.items():
        if mark is not None and mark.shape != u.shape[:2]:
            raise ValueError(f"{where}: {name} must have shape {u.shape[:2]}, got {mark.shape}")
    if state is None:
        return
    expected, given = _shapes(jax.eval_shape(lambda: initial_state(u.shape[0]))), _shapes(state)
    if expected != given:
        raise ValueError(f"{where}: the carried state must have shapes {expected}, got {given}")


def _shapes(state: Any) -> dict[str, tuple[int, ...]]:
    """Name -> shape, of every array of a state."""
    leaves = jax.tree.leaves_with_path(state)
    return {jax.tree_util.keystr(path, simple=True, separator="."): tuple(leaf.shape) for path, leaf in leaves}
