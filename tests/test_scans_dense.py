"""dense_scan against the float64 loop: values, gradients, masks, resets, carried states, complex transitions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from layer_runs import assert_close, normals

from scans import dense_scan

BATCH, STEPS, WIDTH = 3, 9, 4

# Nearly all the time of these tests is compilation; without optimisation it takes a seventh.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def draw():
    """W, b, h0, a mask with a gap and padding, resets (one of them on a masked step)."""
    mask, reset = np.ones((BATCH, STEPS), bool), np.zeros((BATCH, STEPS), bool)
    mask[1, 6:] = mask[2, 3:5] = False
    reset[0, 5] = reset[1, 0] = reset[2, 4] = True
    w = normals(WIDTH, WIDTH) / 2
    return w, normals(BATCH, STEPS, WIDTH, seed=2), normals(BATCH, WIDTH, seed=3), mask, reset


def loop(w, b, h0=None, mask=None, reset=None):
    """h_t = W h_{t-1} + b_t, one sequence and one step after the other. All h and the last."""
    out = np.zeros(b.shape, np.result_type(w, b))
    for i, rows in enumerate(b):
        h = np.zeros(len(w), out.dtype) if h0 is None else h0[i]
        for t, b_t in enumerate(rows):
            h = 0 * h if reset is not None and reset[i, t] else h
            h = w @ h + b_t if mask is None or mask[i, t] else h
            out[i, t] = h
    return out, out[:, -1]


def test_values_equal_the_loop(x64):
    w, b, h0, mask, reset = draw()
    for given in ({}, {"h0": h0}, {"mask": mask}, {"reset": reset}, {"h0": h0, "mask": mask, "reset": reset}):
        found = jit(lambda given: dense_scan(jnp.asarray(w), jnp.asarray(b), **given))(jax.tree.map(jnp.asarray, given))
        assert_close(found, loop(w, b, **given))


def test_lengths_are_a_mask(x64):
    w, b, h0, _, _ = draw()
    lengths = np.array([STEPS, 4, 1])
    found = jit(lambda n: dense_scan(jnp.asarray(w), jnp.asarray(b), jnp.asarray(h0), mask=n))(jnp.asarray(lengths))
    assert_close(found, loop(w, b, h0, np.arange(STEPS) < lengths[:, None]))


def test_a_complex_transition_in_block_form(x64):
    """[Re | Im] of the states of a complex loop."""
    w, b, h0 = (normals(*shape) + 1j * normals(*shape, seed=5) for shape in ((4, 4), (BATCH, STEPS, 4), (BATCH, 4)))
    split = lambda z: jnp.concatenate([z.real, z.imag], -1)  # noqa: E731
    block = jnp.block([[jnp.asarray(w.real), -w.imag], [jnp.asarray(w.imag), w.real]])
    found = jit(dense_scan)(block / 3, split(b), split(h0))
    assert_close(found, tuple(split(x) for x in loop(w / 3, b, h0)))


def test_two_calls_with_the_carried_state_are_one(x64):
    w, b, h0, mask, reset = (jnp.asarray(x) for x in draw())
    whole, last = dense_scan(w, b, h0, mask=mask, reset=reset)
    first, carried = dense_scan(w, b[:, :4], h0, mask=mask[:, :4], reset=reset[:, :4])
    second, end = dense_scan(w, b[:, 4:], carried, mask=mask[:, 4:], reset=reset[:, 4:])
    assert_close((jnp.concatenate([first, second], 1), end), (whole, last))


def test_gradients_equal_finite_differences(x64):
    w, b, h0, mask, reset = (jnp.asarray(x) for x in draw())
    scan = jax.jit(lambda w, b, h0: dense_scan(w, b, h0, mask=mask, reset=reset))
    check_grads(scan, (w, b, h0), order=1, atol=1e-6, rtol=1e-6)


def test_float32_stays_within_rounding():
    w, b, h0, mask, reset = draw()
    narrow = [jnp.float32(x) for x in (w, b, h0)]
    h, last = jit(dense_scan)(*narrow, mask=mask, reset=reset)
    assert h.dtype == last.dtype == jnp.float32
    wide_w, wide_b, wide_h0 = (np.asarray(x, float) for x in narrow)
    assert_close((h, last), loop(wide_w, wide_b, wide_h0, mask, reset), 2e-6)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"w": (4, 3)}, r"w must have shape \(4, 4\) for b of \(3, 9, 4\), got \(4, 3\)"),
        ({"w": (3, 3)}, r"w must have shape \(4, 4\) for b of \(3, 9, 4\), got \(3, 3\)"),
        ({"h0": (1, 4)}, r"h0 must have shape \(3, 4\) for b of \(3, 9, 4\), got \(1, 4\)"),
        ({"b": (3, 0, 4)}, r"at least one time step, got shape \(3, 0, 4\)"),
        ({"b": (9, 4)}, r"b must be \(B, T, W\) .* got shape \(9, 4\)"),
        ({"reset": (3, 8)}, r"reset must have shape \(3, 9\), got \(3, 8\)"),
        ({"mask": (3, 8)}, r"mask must be flags of shape \(3, 9\) or whole lengths"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(changes, words):
    shapes = {"w": (4, 4), "b": (3, 9, 4), "h0": (3, 4)} | changes
    flags = {name: jnp.ones(shapes.pop(name), bool) for name in ("mask", "reset") if name in shapes}
    with pytest.raises(ValueError, match=f"dense_scan: {words}" if "at least" not in words else words) as refusal:
        dense_scan(**{name: jnp.zeros(shape) for name, shape in shapes.items()}, **flags)
    assert "\n" not in str(refusal.value)
