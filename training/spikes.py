"""How smoothly a run trained: loss spikes and bursts of the gradient norm, as results and not as accidents.

Both compare an update with the median m of the HISTORY updates before it, MAD = median |x - m|:

    spike   loss > m + max(0.5 nats, 6 x 1.4826 MAD)        1.4826 MAD is the standard deviation of normal values
    peak    max over updates of (gradient norm / m)

The first HISTORY updates have too little before them and are never judged.
"""

from collections.abc import Sequence

import numpy as np

HISTORY = 100
LEAST_RISE = 0.5
DEVIATIONS = 6 * 1.4826


def spike_updates(losses: Sequence[float]) -> list[int]:
    """The updates, counted from 1, whose train loss is a spike; losses (n,) in nats, finite, one of every update."""
    judged, before = _judged(losses)
    median = np.median(before, axis=1)
    deviation = np.median(np.abs(before - median[:, None]), axis=1)
    spikes = judged - median > np.maximum(LEAST_RISE, DEVIATIONS * deviation)
    return (np.flatnonzero(spikes) + HISTORY + 1).tolist()


def spikes_per_1000(losses: Sequence[float]) -> float | None:
    """Spikes per 1,000 updates, those that are never judged included; None if all are such."""
    return 1000 * len(spike_updates(losses)) / len(losses) if len(losses) > HISTORY else None


def gradient_peak(norms: Sequence[float]) -> float | None:
    """The largest gradient norm relative to the running median; None if no update can be judged, or a norm
    overflowed."""
    judged, before = _judged(norms)
    peak = float((judged / np.median(before, axis=1)).max(initial=-np.inf))
    return peak if np.isfinite(peak) else None


def _judged(values: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Updates HISTORY + 1 ... n, (m,), and the values before each, (m, HISTORY)."""
    every = np.asarray(values, np.float64)
    if len(every) <= HISTORY:
        return np.empty(0), np.empty((0, HISTORY))
    return every[HISTORY:], np.lib.stride_tricks.sliding_window_view(every[:-1], HISTORY)
