"""diagonal_layer against the float64 loop: directions, masks, resets, carried state, streaming, stationary start."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import diagonal_loop

from scans import DiagonalSystem, ScanMethod, diagonal, diagonal_energy, diagonal_layer, diagonal_step

METHODS = [ScanMethod.SEQUENTIAL, ScanMethod.ASSOCIATIVE]
MODES, WIDTH, BATCH = 3, 2, 3


def make_system(bidirectional=False, start_gain=False):
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape))  # noqa: E731
    system = DiagonalSystem(
        jnp.asarray(np.log(rng.uniform(0.5, 0.99, MODES))), draw(MODES), draw(MODES, WIDTH), draw(MODES, WIDTH),
        draw(WIDTH, MODES), draw(WIDTH, MODES), draw(WIDTH),
    )  # fmt: skip
    if bidirectional:
        system = system._replace(c_backward_re=draw(WIDTH, MODES), c_backward_im=draw(WIDTH, MODES))
    if start_gain:
        system = system._replace(start_gain=jnp.asarray(rng.uniform(2, 3, MODES)))
    return system


def inputs(steps, seed=1):
    """A batch whose rows differ: free, padded on the right with a packed boundary, and with gaps."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(BATCH, steps, WIDTH))
    mask = np.ones((BATCH, steps), bool)
    mask[1, max(1, steps // 2) :] = False
    mask[2] = rng.random(steps) < 0.6
    reset = np.zeros((BATCH, steps), bool)
    reset[1, steps // 3] = reset[2, steps // 2] = True
    h0 = rng.normal(size=(BATCH, 2 * MODES))
    h0[0] = 0
    return tuple(jnp.asarray(x) for x in (u, mask, reset, h0))


def as_complex(h):
    return np.asarray(h[..., :MODES] + 1j * h[..., MODES:])


@pytest.mark.every(3)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 3, 8, 257])
def test_one_direction_equals_the_loop(x64, method, reverse, steps):
    system = make_system()
    u, mask, reset, h0 = inputs(steps)
    run = jax.jit(
        lambda u, h0, mask, reset: diagonal_layer(
            system, u, h0, mask=mask, reset=reset, reverse=reverse, method=method, states="all"
        )
    )
    every = [(h0, mask, reset)]
    if steps == 8:
        every += [(None, None, None), (h0, None, None), (None, mask, None), (None, None, reset)]
    for h0_, mask_, reset_ in every:
        y, last, x = run(u, h0_, mask_, reset_)
        loop_args = [None if a is None else np.asarray(a) for a in (mask_, reset_)]
        start = None if h0_ is None else as_complex(h0_)
        expected_y, expected_last, expected_x = diagonal_loop(system, np.asarray(u), start, *loop_args, reverse=reverse)
        np.testing.assert_allclose(y, expected_y, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(as_complex(last), expected_last, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(x, expected_x, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_bidirectional_is_the_sum_of_both_ways_with_one_skip(x64, method):
    system = make_system(bidirectional=True)
    u, mask, reset, h0 = inputs(9)
    forward = system._replace(c_backward_re=None, c_backward_im=None)
    backward = forward._replace(c_re=system.c_backward_re, c_im=system.c_backward_im, d=jnp.zeros(WIDTH))
    y, last = diagonal_layer(system, u, jnp.stack([h0, 2 * h0]), mask=mask, reset=reset, method=method)
    y_forward, last_forward, _ = diagonal_loop(
        forward, np.asarray(u), as_complex(h0), np.asarray(mask), np.asarray(reset)
    )
    y_backward, last_backward, _ = diagonal_loop(
        backward, np.asarray(u), 2 * as_complex(h0), np.asarray(mask), np.asarray(reset), reverse=True
    )
    np.testing.assert_allclose(y, y_forward + y_backward, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(as_complex(last), np.stack([last_forward, last_backward]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_gradients_of_both_methods_agree(x64, bidirectional):
    system = make_system(bidirectional, start_gain=True)
    u, mask, reset, h0 = inputs(9)
    h0 = jnp.stack([h0, h0]) if bidirectional else h0
    g = jnp.asarray(np.random.default_rng(2).normal(size=u.shape))

    def loss(system, u, h0, method):
        y, last = diagonal_layer(system, u, h0, mask=mask, reset=reset, method=method)
        return (g * y).sum() + jnp.sin(last).sum()

    own, autodiff = (jax.jit(jax.grad(loss, (0, 1, 2)), static_argnums=3)(system, u, h0, m) for m in METHODS)
    for x, y in zip(jax.tree.leaves(own), jax.tree.leaves(autodiff), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-11)


def test_content_and_amount_of_padding_do_not_matter(x64):
    system = make_system(bidirectional=True)
    u, _, _, _ = inputs(12)
    mask = jnp.arange(12) < jnp.asarray([[12], [7], [1]])
    y, last = diagonal_layer(system, u, mask=mask)
    longer = jnp.concatenate([jnp.where(mask[..., None], u, 1e3), jnp.full((BATCH, 5, WIDTH), -7.0)], 1)
    more = jnp.concatenate([mask, jnp.zeros((BATCH, 5), bool)], 1)
    y_longer, last_longer = diagonal_layer(system, longer, mask=more)
    np.testing.assert_allclose(y_longer[:, :12], y, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(last_longer, last, rtol=1e-13, atol=1e-13)
    assert not y_longer[:, 12:].any()


@pytest.mark.parametrize("method", METHODS)
def test_a_nan_in_a_masked_step_reaches_nothing(method):
    system = jax.tree.map(jnp.float32, make_system(bidirectional=True))
    mask = jnp.asarray([[True, False, True]])
    u = jnp.asarray([[[1.0, 2.0], [jnp.nan, jnp.nan], [3.0, 4.0]]])
    y, last = diagonal_layer(system, u, mask=mask, method=method)
    expected, expected_last = diagonal_layer(system, u.at[:, 1].set(0), mask=mask, method=method)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(last, expected_last)
    assert not y[:, 1].any()


@pytest.mark.parametrize("start_gain", [False, True])
def test_steps_and_pieces_equal_the_whole(x64, start_gain):
    system = make_system(start_gain=start_gain)
    u, _, reset, _ = inputs(9)
    whole, last = diagonal_layer(system, u, reset=reset)
    first, carried = diagonal_layer(system, u[:, :4], reset=reset[:, :4])
    second, end = diagonal_layer(system, u[:, 4:], carried, reset=reset[:, 4:])
    np.testing.assert_allclose(jnp.concatenate([first, second], 1), whole, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(end, last, rtol=1e-12, atol=1e-12)
    h = jnp.zeros((BATCH, 2 * MODES))
    for t in range(9):
        y, h = diagonal_step(system, u[:, t], h, reset=reset[:, t], started=jnp.full(BATCH, t > 0))
        np.testing.assert_allclose(y, whole[:, t], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
def test_start_gain_scales_only_the_first_valid_input_of_each_sequence(x64, reverse):
    """Scaling that input by hand gives the same; rows: plain, padded and packed, with gaps."""
    system = make_system(start_gain=True)
    gain = 3.0
    system = system._replace(start_gain=jnp.full(MODES, gain), d=jnp.zeros(WIDTH))
    mask = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [0, 1, 1, 0, 1, 1]], bool)
    reset = np.zeros_like(mask)
    reset[1, 2] = reset[2, 3] = True
    firsts = [{0}, {0, 2}, {1, 4}] if not reverse else [{5}, {3, 1}, {5, 2}]
    u, *_ = inputs(6)
    scaled = np.array(u)
    for row, places in enumerate(firsts):
        scaled[row, list(places)] *= gain
    y, _ = diagonal_layer(system, u, mask=jnp.asarray(mask), reset=jnp.asarray(reset), reverse=reverse)
    plain = system._replace(start_gain=None)
    expected, _ = diagonal_layer(
        plain, jnp.asarray(scaled), mask=jnp.asarray(mask), reset=jnp.asarray(reset), reverse=reverse
    )
    np.testing.assert_allclose(y, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("reverse", [False, True])
def test_energies_equal_those_of_the_stored_states(x64, reverse):
    system = make_system(start_gain=True)
    u, mask, _, _ = inputs(17)
    times = (1, 2, 5, 17, 40)
    found = diagonal_energy(system, u, times, mask=mask, reverse=reverse)
    *_, x = diagonal_layer(system, u, mask=mask, reverse=reverse, states="all")
    squared, mask = np.abs(np.asarray(x)) ** 2, np.asarray(mask)
    np.testing.assert_allclose(found.energy, squared[mask].mean(0), rtol=1e-12)
    order = slice(None, None, -1 if reverse else 1)
    rows = [squared[i, order][mask[i, order]].sum(1) for i in range(BATCH)]
    for t, energy in zip(times, found.energy_t, strict=True):
        reached = [row[t - 1] for row in rows if len(row) >= t]
        np.testing.assert_allclose(energy, np.mean(reached) if reached else np.nan, rtol=1e-12)
    b = np.asarray(system.b_re) + 1j * np.asarray(system.b_im)
    valid = np.asarray(u)[mask]
    spread = 1 - np.exp(2 * np.asarray(system.log_mag))
    np.testing.assert_allclose(found.gain, (np.abs(b) ** 2).sum(1) / spread, rtol=1e-12)
    np.testing.assert_allclose(found.gain_align, (np.abs(valid @ b.T) ** 2).mean(0) / spread, rtol=1e-12)


def test_white_inputs_reach_the_gain(x64):
    """E|x_t|^2 = gain (1 - |lambda|^(2t)) under white unit input; 20,000 sequences, five standard errors."""
    system = make_system()
    count, steps = 20_000, 6
    u = jax.random.normal(jax.random.key(0), (count, steps, WIDTH))
    *_, x = diagonal_layer(system, u, states="all")
    squared = np.abs(np.asarray(x)) ** 2
    gain = np.asarray(diagonal_energy(system, u[:1], (1,)).gain)
    t = np.arange(1, steps + 1)[:, None]
    law = gain * (1 - np.exp(2 * np.asarray(system.log_mag) * t))
    error = squared.std(0) / np.sqrt(count)
    assert (np.abs(squared.mean(0) - law) < 5 * error).all()
    assert (error < 0.02 * law).all()


def test_refuses_empty_and_contradictory_calls():
    with pytest.raises(ValueError, match="at least one time step"):
        diagonal_layer(make_system(), jnp.zeros((1, 0, WIDTH)))
    with pytest.raises(ValueError, match="already runs both ways"):
        diagonal_layer(make_system(bidirectional=True), jnp.zeros((1, 3, WIDTH)), reverse=True)
    with pytest.raises(ValueError, match="states='alll': expected none or all"):
        diagonal_layer(make_system(), jnp.zeros((1, 3, WIDTH)), states="alll")


def test_methods_are_chosen_by_name_and_agree_in_float32():
    system, run = jax.tree.map(jnp.float32, make_system()), jax.jit(diagonal_layer, static_argnames=("method", "chunk"))
    u = jnp.float32(np.random.default_rng(0).normal(size=(2, 33, WIDTH)))
    auto, chunked, sequential, associative = (
        run(system, u, method=m)[0] for m in (ScanMethod.AUTO, ScanMethod.CHUNKED, *METHODS)
    )
    np.testing.assert_array_equal(auto, sequential)
    np.testing.assert_array_equal(run(system, u, chunk=2)[0], chunked)
    for other in (chunked, associative):
        np.testing.assert_allclose(other, sequential, rtol=0, atol=1e-5)
        assert not np.array_equal(other, sequential)


def gradient_program(steps):
    """The compiled layer with all its gradients, at a fixed small size."""
    system = jax.tree.map(jnp.float32, make_system())

    def run(system, u, g):
        (y, h_last), vjp = jax.vjp(lambda s, u: diagonal_layer(s, u, method=ScanMethod.SEQUENTIAL), system, u)
        return y, vjp((g, h_last))

    u = jnp.zeros((2, steps, WIDTH), jnp.float32)
    return jax.jit(run).lower(system, u, u)


def test_program_is_small_compiles_fast_and_does_not_grow_with_time():
    """An unrolled or expanded loop breaks these bounds by far; a busy machine does not."""
    sizes = {steps: len(gradient_program(steps).as_text().splitlines()) for steps in (61, 64, 16381, 16384)}
    assert sizes[61] == sizes[16381] < 800  # primes cannot be cut into segments
    assert sizes[64] < sizes[16384] < sizes[64] + 100  # squarings of lambda, as many as a segment's length has digits
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        began = time.process_time()
        gradient_program(16384).compile()
        assert time.process_time() - began < 30
    finally:
        jax.config.update("jax_enable_compilation_cache", True)


def test_states_are_the_only_arrays_as_long_as_time():
    """The transition is never expanded over time: what has T x N entries is made from inputs or states."""
    modes, steps = 64, 512
    fixed = jnp.zeros(modes)
    weights = jnp.zeros((modes, WIDTH))
    system = DiagonalSystem(fixed, fixed, weights, weights, weights.T, weights.T, jnp.zeros(WIDTH))
    for method in METHODS:
        run = lambda u, m=method: diagonal_layer(system, u, method=m)[0]  # noqa: E731
        jaxpr = jax.make_jaxpr(run)(jnp.zeros((1, steps, WIDTH))).jaxpr
        spread = [
            e for e in jaxpr.eqns if e.primitive.name == "broadcast_in_dim" and e.outvars[0].aval.size >= steps * modes
        ]
        assert not spread, method


@pytest.mark.parametrize("shape", [(1, 2 * MODES), (BATCH, MODES), (2, BATCH, 2 * MODES)])
def test_a_start_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"h0 must have shape \(3, 6\), got "):
        diagonal._check_start(make_system(), BATCH, jnp.zeros(shape))
