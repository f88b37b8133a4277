"""Sizes and switches of RotRNN."""

import math
from dataclasses import dataclass

from scans import Choice, Direction, check_chunk


class Start(Choice):
    """The first input of a sequence. ZERO: like every other (E|x_t|^2 = 1 - gamma^(2t) under white inputs).

    STATIONARY: scaled by 1/|B| instead of xi, so that E|x_t|^2 = 1 at every t.
    """

    ZERO = "zero"
    STATIONARY = "stationary"


class Normalise(Choice):
    """The input gain. XI: sqrt((1 - gamma^2) / |B|^2), recomputed from the current parameters (published).

    FOLDED: B starts at the xi-scaled values and is then free. INIT: the xi of the first step, held. OFF: 1.
    """

    XI = "xi"
    FOLDED = "folded"
    INIT = "init"
    OFF = "off"


class Orthogonal(Choice):
    """The basis of the rotations. EXPM: P = expm(M - M^T), learned. IDENTITY: P = I, no parameter."""

    EXPM = "expm"
    IDENTITY = "identity"


class Init(Choice):
    """Standard deviations of M, B and C at the start; see `rotrnn.init`."""

    TRAINING = "training"
    CLEAN = "clean"
    SIMPLE = "simple"
    APPENDIX = "appendix"


class GammaInit(Choice):
    """Law of gamma at the start: log(-log gamma) uniform (LOG_UNIFORM), gamma^2 uniform (RING), or as `Init` says."""

    BY_INIT = "by_init"
    LOG_UNIFORM = "log_uniform"
    RING = "ring"


class ThetaStorage(Choice):
    """Whether the parameter is theta itself or its logarithm (theta_log, as the authors' searches stored it)."""

    RAW = "raw"
    LOG = "log"


class OutputInit(Choice):
    """Standard deviation of C: as `Init` says, or 1/sqrt(H) (UNIT_OUTPUT: output variance 1 in the steady state)."""

    BY_INIT = "by_init"
    UNIT_OUTPUT = "unit_output"


@dataclass(frozen=True)
class RotRNNConfig:
    """width: D. state_size: N real numbers in `heads` heads of n = N / heads (even). gamma_min, gamma_max: range of the
    decays at the start. theta_max: angles start uniform in (0, theta_max), radians. held: steps of training for which
    one input stands, see `scans.held_system`; 1 except to score at a lower rate. chunk: see `scans.check_chunk`.
    """

    width: int
    state_size: int
    heads: int
    direction: Direction = Direction.FORWARD
    start: Start = Start.ZERO
    normalise: Normalise = Normalise.XI
    orthogonal: Orthogonal = Orthogonal.EXPM
    init: Init = Init.TRAINING
    gamma_init: GammaInit = GammaInit.BY_INIT
    gamma_min: float = 0.9
    gamma_max: float = 0.999
    theta_max: float = 2 * math.pi
    theta_storage: ThetaStorage = ThetaStorage.RAW
    output_init: OutputInit = OutputInit.BY_INIT
    held: int = 1
    chunk: int = 0

    def __post_init__(self):
        for name, kind in _CHOICES.items():
            object.__setattr__(self, name, kind(getattr(self, name)))
        if self.gamma_init is GammaInit.BY_INIT:
            ring = self.init is Init.APPENDIX
            object.__setattr__(self, "gamma_init", GammaInit.RING if ring else GammaInit.LOG_UNIFORM)
        if min(self.width, self.state_size, self.heads) < 1:
            sizes = f"width={self.width}, state_size={self.state_size}, heads={self.heads}"
            raise ValueError(f"rotrnn: sizes must be at least 1, got {sizes}")
        if self.state_size % self.heads:
            raise ValueError(f"rotrnn: state_size={self.state_size} is not divisible by heads={self.heads}")
        if self.head_size % 2:
            raise ValueError(
                f"rotrnn: state per head must be even (pairs are rotated), got state_size/heads = "
                f"{self.state_size}/{self.heads} = {self.head_size}"
            )
        lowest_ok = self.gamma_min >= 0 if self.gamma_init is GammaInit.RING else self.gamma_min > 0
        if not (lowest_ok and self.gamma_min <= self.gamma_max and 0 < self.gamma_max < 1):
            bound = "0 <= gamma_min" if self.gamma_init is GammaInit.RING else "0 < gamma_min"
            raise ValueError(
                f"rotrnn: {bound} <= gamma_max, 0 < gamma_max < 1 is needed with gamma_init={self.gamma_init}, "
                f"got gamma_min={self.gamma_min}, gamma_max={self.gamma_max}"
            )
        if not 0 < self.theta_max <= 2 * math.pi + 1e-6:
            raise ValueError(f"rotrnn: 0 < theta_max <= 2 pi is needed, got {self.theta_max}")
        if self.held < 1 or (self.held > 1 and self.start is Start.STATIONARY):
            raise ValueError(
                f"rotrnn: held >= 1 is needed, and 1 with start=stationary, got held={self.held}, start={self.start}"
            )
        check_chunk("rotrnn", self.chunk)

    @property
    def head_size(self) -> int:
        """n, real numbers per head."""
        return self.state_size // self.heads

    @property
    def real_state_size(self) -> int:
        """Real numbers in the carried state, per direction."""
        return self.state_size


_CHOICES: dict[str, type[Choice]] = {
    "direction": Direction,
    "start": Start,
    "normalise": Normalise,
    "orthogonal": Orthogonal,
    "init": Init,
    "gamma_init": GammaInit,
    "theta_storage": ThetaStorage,
    "output_init": OutputInit,
}
