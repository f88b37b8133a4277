"""Statistics over draws of W, in logarithms: the mean, which rare draws carry, and quantiles, which do not see them."""

import math
from typing import NamedTuple

import numpy as np

FAIR_C, LARGEST_SCORE, LARGEST_ERROR = 2.0, 4.0, 0.03
"""Draws are compared with the exact mean up to t = 2 sqrt n; beyond, their estimated error is itself unreliable. They
agree if they are within 4 standard errors and the standard error is below 3 % of the value."""

NEVER = np.inf


class Summary(NamedTuple):
    """Over draws, at each time. error: standard error of the mean over the mean."""

    log_mean: np.ndarray
    error: np.ndarray
    log_median: np.ndarray
    log_low: np.ndarray
    log_high: np.ndarray


class Agreement(NamedTuple):
    """(mean - exact) in standard errors, the standard error over the exact value, and whether both are small."""

    score: np.ndarray
    error: np.ndarray
    agrees: np.ndarray


class Passage(NamedTuple):
    """How many of the draws pass a level within the run, and when 10, 50 and 90 % of all draws have: NEVER if not."""

    fraction: float
    times: tuple[float, ...]


def summarise(log_energy: np.ndarray) -> Summary:
    """Mean, its standard error, median and 10 and 90 % of log energies of shape (draws, T), at least two draws.

    Raises:
      ValueError: fewer than two draws.
    """
    if len(log_energy) < 2:
        raise ValueError(f"{len(log_energy)} draws: a standard error needs at least 2")
    top = log_energy.max(0)
    scaled = np.exp(log_energy - top)
    mean = scaled.mean(0)
    low, median, high = np.quantile(log_energy, [0.1, 0.5, 0.9], axis=0)
    return Summary(np.log(mean) + top, scaled.std(0, ddof=1) / mean / len(scaled) ** 0.5, median, low, high)


def log_s_of(log_q: np.ndarray) -> np.ndarray:
    """log S of each draw, E over white inputs of |h_t|^2/n given W, from its log Q, (draws, T).

    For untied weights it has the law of S at each t: products of k fresh matrices are alike in either order.
    """
    return np.logaddexp.accumulate(log_q, axis=1)


def agreement(log_energy: np.ndarray, log_exact: np.ndarray) -> Agreement:
    """Compares the mean of draws, (draws, T), with exact values, (T,)."""
    found = summarise(log_energy)
    ratio = np.exp(found.log_mean - log_exact)
    error = found.error * ratio
    with np.errstate(divide="ignore", invalid="ignore"):
        score = np.where(error > 0, (ratio - 1) / error, 0.0)
    # Q_0 = 1 in every draw: no error, and no difference but rounding.
    agrees = (np.abs(score) < LARGEST_SCORE) & (error < LARGEST_ERROR)
    return Agreement(score, error, agrees | (np.abs(ratio - 1) < 1e-6))


def passage(log_growth: np.ndarray, level: float) -> Passage:
    """The first time at which each draw's energy, (draws, T) in logarithms, is above a level."""
    above = log_growth > np.log(level)
    first = np.sort(np.where(above.any(1), above.argmax(1), NEVER))
    times = tuple(float(first[math.ceil(q * len(first)) - 1]) for q in (0.1, 0.5, 0.9))
    return Passage(float(np.isfinite(first).mean()), times)
