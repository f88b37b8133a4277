"""What every layer on the diagonal system does with it: run, stream, measure. A mixin without parameters."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from scans.checks import Mask, check_call
from scans.choice import Direction
from scans.diagonal import diagonal_layer, diagonal_step
from scans.energy import diagonal_energy
from scans.sharded import time_axis
from scans.system import DiagonalSystem


class DiagonalState(NamedTuple):
    """Carried state: x as [Re | Im] of the modes, and whether the sequence has already had an input."""

    x: Float[Array, "*dirs B W"]
    started: Bool[Array, " B"]


class DiagonalRecurrence:
    """A layer that is a parametrisation of the diagonal system.

    The class that mixes this in owns the parameters and says `system()`, `config` (which knows the width),
    `direction`, `modes` (their number) and `heads` (how many groups of modes share one energy).
    """

    config: Any
    direction: Direction
    modes: int
    heads: int

    def system(self) -> DiagonalSystem:
        """The system that the present parameters describe."""
        raise TypeError(f"{type(self).__name__} must define system()")

    def initial_state(self, batch: int) -> DiagonalState:
        """The state before the first input: zero, not started."""
        self._require_causal("initial_state")
        dtype = self.system().log_mag.dtype
        return DiagonalState(jnp.zeros((batch, 2 * self.modes), dtype), jnp.zeros(batch, bool))

    def __call__(
        self,
        u: Float[Array, "B T D"],
        state: DiagonalState | None = None,
        *,
        mask: Mask | None = None,
        reset: Bool[Array, "B T"] | None = None,
        probe: tuple[int, ...] | None = None,
    ) -> tuple[Float[Array, "B T D"], DiagonalState, dict[str, Array]]:
        """The layer over whole sequences; see `scans.diagonal_layer` for mask and reset.

        Returns y, the state after the last valid step, and diagnostics: empty, or with `probe` (the times t at which
        energies over t are wanted) the reduced state energies of `state_energies`.
        Raises ValueError for a carried state in a layer that reads backward, and for a probe of anything but whole
        sequences from their start.
        """
        if state is not None:
            self._require_causal("a carried state")
        name = type(self).__name__.lower()
        flags = check_call(name, u, self.config.width, self.initial_state, state, mask, reset)
        if probe is not None and not (state is None and reset is None):
            raise ValueError("probe measures whole sequences from their start: leave out the carried state and reset")
        system = self.system()
        x, started = (None, None) if state is None else state
        y, x = diagonal_layer(
            system, u, x, mask=mask, reset=reset, started=started, reverse=self.direction is Direction.BACKWARD,
            chunk=self.config.chunk or None, axis=time_axis(),
        )  # fmt: skip
        started = _had_input(u.shape[:2], started, flags, reset)
        diagnostics = {} if probe is None else self.state_energies(u, flags, probe)
        return y, DiagonalState(x, started), diagnostics

    def step(
        self,
        u_t: Float[Array, "B D"],
        state: DiagonalState,
        *,
        reset: Bool[Array, " B"] | None = None,
        system: DiagonalSystem | None = None,
    ) -> tuple[Float[Array, "B D"], DiagonalState]:
        """One token. Equal to the same token inside a whole sequence. system: `system()`, if it was made before."""
        self._require_causal("step")
        system = self.system() if system is None else system
        y, x = diagonal_step(system, u_t, state.x, reset=reset, started=state.started)
        return y, DiagonalState(x, jnp.ones_like(state.started))

    def state_energies(
        self, u: Float[Array, "B T D"], mask: Bool[Array, "B T"] | None, times: tuple[int, ...]
    ) -> dict[str, Array]:
        """Energies of the hidden state per head (`heads` per direction), see `scans.energy.ModeEnergies`.

        `log_decay` is log|lambda| per head; -inf marks a stationary start, whose energy needs no time to build up.
        """
        system = self.system()
        ways = {Direction.FORWARD: (False,), Direction.BACKWARD: (True,), Direction.BIDIRECTIONAL: (False, True)}
        passes = [diagonal_energy(system, u, times, mask=mask, reverse=way) for way in ways[self.direction]]
        decay = system.log_mag if system.start_gain is None else jnp.full_like(system.log_mag, -jnp.inf)
        decay = decay.reshape(self.heads, -1)[:, 0]
        return {
            "energy": jnp.concatenate([self._by_head(p.energy) for p in passes]),
            "energy_t": jnp.stack([p.energy_t for p in passes]).sum(0),
            "coloured_t": jnp.stack([p.coloured_t for p in passes]).sum(0),
            "gain": jnp.concatenate([self._by_head(p.gain) for p in passes]),
            "gain_align": jnp.concatenate([self._by_head(p.gain_align) for p in passes]),
            "log_decay": jnp.tile(decay, len(passes)),
        }

    def _by_head(self, x: Float[Array, " N"]) -> Float[Array, " H"]:
        return x.reshape(self.heads, -1).sum(1)

    def _require_causal(self, what: str) -> None:
        if self.direction is not Direction.FORWARD:
            raise ValueError(f"{what} needs direction=forward: this layer is {self.direction}")


def _had_input(
    shape: tuple[int, ...],
    started: Bool[Array, " B"] | None,
    mask: Bool[Array, "B T"] | None,
    reset: Bool[Array, "B T"] | None,
) -> Bool[Array, " B"]:
    """Whether a valid input has been read since the last reset (or since the start of the stream)."""
    place = jnp.arange(1, shape[1] + 1)
    last_input = jnp.full(shape[0], shape[1]) if mask is None else jnp.where(mask, place, 0).max(1)
    last_reset = jnp.zeros(shape[0], place.dtype) if reset is None else jnp.where(reset, place, 0).max(1)
    carried = jnp.zeros(shape[0], bool) if started is None else started & (last_reset == 0)
    return carried | ((last_input > 0) & (last_input >= last_reset))
