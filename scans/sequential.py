"""The recurrence as a loop over time with its own gradient rule.

Everything is time-major and real: (T, B, W). A complex array of N entries is stored as [Re | Im], W = 2N, because
the projections around the recurrence are real products of that layout and a loop over two halves beats a complex one.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

Flow = Float[Array, "T B 1"] | None


def product(a: Array, h: Array, *, split: bool) -> Array:
    """a * h; with `split`, the complex product of two [Re | Im] arrays."""
    if not split:
        return a * h
    (a_re, a_im), (h_re, h_im) = jnp.split(a, 2, -1), jnp.split(h, 2, -1)
    return jnp.concatenate([a_re * h_re - a_im * h_im, a_re * h_im + a_im * h_re], -1)


def conjugate(a: Array, *, split: bool) -> Array:
    """The complex conjugate of a [Re | Im] array; a real array is its own."""
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


def _transition(a: Array, h: Array, alpha: Array | None, beta: Array | None, split: bool) -> Array:
    """(alpha a + beta) h, the linear map of one step."""
    turned = product(a, h, split=split)
    if alpha is not None:
        turned = alpha * turned
    return turned if beta is None else turned + beta * h


def _loop(
    split: bool,
    reverse: bool,
    a: Float[Array, "Ta Ba Wa"],
    b: Float[Array, "T B W"],
    h0: Float[Array, "B W"],
    alpha: Flow = None,
    beta: Flow = None,
) -> tuple[Float[Array, "T B W"], Float[Array, "B W"]]:
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
        h = _transition(a[0] if a_t is None else a_t, h, *weights, split) + states[t]
        return h, lax.dynamic_update_index_in_dim(states, h, t, 0)

    # The states take the place of the increments, one by one: lax.scan would first fill an array with zeros for them.
    h_last, h = lax.fori_loop(0, b.shape[0], step, (h0, b))
    return h, h_last


recurrence = jax.custom_vjp(_loop, nondiff_argnums=(0, 1))


def _per_step(a: Array) -> Array | None:
    """`a` if it changes over time; None if one transition serves every step."""
    return None if a.shape[0] == 1 else a


def _forward(split, reverse, a, b, h0, alpha, beta):
    h, h_last = recurrence(split, reverse, a, b, h0, alpha, beta)
    return (h, h_last), (a, h0, h, alpha, beta)


def _backward(split, reverse, residuals, cotangents):
    a, h0, h, alpha, beta = residuals
    g, g_last = cotangents
    first, last = (-1, 0) if reverse else (0, -1)
    back = conjugate(a, split=split)
    # The same loop the other way round, one step ahead in what belongs to a step.
    ahead = [None if x is None else _neighbour(x, x[last], not reverse) for x in (alpha, beta)]
    back_ahead = back if _per_step(a) is None else _neighbour(back, back[last], not reverse)
    db, mu_first = _loop(split, not reverse, back_ahead, g.at[last].add(g_last), jnp.zeros_like(h0), *ahead)
    dh0 = _transition(back[first], mu_first, *(None if x is None else x[first] for x in (alpha, beta)), split)
    if _per_step(a) is None:
        da = _sum_to(_correlation(split, reverse, h0, h, db, alpha), a.shape[1:], split)[None]
    else:
        before = conjugate(_neighbour(h, h0, reverse), split=split)
        da = product(before, db if alpha is None else alpha * db, split=split)
        da = jax.vmap(lambda x: _sum_to(x, a.shape[1:], split))(da)
    return da, db, dh0, None, None


def _neighbour(x: Float[Array, "T *axes"], edge: Float[Array, "*axes"], later: bool) -> Float[Array, "T *axes"]:
    """x_{t-1}, or x_{t+1} if `later`, at every t; `edge` where there is none."""
    return jnp.concatenate([x[1:], edge[None]] if later else [edge[None], x[:-1]])


def _correlation(
    split: bool,
    reverse: bool,
    h0: Float[Array, "B W"],
    h: Float[Array, "T B W"],
    mu: Float[Array, "T B W"],
    alpha: Flow,
) -> Float[Array, "B W"]:
    """The sum over t of alpha_t conj(h_{t-1}) mu_t.

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

    straight, crossed = lax.fori_loop(1, h.shape[0], step, products(h0, -1 if reverse else 0))
    if not split:
        return straight[:, 0]
    return jnp.concatenate([straight[:, 0] + straight[:, 1], crossed[:, 1] - crossed[:, 0]], -1)


def _sum_to(x: Float[Array, "B W"], shape: tuple[int, ...], split: bool) -> Array:
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
