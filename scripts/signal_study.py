"""What scripts.signal_propagation draws: log energies of single draws of W, by width and ensemble."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from theory.laws import Ensemble
from theory.monte_carlo import Plan, Progress, sample

FAIR, FAR = 2.0, 8.0
"""c = t/sqrt n: where means are compared with the exact values, and how far typical draws are followed."""

REFERENCE, FEWEST, FAR_SHARE = 256, 16, 0.3
"""Draws are counted at the reference width; the long runs take this share of them."""

Draws = Mapping[tuple[int, Ensemble], np.ndarray]
"""(width, ensemble) -> log Q, (draws, lags)."""


class Study(NamedTuple):
    """fair: k <= 2 sqrt n. far: one width, k <= 8 sqrt n. tied, untied: one W, and a fresh one each step,
    for the same times at the middle width."""

    widths: tuple[int, ...]
    fair: Draws
    far: Draws
    tied: np.ndarray
    untied: np.ndarray

    @property
    def far_width(self) -> int:
        return self.widths[-1]

    @property
    def untied_width(self) -> int:
        return self.widths[len(self.widths) // 2]


def draw(widths: tuple[int, ...], draws: int, folder: Path, progress: Progress) -> Study:
    """Draws what is not in the folder yet.

    Raises:
      ValueError: a damaged file, or one of other draws.
    """

    def of(n: int, c: float, share: float, ensemble: Ensemble, tied: bool = True) -> np.ndarray:
        longest = round(c * math.sqrt(n))
        plan = Plan(n, longest, max(FEWEST, round(draws * share * REFERENCE / n)), ensemble, tied)
        name = f"{ensemble}_{n}_{longest}{'' if tied else '_untied'}.npz"
        return sample(plan, folder / name, progress)

    far, middle = widths[-1], widths[len(widths) // 2]
    return Study(
        widths=widths,
        fair={(n, ensemble): of(n, FAIR, 1.0, ensemble) for n in widths for ensemble in Ensemble},
        far={(far, ensemble): of(far, FAR, FAR_SHARE, ensemble) for ensemble in Ensemble},
        tied=of(middle, FAR, FAR_SHARE, Ensemble.COMPLEX),
        untied=of(middle, FAR, FAR_SHARE, Ensemble.COMPLEX, tied=False),
    )
