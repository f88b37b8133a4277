"""Sizes and switches of the MRU."""

import math
from dataclasses import dataclass

from scans import Choice


class Variant(Choice):
    """How a token's elements become its matrix M; see `mru.parametrize` for the formulas and what each can represent.

    det M: free for IDENTITY, +1 or -1 for DETERMINANT, 1 for the others. Only the ORTHOGONAL ones bound the products.
    """

    IDENTITY = "identity"
    ORTHOGONAL_CAYLEY = "orthogonal_cayley"
    ORTHOGONAL_EXPM = "orthogonal_expm"
    LDU = "ldu"
    QR_CAYLEY = "qr_cayley"
    QR_EXPM = "qr_expm"
    DETERMINANT = "determinant"


class StateScan(Choice):
    """How products are carried. PLAIN: as they are (published). RESCALED: as e^l S with |S|_F = sqrt(n); the layer then
    sees normalised states only, and no length overflows.
    """

    PLAIN = "plain"
    RESCALED = "rescaled"


class OutputNorm(Choice):
    """What is done to a state before it is read. NONE (published). FROBENIUS: sqrt(n) S / |S|_F.

    ROW: each row over its Euclidean norm. Both leave the initial state I and every orthogonal state as they are.
    """

    NONE = "none"
    FROBENIUS = "frobenius"
    ROW = "row"


@dataclass(frozen=True)
class MRUConfig:
    """width: D. state_size: H n^2 numbers in `heads` heads of n x n; n H must divide D.

    det_eps: added to |det| in the variant `determinant`, which is singular at det(A + I) = 0.
    sublayers: residual sublayers of the whole model, by whose number the initial W_out is scaled down.
    """

    width: int
    state_size: int
    heads: int
    variant: Variant = Variant.LDU
    state_scan: StateScan = StateScan.PLAIN
    output_norm: OutputNorm = OutputNorm.NONE
    det_eps: float = 0.0
    sublayers: int = 1

    def __post_init__(self):
        for name, kind in (("variant", Variant), ("state_scan", StateScan), ("output_norm", OutputNorm)):
            object.__setattr__(self, name, kind(getattr(self, name)))
        for name in ("width", "state_size", "heads", "sublayers"):
            if getattr(self, name) < 1:
                raise ValueError(f"mru: {name}={getattr(self, name)} must be at least 1")
        if self.state_size % self.heads:
            raise ValueError(f"mru: state_size={self.state_size} is not divisible by heads={self.heads}")
        per_head = self.state_size // self.heads
        if self.order**2 != per_head:
            raise ValueError(
                f"mru: state_size/heads = {self.state_size}/{self.heads} = {per_head} is not a perfect square n^2 "
                f"(the nearest ones are {self.order**2} and {(self.order + 1) ** 2})"
            )
        if self.order < 2:
            raise ValueError(f"mru: the matrix order n={self.order} (n^2 = state_size/heads) must be at least 2")
        if self.width % (self.order * self.heads):
            raise ValueError(
                f"mru: width={self.width} is not divisible by n heads = {self.order} * {self.heads} = "
                f"{self.order * self.heads}"
            )
        if self.state_scan is StateScan.RESCALED and self.output_norm is OutputNorm.NONE:
            raise ValueError(
                "mru: state_scan=rescaled with output_norm=none would only move the overflow to the output: "
                "expected output_norm=frobenius or row"
            )
        if self.det_eps < 0 or (self.det_eps and self.variant is not Variant.DETERMINANT):
            raise ValueError(f"mru: det_eps={self.det_eps} must be 0, or positive with variant=determinant")

    @property
    def order(self) -> int:
        """n."""
        return math.isqrt(self.state_size // self.heads)

    @property
    def elements(self) -> int:
        """z, free numbers per head and token."""
        orthogonal = self.variant in (Variant.ORTHOGONAL_CAYLEY, Variant.ORTHOGONAL_EXPM)
        return self.order * (self.order - 1) // 2 if orthogonal else self.order**2

    @property
    def real_state_size(self) -> int:
        """Matrix entries in the carried state (a rescaled one has a scale per head beside them)."""
        return self.state_size
