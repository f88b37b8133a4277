"""What the functions here accept. All else is a ValueError of one line that says what there is instead."""

import numbers
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

LONGEST = 1_000_000
"""The largest lag of the exact forms, whose work and memory grow with it."""

WIDEST = 2**53
"""The largest width: float64 tells whole numbers apart up to here."""


def widths(n: ArrayLike) -> np.ndarray:
    """n as integers of 1 to WIDEST."""
    found = _whole("n", n)
    _refuse("n", found, found < 1, "a width is at least 1")
    _refuse("n", found, found > WIDEST, "expected at most 2^53, up to where float64 tells whole numbers apart")
    return found.astype(np.int64)


def lags(name: str, t: ArrayLike, least: int = 0, meaning: str = "lags are counted from 0") -> np.ndarray:
    """t as integers of `least` to LONGEST. meaning: why not less."""
    found = _whole(name, t)
    _refuse(name, found, found < least, meaning)
    beyond = f"beyond {LONGEST:,}, the longest exact curve: log_s_supercritical goes further"
    _refuse(name, found, found > LONGEST, beyond)
    return found.astype(np.int64)


def gains(gain: ArrayLike) -> np.ndarray:
    """Gains as finite positive numbers."""
    found = _real("gain", gain).astype(np.float64)
    _refuse("gain", found, ~((found > 0) & np.isfinite(found)), "a gain is a finite number above 0")
    return found


def finite(name: str, value: ArrayLike) -> np.ndarray:
    """Finite floats."""
    found = _real(name, value).astype(np.float64)
    _refuse(name, found, ~np.isfinite(found), "expected finite numbers")
    return found


def within(name: str, value: ArrayLike, low: float, high: float, meaning: str) -> np.ndarray:
    """Floats in [low, high]."""
    found = _real(name, value).astype(np.float64)
    _refuse(name, found, ~((found >= low) & (found <= high)), f"{meaning}, expected {low:g} to {high:g}")
    return found


def one(name: str, found: np.ndarray) -> Any:
    """The number that is meant where there is no axis for several."""
    if found.ndim:
        raise ValueError(f"{name} has shape {found.shape}: expected one number")
    return found.item()


def whole(name: str, value: int) -> int:
    """A Python int, where equal values must have equal names: in files and as keys of compiled programs."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ValueError(f"{name} = {value!r}: expected a whole number as int")
    return int(value)


def _whole(name: str, value: ArrayLike) -> np.ndarray:
    """Whole numbers, of any type: not integers yet, whose range they may exceed."""
    found = _real(name, value)
    _refuse(name, found, ~(np.isfinite(found) & (found == np.floor(found))), "expected whole numbers")
    return found


def _real(name: str, value: ArrayLike) -> np.ndarray:
    """Real numbers; NumPy would read strings and truth values as such."""
    found = np.asarray(value)
    if found.dtype == object and all(isinstance(number, numbers.Real) for number in found.flat):
        try:
            found = found.astype(np.float64)  # integers beyond 64 bits
        except OverflowError as error:
            raise ValueError(f"{name}: beyond the range of float64") from error
    if found.dtype.kind not in "iuf":
        raise ValueError(f"{name}: expected real numbers, got {found.dtype.name}")
    return found


def _refuse(name: str, found: np.ndarray, wrong: np.ndarray, meaning: str) -> None:
    """Names the first wrong one."""
    if wrong.any():
        raise ValueError(f"{name} = {found[wrong].flat[0]}: {meaning}")
