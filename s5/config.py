"""Sizes and switches of S5."""

from dataclasses import dataclass

from scans import Choice, Direction, check_chunk


class Discretization(Choice):
    """Continuous system -> recurrence. ZOH: exact for inputs held over a step. BILINEAR: Tustin's rule."""

    ZOH = "zoh"
    BILINEAR = "bilinear"


class CInit(Choice):
    """Law of C at the start; see `s5.init`."""

    LECUN_NORMAL = "lecun_normal"
    TRUNC_STANDARD_NORMAL = "trunc_standard_normal"
    COMPLEX_NORMAL = "complex_normal"


@dataclass(frozen=True)
class S5Config:
    """width: D. state_size: N, the full state, in `blocks` blocks (J) of N / J.

    conj_sym: of every conjugate pair of modes one is stored, N / 2 complex modes = N real numbers; otherwise N complex.
    clip_eigs: the real part of Lambda is kept below -1e-4. dt_min, dt_max: range of the step sizes at the start.
    step_rescale: factor on all step sizes. It is no parameter: a layer built with r = 2 reads inputs of half the rate
    with the parameters learned at the full one. chunk: see `scans.check_chunk`.
    """

    width: int
    state_size: int
    blocks: int = 1
    direction: Direction = Direction.FORWARD
    discretization: Discretization = Discretization.ZOH
    conj_sym: bool = True
    clip_eigs: bool = False
    C_init: CInit = CInit.LECUN_NORMAL
    dt_min: float = 1e-3
    dt_max: float = 0.1
    step_rescale: float = 1.0
    chunk: int = 0

    def __post_init__(self):
        object.__setattr__(self, "direction", Direction(self.direction))
        object.__setattr__(self, "discretization", Discretization(self.discretization))
        object.__setattr__(self, "C_init", CInit(self.C_init))
        if min(self.width, self.state_size, self.blocks) < 1:
            sizes = f"width={self.width}, state_size={self.state_size}, blocks={self.blocks}"
            raise ValueError(f"s5: sizes must be at least 1, got {sizes}")
        if self.state_size % self.blocks:
            raise ValueError(f"s5: state_size={self.state_size} is not divisible by blocks={self.blocks}")
        if self.conj_sym and self.block_size % 2:
            raise ValueError(
                f"s5: with conj_sym a block must hold whole pairs, got state_size/blocks = "
                f"{self.state_size}/{self.blocks} = {self.block_size}"
            )
        if not 0 < self.dt_min < self.dt_max:
            raise ValueError(f"s5: 0 < dt_min < dt_max is needed, got dt_min={self.dt_min}, dt_max={self.dt_max}")
        if not 0 < self.step_rescale < 1e6:
            raise ValueError(f"s5: 0 < step_rescale < 1e6 is needed, got {self.step_rescale}")
        check_chunk("s5", self.chunk)

    @property
    def block_size(self) -> int:
        """N / J."""
        return self.state_size // self.blocks

    @property
    def modes(self) -> int:
        """Stored complex modes."""
        return self.state_size // 2 if self.conj_sym else self.state_size

    @property
    def real_state_size(self) -> int:
        """Real numbers in the carried state, per direction."""
        return 2 * self.modes
