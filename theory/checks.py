"""What the functions here accept. All else is a ValueError of one line that says what there is instead."""

import numpy as np
from numpy.typing import ArrayLike

LONGEST = 1_000_000
"""The largest lag of the exact forms, whose work and memory grow with it."""


def widths(n: ArrayLike) -> np.ndarray:
    """n as integers of at least 1."""
    found = _whole("n", n)
    if found.size and found.min() < 1:
        raise ValueError(f"n = {found.min()}: a width is at least 1")
    return found


def lags(name: str, t: ArrayLike) -> np.ndarray:
    """t as integers of 0 to LONGEST."""
    found = _whole(name, t)
    if found.size and found.min() < 0:
        raise ValueError(f"{name} = {found.min()}: lags are counted from 0")
    if found.size and found.max() > LONGEST:
        raise ValueError(
            f"{name} = {found.max()} is beyond {LONGEST:,}, the longest exact curve: log_s_supercritical goes further"
        )
    return found


def gains(gain: ArrayLike) -> np.ndarray:
    """Gains as finite positive numbers."""
    found = np.asarray(gain, np.float64)
    if found.size and not (np.isfinite(found).all() and found.min() > 0):
        raise ValueError(f"a gain is a finite number above 0, got {gain}")
    return found


def within(name: str, value: ArrayLike, low: float, high: float, meaning: str) -> np.ndarray:
    """Floats in [low, high]."""
    found = np.asarray(value, np.float64)
    if not ((found >= low) & (found <= high)).all():
        raise ValueError(f"{name} = {value}: {meaning}, expected {low:g} to {high:g}")
    return found


def _whole(name: str, value: ArrayLike) -> np.ndarray:
    found = np.asarray(value)
    if not np.issubdtype(found.dtype, np.integer):
        floats = np.asarray(value, np.float64)
        if not (np.isfinite(floats).all() and (floats == np.floor(floats)).all()):
            raise ValueError(f"{name} = {value}: expected whole numbers")
        found = floats
    return found.astype(np.int64)
