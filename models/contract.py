"""What the model asks of every layer, and what the contract tests hold every registered layer to."""

from typing import Any, Protocol

from jaxtyping import Array, Bool, Float

from scans import Mask

State = Any


class LayerConfig(Protocol):
    """Sizes and switches of a layer. Building one validates it."""

    @property
    def real_state_size(self) -> int:
        """Real numbers in the carried state, per direction: the size by which layers are compared."""
        ...


class ElementsConfig(LayerConfig, Protocol):
    """Config of a layer with a parameter of `models.roles.Role.ELEMENTS`."""

    @property
    def order(self) -> int:
        """n of the n x n matrices that the elements make."""
        ...


class Layer(Protocol):
    """u (B, T, D) -> y (B, T, D), whole or in pieces.

    Full, split and stepwise use give the same values. A mask (flags, or lengths) means that masked steps hold the
    state and give y = 0; no mask means that every step is input. `reset` marks the first element of each packed
    sequence.
    """

    def __call__(
        self,
        u: Float[Array, "B T D"],
        state: State | None = None,
        *,
        mask: Mask | None = None,
        reset: Bool[Array, "B T"] | None = None,
        probe: tuple[int, ...] | None = None,
    ) -> tuple[Float[Array, "B T D"], State, dict[str, Any]]:
        """y, the state after the last valid step, and diagnostics.

        Diagnostics are empty unless `probe` names times t at which energies are wanted. They are reduced values per
        head h and direction: energy, gain, gain_align, log_decay (H,), energy_t and coloured_t (len(probe),). A layer
        whose energy does not split leaves out gain_align, and says by white_t (len(probe),) what energy_t would be
        under white unit inputs, or leaves out coloured_t as well; one without a state leaves out all. `log` holds
        further scalars by name, which are written as they are.
        """
        ...

    def initial_state(self, batch: int) -> State:
        """The state before the first input. Raises ValueError if the layer reads backward."""
        ...

    def step(
        self, u_t: Float[Array, "B D"], state: State, *, reset: Bool[Array, " B"] | None = None
    ) -> tuple[Float[Array, "B D"], State]:
        """One token. Raises ValueError if the layer reads backward."""
        ...
