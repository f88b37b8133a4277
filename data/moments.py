"""Mean and standard deviation of clips of sound, exact, one clip at a time.

For a stored sample v the waveform is w = v / 2^15, in [-1, 1). All statistics are of w, over clips that are filled up
with zeros to the length T of the task: of each position, or of all positions of all clips together.
"""

from collections.abc import Iterable

import numpy as np

from data.errors import DataError
from data.examples import Example

FULL_SCALE = 2**15


class Moments:
    """Sums of v and v^2 at each position, in whole numbers: no order of the clips changes them."""

    def __init__(self, length: int):
        self.clips = 0
        self._sum = np.zeros(length, np.int64)
        self._squares = np.zeros(length, np.int64)

    def add(self, values: np.ndarray) -> None:
        """Counts one clip, int16 (n,), n <= T."""
        wide = values.astype(np.int64)
        self._sum[: len(wide)] += wide
        self._squares[: len(wide)] += wide**2
        self.clips += 1

    def arrays(self) -> dict[str, np.ndarray]:
        """position_mean, position_std (T,) and mean, std (), float64, of w. std has N - 1 below; of one clip it is 0.

        Raises DataError if there was no clip.
        """
        if self.clips == 0:
            raise DataError("the training split has no clip: there is nothing to normalise with")
        count, total, squares = self.clips, self._sum.astype(object), self._squares.astype(object)
        everything = count * len(total)
        return {
            "position_mean": (total / count).astype(np.float64) / FULL_SCALE,
            "position_std": _std(count, total, squares),
            "mean": np.array(total.sum() / everything / FULL_SCALE),
            "std": _std(everything, total.sum(), squares.sum()),
        }


def _std(count: int, total, squares) -> np.ndarray:
    """sqrt((N sum v^2 - (sum v)^2) / (N (N - 1))) / 2^15; Python's integers, which no square overflows."""
    spread = (count * squares - total**2) / (count * max(count - 1, 1))
    return np.sqrt(np.asarray(spread, np.float64)) / FULL_SCALE


def statistics(clips: Iterable[Example], length: int) -> dict[str, np.ndarray]:
    """What `Moments.arrays` says of some clips."""
    moments = Moments(length)
    for clip in clips:
        moments.add(clip.values[:, 0])
    return moments.arrays()


def global_normalisation(arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(scale, shift), float32 (1,): v scale + shift = (w - mean) / std. Raises DataError if all samples are equal."""
    mean, std = arrays["mean"], arrays["std"]
    if not std > 0:
        raise DataError("all samples of the training split are equal: their standard deviation is 0")
    return _affine(np.atleast_1d(mean), np.atleast_1d(std))


def position_normalisation(arrays: dict[str, np.ndarray], epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """(scale, shift), float32 (T, 1): v scale + shift = (w - position_mean) / (position_std + epsilon)."""
    return _affine(arrays["position_mean"][:, None], arrays["position_std"][:, None] + epsilon)


def _affine(mean: np.ndarray, std: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return (1 / (FULL_SCALE * std)).astype(np.float32), (-mean / std).astype(np.float32)
