"""Sizes and switches of softmax and linear attention."""

from dataclasses import dataclass

from scans import Choice


class Position(Choice):
    """What tells attention where a token stands; positions count the valid tokens of a sequence from 0.

    ROPE: component pairs of q and k turned by position * theta (arXiv 2104.09864). NONE: nothing but the causal mask.
    XPOS_512: xPos (arXiv 2212.10554) as a published baseline has it, with positions divided by 512 before the rotation.
    MRU: blocks of q and k turned by prefix products of orthogonal matrices that are made from the inputs.
    """

    ROPE = "rope"
    NONE = "none"
    XPOS_512 = "xpos_512"
    MRU = "mru"


class MRUVariant(Choice):
    """The matrices of Position.MRU, by the names that the MRU layer gives them.

    Only orthogonal ones can be undone by a transpose, which is what lets queries and keys be turned one by one.
    """

    ORTHOGONAL_CAYLEY = "orthogonal_cayley"
    ORTHOGONAL_EXPM = "orthogonal_expm"


class MRUStart(Choice):
    """What Position.MRU is before training, when e = u W_turn = 0.

    IDENTITY: no positions, M = f(e). ROPE: RoPE, M = R f(e) with R its turn from one position to the next.
    """

    IDENTITY = "identity"
    ROPE = "rope"


@dataclass(frozen=True)
class AttentionConfig:
    """width: D. heads: H, of head size D / H. max_length: tokens that the key/value cache holds for one sequence.

    mru_order, mru_variant, mru_start: the turning matrices of position=mru (without effect for the others).
    sublayers: residual sublayers of the whole model; the output projection starts smaller by its square root.
    """

    width: int
    heads: int
    max_length: int = 4096
    position: Position = Position.ROPE
    mru_order: int = 8
    mru_variant: MRUVariant = MRUVariant.ORTHOGONAL_CAYLEY
    mru_start: MRUStart = MRUStart.IDENTITY
    sublayers: int = 1

    def __post_init__(self):
        object.__setattr__(self, "position", Position(self.position))
        object.__setattr__(self, "mru_variant", MRUVariant(self.mru_variant))
        object.__setattr__(self, "mru_start", MRUStart(self.mru_start))
        _check_heads("attention", self.width, self.heads, self.sublayers, self.position)
        if self.max_length < 1:
            raise ValueError(f"attention: max_length={self.max_length} must be at least 1")
        if self.position is Position.MRU:
            if self.mru_order < 2:
                raise ValueError(f"attention: mru_order={self.mru_order}: the order of a rotation is at least 2")
            if self.head_size % self.mru_order:
                raise ValueError(
                    f"attention: head size width/heads = {self.width}/{self.heads} = {self.head_size} is not divisible "
                    f"by mru_order={self.mru_order}"
                )
            if self.mru_start is MRUStart.ROPE and self.mru_order % 2:
                raise ValueError(f"attention: mru_start=rope needs an even mru_order, got {self.mru_order}")

    @property
    def head_size(self) -> int:
        """d, components of a query, key or value."""
        return self.width // self.heads

    @property
    def real_state_size(self) -> int:
        """Real numbers in the carried state: keys and values of max_length tokens, and the turn reached so far."""
        turn = self.width * self.mru_order if self.position is Position.MRU else 0
        return 2 * self.max_length * self.width + turn


@dataclass(frozen=True)
class LinearAttentionConfig:
    """width: D. heads: H, of head size D / H. position: rope or none. sublayers: as in `AttentionConfig`."""

    width: int
    heads: int
    position: Position = Position.ROPE
    sublayers: int = 1

    def __post_init__(self):
        object.__setattr__(self, "position", Position(self.position))
        if self.position not in (Position.ROPE, Position.NONE):
            raise ValueError(f"linear_attention: position={self.position}: expected one of rope, none")
        _check_heads("linear_attention", self.width, self.heads, self.sublayers, self.position)

    @property
    def head_size(self) -> int:
        """d, components of a query, key or value."""
        return self.width // self.heads

    @property
    def real_state_size(self) -> int:
        """Real numbers in the carried state: per head, a d x d matrix and the d sums of its denominator."""
        return self.heads * (self.head_size**2 + self.head_size)


def _check_heads(layer: str, width: int, heads: int, sublayers: int, position: Position) -> None:
    if min(width, heads, sublayers) < 1:
        raise ValueError(f"{layer}: width={width}, heads={heads} and sublayers={sublayers} must be at least 1")
    if width % heads:
        raise ValueError(f"{layer}: width={width} is not divisible by heads={heads}")
    if position in (Position.ROPE, Position.XPOS_512) and (width // heads) % 2:
        raise ValueError(
            f"{layer}: position={position} turns pairs: the head size width/heads = {width}/{heads} = {width // heads} "
            f"must be even"
        )
