"""The diagonal layer in chunks of c steps: one state a chunk instead of one a step, for a little more arithmetic.

Over a chunk of inputs U_k (cD numbers) and with X_k the state after it,

    X_k = lambda^c X_{k-1} + U_k W_in        Y_k = U_k T + X_{k-1} W_out

where W_in holds lambda^(c-1-j) B for input j, W_out C lambda^(i+1) for output i, and block (j -> i) of T is
Re(C lambda^(i-j) B) for i >= j, with the skip d in the blocks i = j. Backward, X'_k is the state at the start of chunk
k: powers j, c - i and j - i in place of these. A bidirectional layer adds both T into one full matrix. All are real
products of [Re | Im]; only the recurrence between chunks is not a product, and has its own gradient rule.
"""

from typing import NamedTuple, assert_never

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from scans.choice import ScanMethod
from scans.linear import linear_scan
from scans.projection import project
from scans.sequential import product, recurrence, to_complex, to_split
from scans.sharded import Part
from scans.system import DiagonalSystem

LONGEST = 8
"""Chunks above this cost more in products than they save in states (and powers of lambda lose digits)."""


def check_chunk(where: str, chunk: int) -> None:
    """Of a layer's option `chunk`, how many steps are computed together: 2 to 8 takes less memory (wherever the call
    allows, see `scans.diagonal_layer`), 1 goes step by step, 0 is what is fastest. Raises ValueError for another."""
    if not 0 <= chunk <= LONGEST:
        raise ValueError(f"{where}: chunk={chunk}: expected 0 to {LONGEST}")


class Way(NamedTuple):
    """The products of one direction: into (cD, W), out (W, cD), direct (cD, cD)."""

    into: Float[Array, "cD W"]
    out: Float[Array, "W cD"]
    direct: Float[Array, "cD cD"]


class Entering(NamedTuple):
    """States of one direction: that which enters each chunk, that which enters the tail, and the last one."""

    chunks: Float[Array, "K B W"]
    tail: Float[Array, "B W"]
    last: Float[Array, "B W"]


def powers(system: DiagonalSystem, exponents: Int[Array, " k"]) -> tuple[Float[Array, "k N"], Float[Array, "k N"]]:
    """Re and Im of lambda^k, from exp(k log lambda): multiplying powers up would add their errors."""
    exponents = exponents[:, None].astype(system.phase.dtype)
    modulus, angle = jnp.exp(exponents * system.log_mag), exponents * system.phase
    return modulus * jnp.cos(angle), modulus * jnp.sin(angle)


def way(system: DiagonalSystem, chunk: int, *, backward: bool, second: bool) -> Way:
    """What a chunk is multiplied with. backward: it is read from its end. second: by the readout of the backward pass
    of a bidirectional system."""
    place = jnp.arange(chunk)
    re, im = (x[:, :, None] for x in powers(system, place if backward else chunk - 1 - place))
    into = jnp.concatenate([re * system.b_re - im * system.b_im, re * system.b_im + im * system.b_re], 1)
    read = system.readout(second)
    out = _read_powers(system, read, chunk - place if backward else place + 1)
    taps = _read_powers(system, read, place)
    kernel = jnp.einsum(
        "kwe,wd->kde", taps, jnp.concatenate([system.b_re, system.b_im]), precision=lax.Precision.HIGHEST
    )
    distance = place[:, None] - place if backward else place - place[:, None]  # from input j to output i
    blocks = jnp.where((distance >= 0)[..., None, None], kernel[jnp.abs(distance)], 0)
    width = system.b_re.shape[1]
    return Way(
        jnp.swapaxes(into, 1, 2).reshape(chunk * width, -1),
        jnp.swapaxes(out, 0, 1).reshape(-1, chunk * width),
        jnp.swapaxes(blocks, 1, 2).reshape(chunk * width, chunk * width),
    )


def _read_powers(
    system: DiagonalSystem, read: Float[Array, "W D"], exponents: Int[Array, " k"]
) -> Float[Array, "k W D"]:
    """[Re | -Im] of C lambda^k, transposed, from that of C."""
    (re, im), (c_re, minus_c_im) = (p[:, :, None] for p in powers(system, exponents)), jnp.split(read, 2)
    return jnp.concatenate([re * c_re + im * minus_c_im, re * minus_c_im - im * c_re], 1)


def chunked_layer(
    system: DiagonalSystem,
    u: Float[Array, "B T D"],
    h0: Float[Array, "*dirs B W"] | None,
    *,
    lengths: Int[Array, " B"] | None,
    reset: Bool[Array, "B _"] | None,
    reverse: bool,
    started: Bool[Array, " B"] | None,
    chunk: int,
    method: ScanMethod,
    part: Part | None,
) -> tuple[Float[Array, "B T D"], Float[Array, "*dirs B W"]]:
    """y without the zeros at padded steps, and the state after the last processed valid step; see `diagonal_layer`.

    u is 0 at padded steps. reset: one flag a chunk. method: of the recurrence between chunks. part: of time, if other
    devices have others; it has no tail.
    """
    batch, steps, width = u.shape
    whole = steps // chunk
    u_whole = jnp.swapaxes(u[:, : whole * chunk].reshape(batch, whole, chunk * width), 0, 1)
    tail = (steps - whole * chunk) * width
    u_tail = u[:, whole * chunk :].reshape(batch, tail)
    parts, direct = [], jnp.diag(jnp.tile(system.d, chunk))
    for index, backward in enumerate((False, True) if system.bidirectional else (reverse,)):
        here = way(system, chunk, backward=backward, second=index == 1)
        start, marks = h0[index] if system.bidirectional and h0 is not None else h0, started
        if part is not None:
            part = part._replace(backward=backward)
            marks = marks if marks is not None or start is None else jnp.ones(batch, bool)
            start, marks = part.start(system, batch, start, marks)
        start = _start(system, u, start, marks, backward)
        passes = _backward_states if backward else _forward_states
        entering = passes(system, here, u_whole, u_tail, start, _keep(reset, backward, u.dtype), method, part)
        if lengths is not None and not backward:
            entering = entering._replace(last=_state_after(system, here, u, entering, lengths, chunk))
        if part is not None:
            entering = entering._replace(last=part.last(entering.last))
        direct += here.direct
        out_tail = here.out[:, chunk * width - tail :] if backward else here.out[:, :tail]
        parts.append((entering, here.out, out_tail))
    y_whole = project(u_whole, direct, u.dtype)
    y_tail = project(u_tail, direct[:tail, :tail], u.dtype)
    for entering, out, out_tail in parts:
        y_whole += project(entering.chunks, out, u.dtype)
        y_tail += project(entering.tail, out_tail, u.dtype)
    y_whole = jnp.swapaxes(y_whole, 0, 1).reshape(batch, whole * chunk, width)
    y = jnp.concatenate([y_whole, y_tail.reshape(batch, tail // width, width)], 1)
    lasts = [entering.last for entering, _, _ in parts]
    return y, jnp.stack(lasts) if system.bidirectional else lasts[0]


def _forward_states(
    system: DiagonalSystem,
    here: Way,
    u_whole: Float[Array, "K B cD"],
    u_tail: Float[Array, "B rD"],
    h0: Float[Array, "B W"],
    keep: Float[Array, "_ B 1"] | None,
    method: ScanMethod,
    part: Part | None,
) -> Entering:
    chunk = here.into.shape[0] // system.b_re.shape[1]
    rest = u_tail.shape[1] // system.b_re.shape[1]
    v = project(u_whole, here.into)
    if part is not None:
        h0 = part.entering(system, v, h0, chunk)
    after, last = _between(system, chunk, v, h0, keep, method, reverse=False)
    before = jnp.concatenate([h0[None], after])
    if keep is not None:
        before = before * jnp.pad(keep, ((0, before.shape[0] - keep.shape[0]), (0, 0), (0, 0)), constant_values=1)
    chunks, entering_tail = before[:-1], before[-1]
    if rest:
        last = _moved(system, rest, entering_tail) + project(u_tail, here.into[-u_tail.shape[1] :])
    return Entering(chunks, entering_tail, last)


def _backward_states(
    system: DiagonalSystem,
    here: Way,
    u_whole: Float[Array, "K B cD"],
    u_tail: Float[Array, "B rD"],
    h0: Float[Array, "B W"],
    keep: Float[Array, "_ B 1"] | None,
    method: ScanMethod,
    part: Part | None,
) -> Entering:
    chunk = here.into.shape[0] // system.b_re.shape[1]
    rest = u_tail.shape[1] // system.b_re.shape[1]
    first = h0
    if rest:
        first = _moved(system, rest, h0) + project(u_tail, here.into[: u_tail.shape[1]])
    v = project(u_whole, here.into)
    if part is not None:
        first = part.entering(system, v, first, chunk)
    after, last = _between(system, chunk, v, first, keep, method, reverse=True)
    before = jnp.concatenate([after[1:], first[None]])[: u_whole.shape[0]]
    if keep is not None:
        before = before * keep[: u_whole.shape[0]]
    return Entering(before, h0, last)


def _between(
    system: DiagonalSystem,
    chunk: int,
    v: Float[Array, "K B W"],
    h0: Float[Array, "B W"],
    keep: Float[Array, "_ B 1"] | None,
    method: ScanMethod,
    *,
    reverse: bool,
) -> tuple[Float[Array, "K B W"], Float[Array, "B W"]]:
    """The states after every chunk, and that after the last one processed; h0 if there is no whole chunk."""
    if v.shape[0] == 0:
        return v, h0
    keep = None if keep is None else keep[: v.shape[0]]
    jump = jnp.concatenate([p[0] for p in powers(system, jnp.array([chunk]))])
    match method:
        case ScanMethod.SEQUENTIAL:
            return recurrence(True, reverse, 1, jump[None, None], v, h0, keep)
        case ScanMethod.ASSOCIATIVE:
            reset = None if keep is None else jnp.swapaxes(keep[..., 0] == 0, 0, 1)
            v = to_complex(jnp.swapaxes(v, 0, 1))
            h, last = linear_scan(to_complex(jump), v, to_complex(h0), reset=reset, reverse=reverse, method=method)
            return jnp.swapaxes(to_split(h), 0, 1), to_split(last)
        case ScanMethod.AUTO | ScanMethod.CHUNKED:
            raise AssertionError("resolved before")
        case unreachable:
            assert_never(unreachable)


def _moved(system: DiagonalSystem, steps: int, h: Float[Array, "B W"]) -> Float[Array, "B W"]:
    """lambda^steps h."""
    return product(jnp.concatenate([p[0] for p in powers(system, jnp.array([steps]))]), h, split=True)


def _keep(reset: Bool[Array, "B _"] | None, backward: bool, dtype: jnp.dtype) -> Float[Array, "_ B 1"] | None:
    """1 where the state enters a chunk, 0 where it is forgotten; a backward pass meets the last chunks first."""
    if reset is None:
        return None
    if backward:
        reset = jnp.concatenate([reset[:, 1:], jnp.zeros_like(reset[:, :1])], 1)
    return jnp.swapaxes(~reset, 0, 1)[..., None].astype(dtype)


def _start(
    system: DiagonalSystem,
    u: Float[Array, "B T D"],
    h0: Float[Array, "B W"] | None,
    started: Bool[Array, " B"] | None,
    backward: bool,
) -> Float[Array, "B W"]:
    """The state before the first step, with a stationary start in it: (g - 1) lambda^-1 B u_1, which the first step
    turns into the increment that is missing from g B u_1. With g = (1 - |lambda|^2)^(-1/2) its factor is
    |lambda| g^2 / (g + 1) e^(-i phase), finite where lambda is 0.
    """
    zero = jnp.zeros((u.shape[0], 2 * system.log_mag.shape[0]), system.log_mag.dtype)
    start = zero if h0 is None else h0
    if system.start_gain is None:
        return start
    fresh = h0 is None if started is None else ~started[:, None]
    size = jnp.exp(system.log_mag) * system.start_gain**2 / (system.start_gain + 1)
    turn = jnp.concatenate([size * jnp.cos(system.phase), -size * jnp.sin(system.phase)])
    first = project(u[:, -1 if backward else 0], jnp.concatenate([system.b_re, system.b_im]).T)
    return jnp.where(fresh, start + product(turn, first, split=True), start)


def _state_after(
    system: DiagonalSystem,
    here: Way,
    u: Float[Array, "B T D"],
    entering: Entering,
    lengths: Int[Array, " B"],
    chunk: int,
) -> Float[Array, "B W"]:
    """The state after `lengths` steps: lambda^r X_k + the r inputs after chunk k, moved to the end of one."""
    full, rest = lengths // chunk, lengths % chunk
    reached = jnp.concatenate([entering.chunks, entering.tail[None]])
    state = reached[full, jnp.arange(len(full))]
    place = jnp.arange(chunk) - (chunk - rest)[:, None]  # among the inputs after chunk k; those before it count as 0
    index = jnp.clip(full[:, None] * chunk + place, 0, u.shape[1] - 1)
    inputs = jnp.where(place[..., None] >= 0, jnp.take_along_axis(u, index[..., None], 1), 0)
    moved = product(jnp.concatenate(powers(system, jnp.arange(chunk)), -1)[rest], state, split=True)
    return moved + project(inputs.reshape(u.shape[0], -1), here.into)
