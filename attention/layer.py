"""Softmax and linear attention as flax modules."""

from typing import assert_never

import jax.numpy as jnp
from flax import nnx
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from attention import init
from attention.config import AttentionConfig, LinearAttentionConfig, MRUStart, Position
from attention.linear import Features, LinearState, accumulate, phi
from attention.position import mru_matrices, rope, turn_blocks, turned_by_rope, xpos_512
from attention.softmax import KeyValueCache, attend, remember
from attention.timeline import Timeline
from scans import Mask, check_call, like_activations, matrix_scan, project


class Attention(nnx.Module):
    """Causal softmax attention, per head of d = D / H components:

        q_t, k_t, v_t = u_t W_q, u_t W_k, u_t W_v,   o_t = sum_s softmax_s(c(q_t, t) . c(k_s, s) / sqrt(d)) v_s,
        y_t = [o^(1)_t; ...; o^(H)_t] W_out

    u (B, T, D) -> y (B, T, D). The sum runs over the valid s <= t of the same sequence. The position code c sees the
    number of valid tokens before s, so padding changes nothing (`attention.config.Position`).

    With position=mru, blocks of n components are turned by the products S_t = M_1 ... M_t of orthogonal matrices
    M_t = f(u_t W_turn):  (S_s k_s) . (S_t q_t) = k_s^T M_(s+1) ... M_t q_t, a RoPE that depends on the inputs and does
    not commute.

    Carried state: `KeyValueCache` for max_length tokens of a sequence, a fixed size, so that one compiled step serves
    all of them. A longer call is refused. If a carried state outgrows it, ValueError where its length is known; inside
    jit, where it is not, y is nan from there to the next reset.
    Source: arXiv 1706.03762, 2104.09864.
    """

    def __init__(self, config: AttentionConfig, *, rngs: nnx.Rngs):
        self.config = config
        width, order = config.width, config.mru_order
        self.W_q = nnx.Param(init.projection(rngs.params(), width))
        self.W_k = nnx.Param(init.projection(rngs.params(), width))
        self.W_v = nnx.Param(init.projection(rngs.params(), width))
        self.W_out = nnx.Param(init.projection(rngs.params(), width, config.sublayers))
        if config.position is Position.MRU:
            self.W_turn = nnx.Param(jnp.zeros((width, width * (order - 1) // 2)))

    def initial_state(self, batch: int) -> KeyValueCache:
        """The state before the first token: nothing is cached."""
        config, dtype = self.config, jnp.promote_types(self.W_k[...].dtype, jnp.float32)
        shape = (batch, config.max_length, config.heads, config.head_size)
        turn = None
        if config.position is Position.MRU:
            blocks, order = config.head_size // config.mru_order, config.mru_order
            turn = jnp.broadcast_to(jnp.eye(order, dtype=dtype), (batch, config.heads, blocks, order, order))
        # Two arrays and not one twice: the state may be donated to a jitted step.
        return KeyValueCache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype), jnp.zeros(batch, jnp.int32), turn)

    def __call__(
        self,
        u: Float[Array, "B T D"],
        state: KeyValueCache | None = None,
        *,
        mask: Mask | None = None,
        reset: Bool[Array, "B T"] | None = None,
        probe: tuple[int, ...] | None = None,
    ) -> tuple[Float[Array, "B T D"], KeyValueCache, dict[str, Array]]:
        """y, the cache after the last valid step, and no diagnostics: there is no state whose energy could be measured.

        Raises ValueError, with the numbers, for T = 0, for more tokens than max_length, for a state of another shape.
        """
        config = self.config
        mask = check_call("attention", u, config.width, self.initial_state, state, mask, reset)
        batch, steps, _ = u.shape
        if steps > config.max_length:
            raise ValueError(f"attention: T={steps} steps, but 1 to max_length={config.max_length} fit in the cache")
        u = _valid_inputs(u, mask)
        timeline = Timeline.of((batch, steps), None if state is None else state.length, mask, reset)
        q, k, v = (_heads(u, w[...], config.heads) for w in (self.W_q, self.W_k, self.W_v))
        q, k, turn = self._placed(q, k, u, timeline, None if state is None else state.turn, reset)
        out = attend(q, k, v, timeline, state)
        if state is not None:
            fits = (timeline.position < config.max_length) | ~timeline.valid
            self._refuse_overflow(timeline, fits)
            out = jnp.where(fits[..., None, None], out, jnp.nan)
        y = _projected(out, self.W_out[...], u, mask)
        cache = self.initial_state(batch) if state is None else state
        return y, remember(cache, k, v, timeline)._replace(turn=turn), {}

    def step(
        self, u_t: Float[Array, "B D"], state: KeyValueCache, *, reset: Bool[Array, " B"] | None = None
    ) -> tuple[Float[Array, "B D"], KeyValueCache]:
        """One token. Equal to the same token inside a whole sequence."""
        y, state, _ = self(u_t[:, None], state, reset=None if reset is None else reset[:, None])
        return y[:, 0], state

    def _placed(
        self, q: Array, k: Array, u: Array, timeline: Timeline, turn: Array | None, reset: Array | None
    ) -> tuple[Array, Array, Array | None]:
        """Queries and keys under the position code, and the turn after the last step."""
        match self.config.position:
            case Position.NONE:
                return q, k, None
            case Position.ROPE:
                return rope(q, timeline.position), rope(k, timeline.position), None
            case Position.XPOS_512:
                return *xpos_512(q, k, timeline.position), None
            case Position.MRU:
                m = self._matrices(u)
                m = jnp.where(timeline.valid[..., None, None, None, None], m, jnp.eye(m.shape[-1], dtype=m.dtype))
                s, turn = matrix_scan(m, turn, reset=reset)
                return turn_blocks(s, q), turn_blocks(s, k), turn
            case unreachable:
                assert_never(unreachable)

    def _matrices(self, u: Float[Array, "B T D"]) -> Float[Array, "B T H blocks n n"]:
        """M_t, by which the frame turns from one token to the next."""
        config, order = self.config, self.config.mru_order
        e = project(u, self.W_turn[...])
        e = e.reshape(*u.shape[:2], config.heads, config.head_size // order, order * (order - 1) // 2)
        m = mru_matrices(e, order, config.mru_variant)
        match config.mru_start:
            case MRUStart.IDENTITY:
                return m
            case MRUStart.ROPE:
                return turned_by_rope(m)
            case unreachable:
                assert_never(unreachable)

    def _refuse_overflow(self, timeline: Timeline, fits: Bool[Array, "B T"]) -> None:
        if not isinstance(fits, Tracer) and not fits.all():
            needed = int(jnp.where(timeline.valid, timeline.position, 0).max()) + 1
            raise ValueError(
                f"attention: a sequence of {needed} tokens does not fit in max_length={self.config.max_length}"
            )


class LinearAttention(nnx.Module):
    """Linear attention, per head of d = D / H components, phi(x) = elu(x) + 1:

        q_t, k_t, v_t = u_t W_q, u_t W_k, u_t W_v,   R_t = R_{t-1} + phi(k_t) v_t^T,   z_t = z_{t-1} + phi(k_t),
        o_t = R_t^T phi(q_t) / (z_t . phi(q_t) + 1e-6),   y_t = [o^(1)_t; ...; o^(H)_t] W_out

    u (B, T, D) -> y (B, T, D). With position=rope, phi(q) and phi(k) are turned in the numerator only.
    Carried state: `LinearState`, R and z with the number of tokens in them; any length of sequence.
    Source: arXiv 2006.16236; the turned numerator: arXiv 2104.09864, section 3.3.
    """

    def __init__(self, config: LinearAttentionConfig, *, rngs: nnx.Rngs):
        self.config = config
        self.W_q = nnx.Param(init.projection(rngs.params(), config.width))
        self.W_k = nnx.Param(init.projection(rngs.params(), config.width))
        self.W_v = nnx.Param(init.projection(rngs.params(), config.width))
        self.W_out = nnx.Param(init.projection(rngs.params(), config.width, config.sublayers))

    def initial_state(self, batch: int) -> LinearState:
        """The state before the first token: empty sums."""
        config, dtype = self.config, jnp.promote_types(self.W_k[...].dtype, jnp.float32)
        matrix = jnp.zeros((batch, config.heads, config.head_size, config.head_size), dtype)
        return LinearState(matrix, matrix[..., 0], jnp.zeros(batch, jnp.int32))

    def __call__(
        self,
        u: Float[Array, "B T D"],
        state: LinearState | None = None,
        *,
        mask: Mask | None = None,
        reset: Bool[Array, "B T"] | None = None,
        probe: tuple[int, ...] | None = None,
    ) -> tuple[Float[Array, "B T D"], LinearState, dict[str, Array]]:
        """y, the sums after the last valid step, and no diagnostics. Raises ValueError for T = 0."""
        mask = check_call("linear_attention", u, self.config.width, self.initial_state, state, mask, reset)
        batch, steps, _ = u.shape
        state = self.initial_state(batch) if state is None else state
        u = _valid_inputs(u, mask)
        timeline = Timeline.of((batch, steps), state.length, mask, reset)
        q, k, v = (_heads(u, w[...], self.config.heads) for w in (self.W_q, self.W_k, self.W_v))
        q, k = phi(q), phi(k)
        turned = (rope(q, timeline.position), rope(k, timeline.position)) if self._turns else (q, k)
        out, state = accumulate(Features(q, k, *turned, v), timeline, state)
        return _projected(out, self.W_out[...], u, mask), state, {}

    def step(
        self, u_t: Float[Array, "B D"], state: LinearState, *, reset: Bool[Array, " B"] | None = None
    ) -> tuple[Float[Array, "B D"], LinearState]:
        """One token. Equal to the same token inside a whole sequence."""
        y, state, _ = self(u_t[:, None], state, reset=None if reset is None else reset[:, None])
        return y[:, 0], state

    @property
    def _turns(self) -> bool:
        return self.config.position is Position.ROPE


def _valid_inputs(u: Float[Array, "B T D"], mask: Bool[Array, "B T"] | None) -> Float[Array, "B T D"]:
    """0 at masked steps, whatever stands there."""
    return u if mask is None else jnp.where(mask[..., None], u, 0)


def _heads(u: Float[Array, "B T D"], w: Float[Array, "D D"], heads: int) -> Float[Array, "B T H d"]:
    return project(u, w).reshape(*u.shape[:2], heads, -1)


def _projected(
    out: Float[Array, "B T H d"], w: Float[Array, "D D"], u: Float[Array, "B T D"], mask: Bool[Array, "B T"] | None
) -> Float[Array, "B T D"]:
    return _valid_inputs(like_activations(project(out.reshape(u.shape), w, u.dtype), u), mask)
