"""Sizes and switches of the dense recurrence."""

import math
from dataclasses import dataclass

from scans import Choice


class Weights(Choice):
    """Whether W, B and C, and with them the state, are complex or real."""

    COMPLEX = "complex"
    REAL = "real"


@dataclass(frozen=True)
class DenseConfig:
    """width: D. state_size: n, the order of W; n complex coordinates are 2n real numbers.

    gain: g, entries of W start with variance g^2/n. At 1 (Glorot) the mean energy of the state leaves its linear growth
    at t ~ sqrt n and has no bound; `theory.signal_propagation.gain_for_horizon` is the g with which an input keeps its
    energy over a given time.
    """

    width: int
    state_size: int
    weights: Weights = Weights.COMPLEX
    gain: float = 1.0

    def __post_init__(self):
        object.__setattr__(self, "weights", Weights(self.weights))
        if self.width < 1 or self.state_size < 1:
            raise ValueError(f"dense: width={self.width} and state_size={self.state_size} must be at least 1")
        if not (self.gain > 0 and math.isfinite(self.gain)):
            raise ValueError(f"dense: gain={self.gain} must be positive and finite")

    @property
    def real_state_size(self) -> int:
        """Real numbers in the carried state."""
        return self.state_size * (2 if self.weights is Weights.COMPLEX else 1)
