"""Few short states over many steps: sequences cut into segments that run side by side give what the whole gives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scans import diagonal_layer, step_mask
from scans.diagonal import ROOM, segments_of
from tests.test_scans_chunked import WAYS
from tests.test_scans_diagonal import BATCH, MODES, WIDTH, make_system

STEPS = 36

jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def run(way, start_gain, given, *, whole):
    """y, the last state, and all gradients, of a layer of `STEPS` steps; `whole`: a mask of flags, which keeps the
    recurrence from being cut."""
    system = make_system(bidirectional=way == "bidirectional", start_gain=start_gain)
    rng = np.random.default_rng(1)
    u, dy = (jnp.asarray(rng.normal(size=(BATCH, STEPS, WIDTH))) for _ in range(2))
    directions = (2,) if way == "bidirectional" else ()
    h0, d_last = (jnp.asarray(rng.normal(size=(*directions, BATCH, 2 * MODES))) for _ in range(2))
    lengths = jnp.asarray([STEPS, 0, 13] if "lengths" in given else [STEPS] * BATCH)
    mask = step_mask(lengths, STEPS) if whole else lengths if "lengths" in given else None

    def layer(system, u, h0):
        start = h0 if "h0" in given else None
        return diagonal_layer(system, u, start, mask=mask, reverse=way == "backward", method="sequential")

    def both(system, u, h0):
        out, vjp = jax.vjp(layer, system, u, h0)
        return out, vjp((dy, d_last))

    return jax.tree.leaves(jit(both)(system, u, h0))


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("way", "given", "start_gain"),
    [
        *((way, given, False) for way in WAYS for given in ((), ("h0", "lengths"))),
        ("forward", ("lengths",), True),
        ("backward", ("lengths",), True),
        ("bidirectional", (), True),
    ],
)
def test_segments_equal_the_whole(x64, way, given, start_gain):
    assert segments_of(STEPS, 2 * BATCH * MODES) > 1
    cut, whole = (run(way, start_gain, given, whole=whole) for whole in (False, True))
    for found, expected in zip(cut, whole, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize(
    ("steps", "numbers", "segments"),
    [
        (1024, ROOM, 1),
        (1024, ROOM // 2, 1),
        (1024, ROOM // 4, 4),
        (65536, 64, 64),
        (2000, 64, 40),
        (101, 1, 1),
        (9, 1, 1),
    ],
)
def test_a_sequence_is_cut_where_a_step_is_short(steps, numbers, segments):
    assert segments_of(steps, numbers) == segments
