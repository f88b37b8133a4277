"""Sizes of the MLP layer."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MLPConfig:
    """width: D. expansion: hidden units per component of the input.

    sublayers: residual sublayers of the whole model; the output projection starts smaller by its square root.
    """

    width: int
    expansion: int = 4
    sublayers: int = 1

    def __post_init__(self):
        if min(self.width, self.expansion, self.sublayers) < 1:
            raise ValueError(
                f"mlp: width={self.width}, expansion={self.expansion} and sublayers={self.sublayers} must be at least 1"
            )

    @property
    def real_state_size(self) -> int:
        """Nothing is carried from one token to the next."""
        return 0
