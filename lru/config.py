"""Sizes and switches of the LRU."""

import math
from dataclasses import dataclass

from scans import Choice, Direction, check_chunk


class Gamma(Choice):
    """The gain on the input of each mode.

    LEARNED: a free parameter exp(gamma_log) that starts at sqrt(1 - |lambda|^2) (published). RECOMPUTED: that value
    from the current lambda at every step (the baseline of arXiv 2407.07239). OFF: 1.
    """

    LEARNED = "learned"
    RECOMPUTED = "recomputed"
    OFF = "off"


@dataclass(frozen=True)
class LRUConfig:
    """width: D. state_size: N complex modes, 2N real numbers. r_min, r_max: ring of |lambda| at the start.

    max_phase: phases start uniform in (0, max_phase), radians. held: steps of training for which one input stands, see
    `scans.held_system`; 1 except to score at a lower rate. chunk: see `scans.check_chunk`.
    """

    width: int
    state_size: int
    direction: Direction = Direction.FORWARD
    gamma: Gamma = Gamma.LEARNED
    r_min: float = 0.0
    r_max: float = 0.99
    max_phase: float = 2 * math.pi
    held: int = 1
    chunk: int = 0

    def __post_init__(self):
        object.__setattr__(self, "direction", Direction(self.direction))
        object.__setattr__(self, "gamma", Gamma(self.gamma))
        if self.width < 1 or self.state_size < 1:
            raise ValueError(f"lru: width={self.width} and state_size={self.state_size} must be at least 1")
        if not 0 <= self.r_min < self.r_max <= 1:
            raise ValueError(f"lru: 0 <= r_min < r_max <= 1 is needed, got r_min={self.r_min}, r_max={self.r_max}")
        if not 0 < self.max_phase <= 2 * math.pi + 1e-6:
            raise ValueError(f"lru: 0 < max_phase <= 2 pi is needed, got {self.max_phase}")
        if self.held < 1:
            raise ValueError(f"lru: held={self.held} must be at least 1")
        check_chunk("lru", self.chunk)

    @property
    def real_state_size(self) -> int:
        """Real numbers in the carried state, per direction."""
        return 2 * self.state_size
