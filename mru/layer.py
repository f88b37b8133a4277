"""The MRU as a flax module: it owns the parameters, `scans` runs them."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Bool, Float

from mru import init
from mru.config import MRUConfig, StateScan
from mru.parametrize import input_states, normalised
from scans import (
    Mask,
    ScaledMatrix,
    check_call,
    like_activations,
    matrix_scan,
    mean_at_times,
    project,
    scaled_matrix_scan,
    time_axis,
)


class MRUState(NamedTuple):
    """Carried product S (B, H, n, n); rescaled, it is e^log_scale S with log_scale (B, H), else log_scale is None."""

    s: Array
    log_scale: Array | None


class MRU(nnx.Module):
    """Matrix recurrent unit, per head:

        e_t = x_t W_in,   M_t = f(e_t),   S_t = S_{t-1} M_t,   S_0 = I,   Y_t = S_t W_down,   o_t = flatten(Y_t) W_out

    x (B, T, D) -> o (B, T, D); H heads of n x n; W_in (D, H z), W_down (H, n, c), W_out (D, D), c = D / (n H);
    flattened in the order head, row, column. f: see `mru.parametrize`. M and S are float32 at least, whatever x is.
    Each row of S is a linear recurrence with the same M_t: W_down mixes columns, W_out rows and heads.
    Source: mikayahlevi/mru-lm.
    """

    def __init__(self, config: MRUConfig, *, rngs: nnx.Rngs):
        self.config = config
        self.heads = config.heads
        self.W_in = nnx.Param(init.w_in(config))
        self.W_down = nnx.Param(init.w_down(rngs.params(), config))
        self.W_out = nnx.Param(init.w_out(rngs.params(), config))

    def initial_state(self, batch: int) -> MRUState:
        """The state before the first input: I, scale 0."""
        config, dtype = self.config, jnp.promote_types(self.W_in[...].dtype, jnp.float32)
        shape = (batch, config.heads, config.order, config.order)
        log_scale = jnp.zeros(shape[:2], dtype) if config.state_scan is StateScan.RESCALED else None
        return MRUState(jnp.broadcast_to(jnp.eye(config.order, dtype=dtype), shape), log_scale)

    def __call__(
        self,
        u: Float[Array, "B T D"],
        state: MRUState | None = None,
        *,
        mask: Mask | None = None,
        reset: Bool[Array, "B T"] | None = None,
        probe: tuple[int, ...] | None = None,
    ) -> tuple[Float[Array, "B T D"], MRUState, dict[str, Any]]:
        """The layer over whole sequences. Masked steps have M = I: they hold the state and give y = 0.

        Returns y, the state after the last valid step, and diagnostics: empty, or with `probe` those of `diagnose`.
        Raises ValueError for an input of another width or a carried state of another form.
        """
        mask = check_call("mru", u, self.config.width, self.initial_state, state, mask, reset)
        if mask is not None:
            u = jnp.where(mask[..., None], u, 0)
        elements = self.elements(u)
        m = input_states(elements, self.config.order, self.config.variant, self.config.det_eps)
        states, last = self._products(m, state, reset)
        read = jnp.einsum(
            "bthij,hjc->bthic", normalised(states.s, self.config.output_norm), self.W_down[...],
            precision=lax.Precision.HIGHEST,
        )  # fmt: skip
        y = like_activations(project(read.reshape(u.shape), self.W_out[...], u.dtype), u)
        if mask is not None:
            y = jnp.where(mask[..., None], y, 0)
        diagnostics = {} if probe is None else diagnose(elements, states, last, mask, probe)
        return y, last, diagnostics

    def step(
        self, u_t: Float[Array, "B D"], state: MRUState, *, reset: Bool[Array, " B"] | None = None
    ) -> tuple[Float[Array, "B D"], MRUState]:
        """One token. Equal to the same token inside a whole sequence."""
        y, state, _ = self(u_t[:, None], state, reset=None if reset is None else reset[:, None])
        return y[:, 0], state

    def elements(self, u: Float[Array, "B T D"]) -> Float[Array, "B T H z"]:
        """e_t per head; float32 at least, because the products are."""
        e = project(u, self.W_in[...])
        return e.reshape(*u.shape[:-1], self.config.heads, self.config.elements)

    def _products(
        self, m: Float[Array, "B T H n n"], state: MRUState | None, reset: Bool[Array, "B T"] | None
    ) -> tuple[MRUState, MRUState]:
        """All states (with a time axis behind the batch axis), and the last."""
        if self.config.state_scan is StateScan.PLAIN:
            s, s_last = matrix_scan(m, None if state is None else state.s, reset=reset, axis=time_axis())
            return MRUState(s, None), MRUState(s_last, None)
        start = None
        if state is not None:
            assert state.log_scale is not None, "check_call refuses it"
            start = ScaledMatrix(state.s, state.log_scale)
        states, last = scaled_matrix_scan(m, start, reset=reset, axis=time_axis())
        return MRUState(*states), MRUState(*last)


def diagnose(
    elements: Float[Array, "B T H z"],
    states: MRUState,
    last: MRUState,
    mask: Bool[Array, "B T"] | None,
    times: tuple[int, ...],
) -> dict[str, Any]:
    """Energies per head, and what tells how near the products are to their limits; no gradient flows.

    energy: mean of |S_t|_F^2 over valid steps (H,); energy_t: its sum over heads at the asked times (K,); gain: n, the
    energy of every orthogonal state and of I (H,); log_decay: -inf, no time is needed to get there.
    log: max_element, the largest |e|; max_log_norm, the largest log(|S_t|_F / sqrt(n)); log10_cond, the median over the
    heads of the first sequence of log10 of the condition number of its last state.
    """
    elements, states, last = lax.stop_gradient((elements, states, last))
    n = states.s.shape[-1]
    mask = jnp.ones(elements.shape[:2], bool) if mask is None else mask
    # By the largest entry, so that no square overflows before the state does.
    largest = jnp.max(jnp.abs(states.s), axis=(-1, -2))
    unit = states.s / jnp.where(largest > 0, largest, 1)[..., None, None]
    log_norm = jnp.log(largest) + 0.5 * jnp.log(jnp.sum(unit**2, axis=(-1, -2)) / n)
    square = jnp.sum(states.s**2, axis=(-1, -2))
    if states.log_scale is not None:
        log_norm = log_norm + states.log_scale
        square = n * jnp.exp(2 * log_norm)
    valid = mask[..., None]
    singular = jnp.linalg.svd(last.s[0], compute_uv=False)
    heads = square.shape[-1]
    return {
        "energy": jnp.where(valid, square, 0).sum((0, 1)) / mask.sum(),
        "energy_t": mean_at_times(square.sum(-1), mask, times, False),
        "gain": jnp.full(heads, n, square.dtype),
        "log_decay": jnp.full(heads, -jnp.inf, square.dtype),
        "log": {
            "max_element": jnp.max(jnp.abs(elements)),
            "max_log_norm": jnp.max(jnp.where(valid, log_norm, -jnp.inf)),
            "log10_cond": jnp.median(jnp.log10(singular[:, 0] / singular[:, -1])),
        },
    }
