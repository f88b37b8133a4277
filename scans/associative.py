"""The recurrence as a parallel prefix computation, differentiated by JAX itself."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Inexact


def scan_varying(a: Inexact[Array, "B T N"], b: Inexact[Array, "B T N"], reverse: bool) -> Inexact[Array, "B T N"]:
    """h_t = a_t h_{t-1} + b_t from h_0 = 0, for transitions that change over time."""

    def combine(earlier, later):
        (a_i, b_i), (a_j, b_j) = earlier, later
        return a_j * a_i, a_j * b_i + b_j

    return lax.associative_scan(combine, (a, b), reverse=reverse, axis=1)[1]


def scan_fixed(
    a: Inexact[Array, " N"], b: Inexact[Array, "B T N"], keep: Inexact[Array, "B T 1"], reverse: bool
) -> Inexact[Array, "B T N"]:
    """h_t = keep_t a h_{t-1} + b_t from h_0 = 0, for one transition `a`, which is never expanded over time.

    Two neighbouring steps are one step of transition a^2. The recurrence of these pairs, half as long, gives the
    state after every second step; one more product gives the states in between.
    """
    steps = b.shape[1]
    if steps == 1:
        return b
    pairs = steps // 2
    paired, between = (slice(steps % 2, None), slice(None, -1)) if reverse else (slice(None, pairs), slice(1, None))

    (b_first, b_second), (keep_first, keep_second) = _by_place(b, reverse), _by_place(keep, reverse)
    increments = b_second + keep_second * a * b_first[:, paired]
    h_second = scan_fixed(a * a, increments, keep_second * keep_first[:, paired], reverse)

    rest = b_first.shape[1] - 1
    reached = h_second[:, pairs - rest :] if reverse else h_second[:, :rest]
    h_first = b_first[:, between] + keep_first[:, between] * a * reached
    h_first = jnp.concatenate([h_first, b_first[:, -1:]] if reverse else [b_first[:, :1], h_first], axis=1)

    swapped = reverse and steps % 2 == 0
    return _interleave(h_second, h_first) if swapped else _interleave(h_first, h_second)


def _by_place(x: Array, reverse: bool) -> tuple[Array, Array]:
    """The steps that open a pair and the steps that close one, each in ascending time."""
    if reverse and x.shape[1] % 2 == 0:
        return x[:, 1::2], x[:, 0::2]
    return x[:, 0::2], x[:, 1::2]


def _interleave(x: Array, y: Array) -> Array:
    """x_0 y_0 x_1 y_1 ... along time; x may have one more element."""
    pairs = y.shape[1]
    both = jnp.stack([x[:, :pairs], y], axis=2).reshape(x.shape[0], 2 * pairs, *x.shape[2:])
    return jnp.concatenate([both, x[:, pairs:]], axis=1)
