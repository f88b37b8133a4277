"""The recurrence as a loop over time with its own gradient rule.

Everything is time-major: (T, B, W). Around a layer's recurrence a complex array of N entries is stored as [Re | Im],
W = 2N, because the projections there are real products of that layout. Without `split`, arrays may be complex as well:
the cotangents of JAX are not conjugated, so that the rule is the same.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Inexact

Flow = Float[Array, "T B 1"] | None


def product(a: Array, h: Array, *, split: bool) -> Array:
    """a * h; with `split`, the complex product of two [Re | Im] arrays."""
    if not split:
        return a * h
    (a_re, a_im), (h_re, h_im) = jnp.split(a, 2, -1), jnp.split(h, 2, -1)
    return jnp.concatenate([a_re * h_re - a_im * h_im, a_re * h_im + a_im * h_re], -1)


def conjugate(a: Array, *, split: bool) -> Array:
    """What cotangents are multiplied with in place of a: the conjugate of a [Re | Im] array, another array itself."""
    if not split:
        return a
    re, im = jnp.split(a, 2, -1)
    return jnp.concatenate([re, -im], -1)


def to_complex(h: Float[Array, "*axes W"]) -> Array:
    """[Re | Im] -> complex."""
    return lax.complex(*jnp.split(h, 2, -1))


def to_split(h: Array) -> Float[Array, "*axes W"]:
    """complex -> [Re | Im]."""
    return jnp.concatenate([h.real, h.imag], -1)


def _transition(a: Array, h: Array, weights: Sequence[Array | None], split: bool) -> Array:
    """(alpha a + beta) h, the linear map of one step; weights: alpha and beta."""
    alpha, beta = weights
    turned = product(a, h, split=split)
    if alpha is not None:
        turned = alpha * turned
    return turned if beta is None else turned + beta * h


def _loop(
    split: bool,
    reverse: bool,
    a: Inexact[Array, "Ta Ba Wa"],
    b: Inexact[Array, "T B W"],
    h0: Inexact[Array, "B W"],
    alpha: Flow = None,
    beta: Flow = None,
) -> tuple[Inexact[Array, "T B W"], Inexact[Array, "B W"]]:
    """h_t = (alpha_t a_t + beta_t) h_{t-1} + b_t, from t = 1, or from t = T downwards with `reverse`.

    Args:
        split: arrays hold complex numbers as [Re | Im] in their last axis.
        a: transition; an axis of length 1 (time, batch; width 1, or 2 if split) is broadcast and never expanded.
        b: increments.
        h0: state before the first processed step.
        alpha, beta: weights of the transition and of the identity (None: 1 and 0): alpha = beta = 0 forgets, alpha = 0
            with beta = 1 holds. They carry no gradient.
    Returns:
        all states, and the state after the last processed step.

    The gradient keeps a, h0, h and the weights. With g_t the cotangent of h_t and t+1 the step after t, whose
    transition w_{t+1} = alpha_{t+1} conj(a_{t+1}) + beta_{t+1} brings a cotangent back:
    mu_t = g_t + w_{t+1} mu_{t+1},  db_t = mu_t,  da_t = alpha_t conj(h_{t-1}) mu_t,  dh0 = w_1 mu_1.
    """

    def step(i, carry):
        h, states = carry
        t = b.shape[0] - 1 - i if reverse else i
        a_t, *weights = (None if x is None else x[t] for x in (_per_step(a), alpha, beta))
        h = _transition(a[0] if a_t is None else a_t, h, weights, split) + states[t]
        return h, lax.dynamic_update_index_in_dim(states, h, t, 0)

    # The states take the place of the increments, one by one: lax.scan would first fill an array with zeros for them.
    h_last, h = lax.fori_loop(0, b.shape[0], step, (h0, b))
    return h, h_last


def _evaluate(
    split: bool,
    reverse: bool,
    segments: int,
    a: Array,
    b: Inexact[Array, "L R W"],
    h0: Inexact[Array, "B W"],
    alpha: Flow = None,
    beta: Flow = None,
) -> tuple[Inexact[Array, "L R W"], Inexact[Array, "B W"]]:
    """`_loop`, of sequences cut into `segments` of L steps each, which run side by side: R = B segments rows.

    With segments = 1 (R = B, L = T) nothing is cut. More of them are for few short states over many steps, where a
    step costs more than its numbers; `a` is then the same at all times, without weights. First every segment runs from
    zero to its last state only, then the recurrence over these gives the state that enters each, and each runs again.
    """
    h, h_last, _ = _segmented(split, reverse, segments, a, b, h0, alpha, beta)
    return h, h_last


recurrence = jax.custom_vjp(_evaluate, nondiff_argnums=(0, 1, 2))


def _segmented(split, reverse, segments, a, b, h0, alpha=None, beta=None) -> tuple[Array, Array, Array]:
    """The states, the last one of each sequence, and those that enter the rows."""
    if segments == 1:
        return *_loop(split, reverse, a, b, h0, alpha, beta), h0
    length, rows, width = b.shape
    ends = lax.fori_loop(
        0,
        length,
        lambda i, h: product(a[0], h, split=split) + b[length - 1 - i if reverse else i],
        jnp.zeros_like(b[0]),
    )
    ends = jnp.swapaxes(ends.reshape(-1, segments, width), 0, 1)
    after, h_last = _loop(split, reverse, _power(a, length, split), ends, h0)
    starts = jnp.swapaxes(_neighbour(after, h0, reverse), 0, 1).reshape(rows, width)
    return _loop(split, reverse, a, b, starts)[0], h_last, starts


def _power(a: Array, k: int, split: bool) -> Array:
    """a^k, k at least 1; its error grows no faster than that of the state under k steps."""
    half = None if k == 1 else _power(product(a, a, split=split), k // 2, split)
    return a if half is None else product(half, a, split=split) if k % 2 else half


def _per_step(a: Array) -> Array | None:
    """`a` if it changes over time; None if one transition serves every step."""
    return None if a.shape[0] == 1 else a


def _forward(split, reverse, segments, a, b, h0, alpha, beta):
    h, h_last, starts = _segmented(split, reverse, segments, a, b, h0, alpha, beta)
    return (h, h_last), (a, starts, h, alpha, beta)


def _backward(split, reverse, segments, residuals, cotangents):
    a, starts, h, alpha, beta = residuals
    g, g_last = cotangents
    first, last = (-1, 0) if reverse else (0, -1)
    g = g.reshape(len(g), -1, segments, g.shape[-1]).at[last, :, last].add(g_last).reshape(g.shape)
    back = conjugate(a, split=split)
    # The same loop the other way round, one step ahead in what belongs to a step.
    ahead = [None if x is None else _neighbour(x, x[last], not reverse) for x in (alpha, beta)]
    back_ahead = back if _per_step(a) is None else _neighbour(back, back[last], not reverse)
    db, mu_first, _ = _segmented(split, not reverse, segments, back_ahead, g, jnp.zeros_like(g_last), *ahead)
    dh0 = _transition(back[first], mu_first, [None if x is None else x[first] for x in (alpha, beta)], split)
    if _per_step(a) is None:
        da = _sum_to(_correlation(split, reverse, starts, h, db, alpha), a.shape[1:], split)[None]
    else:
        before = conjugate(_neighbour(h, starts, reverse), split=split)
        da = product(before, db if alpha is None else alpha * db, split=split)
        da = jax.vmap(lambda x: _sum_to(x, a.shape[1:], split))(da)
    return da, db, dh0, None, None


def _neighbour(x: Inexact[Array, "T *axes"], edge: Inexact[Array, "*axes"], later: bool) -> Inexact[Array, "T *axes"]:
    """x_{t-1}, or x_{t+1} if `later`, at every t; `edge` where there is none."""
    return jnp.concatenate([x[1:], edge[None]] if later else [edge[None], x[:-1]])


def _correlation(
    split: bool,
    reverse: bool,
    start: Inexact[Array, "B W"],
    h: Inexact[Array, "T B W"],
    mu: Inexact[Array, "T B W"],
    alpha: Flow,
) -> Inexact[Array, "B W"]:
    """The sum over t of alpha_t conj(h_{t-1}) mu_t, h_0 = start.

    A loop of its own whose step is one pass over whole rows: with the complex product written out, or inside the loop
    that makes mu, XLA's CPU compiler breaks a step into pieces and takes three times as long.
    """

    def products(before, t):
        mu_t = mu[t] if alpha is None else alpha[t] * mu[t]
        before, mu_t = (x.reshape(x.shape[0], 2 if split else 1, -1) for x in (before, mu_t))
        return before * mu_t, before[:, ::-1] * mu_t

    def step(t, sums):
        before, here = (t, t - 1) if reverse else (t - 1, t)
        return jax.tree.map(jnp.add, sums, products(h[before], here))

    straight, crossed = lax.fori_loop(1, h.shape[0], step, products(start, -1 if reverse else 0))
    if not split:
        return straight[:, 0]
    return jnp.concatenate([straight[:, 0] + straight[:, 1], crossed[:, 1] - crossed[:, 0]], -1)


def _sum_to(x: Inexact[Array, "B W"], shape: tuple[int, ...], split: bool) -> Array:
    """Sum (B, W) over the axes along which a transition of `shape` was broadcast."""
    batch, width = shape
    if batch == 1:
        x = x.sum(0, keepdims=True)
    parts = 2 if split else 1
    if width == parts and x.shape[-1] != parts:
        x = x.reshape(*x.shape[:-1], parts, -1).sum(-1)
    return x


recurrence.defvjp(_forward, _backward)


@jax.custom_vjp
def read(h: Float[Array, "T B W"], weights: Float[Array, "W D"]) -> Float[Array, "T B D"]:
    """h weights, with the gradient of the weights taken as h^T g, where autodiff takes (g^T h)^T.

    XLA's CPU compiler writes the first operand out transposed and computes it on the way, element by element in
    strides. h is an array already; g is the end of a long chain of operations, which made that copy a third of a step.
    """
    return jnp.matmul(h, weights, precision=lax.Precision.HIGHEST)


def _read_forward(h, weights):
    return read(h, weights), (h, weights)


def _read_backward(residuals, g):
    h, weights = residuals
    rows, g_rows = (x.reshape(-1, x.shape[-1]) for x in (h, g))
    by_weights = lax.dot_general(rows, g_rows, (((0,), (0,)), ((), ())), precision=lax.Precision.HIGHEST)
    return jnp.matmul(g, weights.T, precision=lax.Precision.HIGHEST), by_weights


read.defvjp(_read_forward, _read_backward)
