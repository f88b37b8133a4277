"""Level 2: a time-invariant complex diagonal system as a whole layer."""

import math
from typing import Any, NamedTuple, assert_never

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Shaped

from scans.checks import Mask, check_marks, step_mask
from scans.choice import ScanMethod, resolve
from scans.chunked import LONGEST, chunked_layer
from scans.linear import linear_scan
from scans.projection import is_low, like_activations, project
from scans.sequential import read, recurrence, to_complex, to_split
from scans.sharded import Part
from scans.system import DiagonalSystem

ROOM = 4096
"""Numbers of one step above which a step costs more than a turn of the loop."""


def diagonal_layer(
    system: DiagonalSystem,
    u: Float[Array, "B T D"],
    h0: Float[Array, "*dirs B W"] | None = None,
    *,
    mask: Mask | None = None,
    reset: Bool[Array, "B _"] | None = None,
    reverse: bool = False,
    started: Bool[Array, " B"] | None = None,
    method: ScanMethod | str = ScanMethod.AUTO,
    chunk: int | None = None,
    states: str = "none",
    axis: str | None = None,
) -> tuple[Any, ...]:
    """The layer y_t = Re(C x_t) + d u_t of a `DiagonalSystem` over whole sequences.

    Args:
        u: inputs.
        h0: states before the first processed step as [Re | Im]; (2, B, 2N) (forward, backward) if bidirectional.
        mask: which steps are valid, as flags or as lengths (B,). A masked step holds the state and gives y = 0. None:
            all steps are valid.
        reset: True at the first element of each packed sequence. A backward pass resets where such a sequence ends.
        reverse: run from the end; refused for a bidirectional system, which does both.
        started: whether h0 has already seen an input (matters with start_gain only). Default: exactly if h0 is given.
        method: see `linear_scan`. CHUNKED (see `scans.chunked`) keeps one state a chunk; it takes one flag a chunk as
            reset, (B, ceil(T / chunk)), and a mask as lengths only.
        chunk: steps of a chunk, 1 to 8, with AUTO (which then chunks wherever the call allows) or CHUNKED (default 2).
        states: "none", or "all": append the states, complex (B, T, N); if bidirectional a pair (forward, backward).
        axis: of a mesh that splits time into equal parts, inside a `jax.shard_map` over it (see `scans.sharded`): u,
            mask (lengths only) and y are those of the part on this device, h0 and h_last those of the whole.
    Returns:
        y (B, T, D), the state after the last processed valid step (shaped as h0), and the states if asked for.
    Raises:
        ValueError: for T = 0, an unknown choice, `reverse` with a bidirectional system, what chunks or parts cannot do.
    """
    if u.shape[1] == 0:
        raise ValueError(f"diagonal_layer: u has shape {u.shape}: at least one time step is needed")
    if states not in ("none", "all"):
        raise ValueError(f"diagonal_layer: states={states!r}: expected none or all")
    if system.bidirectional and reverse:
        raise ValueError("diagonal_layer: a bidirectional system already runs both ways: leave reverse=False")
    chunked = ScanMethod(method) is ScanMethod.CHUNKED  # takes a reset for each chunk, which is checked there
    check_marks("diagonal_layer", u.shape[:2], mask, None if chunked else reset)
    _check_start(system, u.shape[0], h0)
    if mask is not None and mask.ndim == 1:
        mask = jnp.clip(mask, 0, u.shape[1])
    call = Call(system, u, h0, mask, reset, reverse, states, axis)
    if axis is not None and (why := call.unfit_for_parts()):
        raise ValueError(f"diagonal_layer: time split over {axis}: {why}")
    method, chunk = choose(call, ScanMethod(method), chunk)
    flags = step_mask(mask, u.shape[1])
    if flags is not None:
        u = jnp.where(flags[..., None], u, 0)
    paths, part = (), None if axis is None else Part(axis, reverse, mask, u.shape[1])
    if chunk > 1:
        y, h_last = chunked_layer(
            system, u, h0, lengths=mask, reset=reset, reverse=reverse, started=started, chunk=chunk, method=method,
            part=part,
        )  # fmt: skip
    else:
        y, h_last, paths = _by_step(call._replace(u=u), flags, started, method, part)
    y = like_activations(y, u)
    if flags is not None:
        y = jnp.where(flags[..., None], y, 0)
    if states == "none":
        return y, h_last
    paths = tuple(to_complex(jnp.swapaxes(h, 0, 1)) for h in paths)
    return y, h_last, paths if system.bidirectional else paths[0]


def _check_start(system: DiagonalSystem, batch: int, h0: Shaped[Array, "..."] | None) -> None:
    expected = (*((2,) if system.bidirectional else ()), batch, 2 * system.log_mag.shape[0])
    if h0 is not None and h0.shape != expected:
        raise ValueError(f"diagonal_layer: h0 must have shape {expected}, got {h0.shape}")


class Call(NamedTuple):
    """What decides how a layer is evaluated."""

    system: DiagonalSystem
    u: Array
    h0: Array | None
    mask: Array | None
    reset: Array | None
    reverse: bool
    states: str
    axis: str | None = None

    def unfit_for_parts(self) -> str | None:
        """Why time cannot be split over devices, if it cannot."""
        if self.reset is not None:
            return "a reset"
        if self.mask is not None and self.mask.ndim == 2:
            return "a mask of flags: parts take lengths"
        if self.mask is not None and (self.reverse or self.system.bidirectional) and self.h0 is not None:
            return "a backward pass over padding that starts from a state"
        return None

    @property
    def holds(self) -> bool:
        """Whether the recurrence has to hold or forget states. Behind the last valid step it need not hold one that
        nobody asks for: there are no inputs, and the state after that step can be picked out."""
        if self.reset is not None or self.states != "none" or (self.axis is not None and self.mask is not None):
            return True
        if self.mask is None:
            return False
        backward = self.reverse or self.system.bidirectional
        return self.mask.ndim == 2 or (backward and self.h0 is not None)

    def unfit(self) -> str | None:
        """Why this call cannot be chunked, if it cannot."""
        backward = self.reverse or self.system.bidirectional
        if self.states != "none":
            return f"states={self.states}: chunks hold no states of single steps"
        if self.mask is not None and self.mask.ndim == 2:
            return "a mask of flags: chunks take lengths"
        if self.mask is not None and backward and self.h0 is not None:
            return "a backward pass over padding that starts from a state"
        if self.mask is not None and self.system.start_gain is not None:
            return "a stationary start beside padding"  # a sequence may have no input to start with
        if self.reset is not None and self.system.start_gain is not None:
            return "a stationary start after a reset"
        if self.reset is not None and self.mask is not None:
            return "resets beside padding"
        return None

    def whole_chunks(self, chunk: int) -> bool:
        """Whether no chunk would lie on two devices."""
        return self.axis is None or self.u.shape[1] % chunk == 0


def _by_step(
    call: Call,
    mask: Bool[Array, "B T"] | None,
    started: Bool[Array, " B"] | None,
    method: ScanMethod,
    part: Part | None,
) -> tuple[Float[Array, "B T D"], Float[Array, "*dirs B W"], tuple[Float[Array, "L R W"], ...]]:
    """y, the last state and all states of each direction, by the recurrence over every step; the states are whole
    (T, B, W) where the call asks for them.

    mask: that of the call, as flags; u is 0 where it is not set.
    """
    system, u, h0 = call.system, call.u, call.h0
    batch, steps, width = u.shape
    cut = method is ScanMethod.SEQUENTIAL and not call.holds and part is None
    segments = segments_of(steps, 2 * batch * len(system.log_mag)) if cut else 1
    u = u.reshape(batch * segments, steps // segments, width)
    v = project_inputs(system, u)
    y = jnp.swapaxes(system.d * u, 0, 1)
    lasts, trajectories = [], []
    for way, backward in enumerate((False, True) if system.bidirectional else (call.reverse,)):
        start = h0[way] if system.bidirectional and h0 is not None else h0
        flags = started if started is not None or start is None else jnp.ones(batch, bool)
        here = None if part is None else part._replace(backward=backward)
        if here is not None:
            start, flags = here.start(system, batch, start, flags)
        timeline = Timeline.of(mask, call.reset, flags, backward, call.holds, segments)
        h, h_last = _states(system, v, start, timeline, method, here)
        if here is not None:
            h_last = here.last(h_last)
        elif call.mask is not None and not call.holds and not backward:
            h_last = _state_after(h, call.mask, start)
        y = y + _outputs(h, system.readout(way == 1), method, u.dtype)
        lasts.append(h_last)
        trajectories.append(h)
    y = jnp.swapaxes(y, 0, 1).reshape(call.u.shape)
    return y, jnp.stack(lasts) if system.bidirectional else lasts[0], tuple(trajectories)


def segments_of(steps: int, numbers: int) -> int:
    """Into how many segments of equal length a sequence is cut whose step has so many numbers: as many as there is
    `ROOM` for, but not more than one has steps; 1, that is none, below four, which would not pay for running twice."""
    most = min(ROOM // max(numbers, 1), math.isqrt(steps))
    divisors = [count for count in range(4, most + 1) if steps % count == 0]
    return max(divisors, default=1)


def _state_after(
    h: Float[Array, "L R W"], lengths: Int[Array, " B"], start: Float[Array, "B W"] | None
) -> Float[Array, "B W"]:
    """The state after the last valid step of each sequence; `start` if it has none."""
    segments = h.shape[1] // len(lengths)
    segment, place = jnp.divmod(lengths - 1, h.shape[0])
    reached = h[place, jnp.arange(len(lengths)) * segments + segment]
    return jnp.where(lengths[:, None] > 0, reached, 0 if start is None else start)


def choose(call: Call, method: ScanMethod, chunk: int | None) -> tuple[ScanMethod, int]:
    """How the recurrence is evaluated, and the steps of a chunk; 1: by every step.

    Raises ValueError for a chunk length out of range, or with a method that has none; and for CHUNKED, if the call
    cannot be chunked.
    """
    if chunk is not None and not (isinstance(chunk, int) and 1 <= chunk <= LONGEST):
        raise ValueError(f"diagonal_layer: chunk={chunk!r}: expected 1 to {LONGEST}")
    between = resolve(ScanMethod.AUTO, "diagonal_layer")
    match method:
        case ScanMethod.AUTO:
            fits = call.unfit() is None and call.reset is None
            chunk = (chunk or preferred_chunk(call)) if fits else 1
            return between, chunk if call.whole_chunks(chunk) else 1
        case ScanMethod.CHUNKED:
            chunk = chunk or 2
            if why := call.unfit():
                raise ValueError(f"diagonal_layer: method=chunked: {why}")
            count = -(-call.u.shape[1] // chunk)
            if call.reset is not None and call.reset.shape != (call.u.shape[0], count):
                raise ValueError(
                    f"diagonal_layer: method=chunked takes a reset for each of {count} chunks, got {call.reset.shape}"
                )
            if not call.whole_chunks(chunk):
                raise ValueError(
                    f"diagonal_layer: parts of {call.u.shape[1]} steps on each device are no whole chunks of {chunk}"
                )
            return between, chunk
        case ScanMethod.SEQUENTIAL | ScanMethod.ASSOCIATIVE:
            if chunk not in (None, 1):
                raise ValueError(f"diagonal_layer: chunk={chunk} with method={method}: expected auto or chunked")
            return method, 1
        case unreachable:
            assert_never(unreachable)


def preferred_chunk(call: Call) -> int:
    """The chunk length that is fastest, by platform and shape: a chunk saves states and costs products.

    On a CPU, and for full products anywhere, none is: there chunks save memory. Accelerators: by arithmetic so far.
    """
    if jax.default_backend() == "cpu" or not is_low(call.u.dtype):
        return 1
    modes, width = call.system.b_re.shape
    return 8 if width**2 <= 64 * modes else 4 if width**2 <= 128 * modes else 1


def diagonal_step(
    system: DiagonalSystem,
    u_t: Float[Array, "B D"],
    h: Float[Array, "B W"],
    *,
    reset: Bool[Array, " B"] | None = None,
    started: Bool[Array, " B"] | None = None,
) -> tuple[Float[Array, "B D"], Float[Array, "B W"]]:
    """One step of the forward layer: x_t = lambda x_{t-1} + B u_t, y_t = Re(C x_t) + d u_t.

    `reset` forgets the state before this step; `started` tells whether h has seen an input since its start.
    """
    y, h = diagonal_layer(
        system, u_t[:, None], h, reset=None if reset is None else reset[:, None], started=started,
        method=ScanMethod.SEQUENTIAL,
    )  # fmt: skip
    return y[:, 0], h


class Timeline(NamedTuple):
    """Which steps take part in one pass over time, all (B, T) and in that pass's own order of processing.

    holds: see `Call.holds`. segments: into how many each sequence is cut, see `scans.sequential`.
    """

    mask: Bool[Array, "B T"] | None
    reset: Bool[Array, "B T"] | None
    started: Bool[Array, " B"] | None
    reverse: bool
    holds: bool
    segments: int

    @classmethod
    def of(cls, mask, reset, started, reverse: bool, holds: bool = True, segments: int = 1) -> "Timeline":
        """`reset` marks first elements of packed sequences; a backward pass meets their last elements first."""
        if reset is not None and reverse:
            reset = jnp.concatenate([reset[:, 1:], jnp.zeros_like(reset[:, :1])], axis=1)
        return cls(mask, reset, started, reverse, holds, segments)

    def weights(self, dtype) -> tuple[Array | None, Array | None]:
        """(alpha, beta), time-major (T, B, 1): the state moves on with alpha, is held with beta, or is forgotten."""
        keep = None if self.reset is None else _time_major(~self.reset, dtype)
        if self.mask is None or not self.holds:
            return keep, None
        valid = _time_major(self.mask, dtype)
        alpha, beta = valid, 1 - valid
        return (alpha, beta) if keep is None else (keep * alpha, keep * beta)

    def first(self, shape: tuple[int, int]) -> Bool[Array, "B T"]:
        """The first valid step of every sequence: after the start, unless it had started before, and after a reset."""
        place = jnp.arange(1, shape[1] + 1)
        place = jnp.broadcast_to(place[::-1] if self.reverse else place, shape)
        mask = jnp.ones(shape, bool) if self.mask is None else self.mask
        fresh = jnp.ones(shape[0], bool) if self.started is None else ~self.started
        restarts = fresh[:, None].astype(place.dtype)
        if self.reset is not None:
            restarts = jnp.maximum(restarts, jnp.where(self.reset, place, 0))
        restarted = lax.cummax(jnp.broadcast_to(restarts, shape), axis=1, reverse=self.reverse)
        seen = lax.cummax(jnp.where(mask, place, 0), axis=1, reverse=self.reverse)
        none = jnp.zeros_like(seen[:, :1])
        seen_before = jnp.concatenate([seen[:, 1:], none] if self.reverse else [none, seen[:, :-1]], axis=1)
        return mask & (restarted > seen_before)


def _time_major(flags: Bool[Array, "B T"], dtype) -> Float[Array, "T B 1"]:
    return jnp.swapaxes(flags, 0, 1)[..., None].astype(dtype)


def project_inputs(system: DiagonalSystem, u: Float[Array, "B T D"]) -> Float[Array, "T B W"]:
    """B u_t as [Re | Im] in one real product, half the work of a complex one.

    u is turned time-major before the product, because it is narrower than the result.
    """
    weights = jnp.concatenate([system.b_re, system.b_im], 0).T
    return project(jnp.swapaxes(u, 0, 1), weights)


def apply_start_gain(system: DiagonalSystem, v: Float[Array, "T B W"], timeline: Timeline) -> Float[Array, "T B W"]:
    """Scale the first increment of every sequence by `start_gain`."""
    if system.start_gain is None:
        return v
    length, rows, _ = v.shape
    first = timeline.first((rows // timeline.segments, length * timeline.segments))
    first = jnp.swapaxes(first.reshape(rows, length), 0, 1)[..., None]
    return jnp.where(first, jnp.tile(system.start_gain, 2) * v, v)


def _states(
    system: DiagonalSystem, v: Array, h0: Array | None, timeline: Timeline, method: ScanMethod, part: Part | None
) -> tuple[Float[Array, "L R W"], Float[Array, "B W"]]:
    """All states of one pass, in rows of the segments of its sequences, and the last one processed."""
    v = apply_start_gain(system, v, timeline)
    h0 = jnp.zeros((v.shape[1] // timeline.segments, v.shape[2]), v.dtype) if h0 is None else h0
    if part is not None:
        h0 = part.entering(system, v, h0)
    match method:
        case ScanMethod.SEQUENTIAL:
            a = system.transition[None, None]
            return recurrence(True, timeline.reverse, timeline.segments, a, v, h0, *timeline.weights(v.dtype))
        case ScanMethod.ASSOCIATIVE:
            a = to_complex(system.transition)
            if timeline.mask is not None and timeline.holds:
                a = jnp.where(timeline.mask[..., None], a, 1)
            h, h_last = linear_scan(
                a, to_complex(jnp.swapaxes(v, 0, 1)), to_complex(h0), reset=timeline.reset, reverse=timeline.reverse,
                method=ScanMethod.ASSOCIATIVE,
            )  # fmt: skip
            return to_split(jnp.swapaxes(h, 0, 1)), to_split(h_last)
        case ScanMethod.AUTO | ScanMethod.CHUNKED:
            raise AssertionError("resolve returns neither here")
        case unreachable:
            assert_never(unreachable)


def _outputs(
    h: Float[Array, "T B W"], readout: Float[Array, "W D"], method: ScanMethod, dtype: jnp.dtype
) -> Float[Array, "T B D"]:
    if method is ScanMethod.SEQUENTIAL and not is_low(dtype):
        return read(h, readout)
    return project(h, readout, dtype)
