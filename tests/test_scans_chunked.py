"""The chunked layer against the float64 loop and against the recurrence: directions, tails, padding, resets, starts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import diagonal_loop

from scans import DiagonalSystem, ScanMethod, diagonal_layer
from scans.diagonal import Call, choose
from tests.test_scans_diagonal import BATCH, MODES, WIDTH, as_complex, make_system

CHUNKS = (2, 3, 4, 8)
WAYS = ("forward", "backward", "bidirectional")


def lengths_of_tails(chunk):
    return sorted({1, 2, chunk - 1, chunk, chunk + 1, 3 * chunk, 3 * chunk + 1, 57} - {0})


def drawn(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def both(system, u, h0=None, *, chunk, lengths=None, reset=None, reverse=False, started=None):
    """What chunks give, and what the recurrence over every step gives, for a reset of each chunk."""
    by_step = None
    if reset is not None:
        by_step = jnp.zeros(u.shape[:2], bool).at[:, ::chunk].set(reset)
    found = diagonal_layer(
        system, u, h0, mask=lengths, reset=reset, reverse=reverse, started=started, method="chunked", chunk=chunk
    )
    expected = diagonal_layer(
        system, u, h0, mask=lengths, reset=by_step, reverse=reverse, started=started, method="sequential"
    )
    return found, expected


def assert_close(found, expected, tolerance=1e-11):
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


@pytest.mark.every(3)
@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("carried", [False, True])
def test_every_tail_equals_the_loop(x64, chunk, reverse, carried):
    system = make_system()
    h0 = drawn(BATCH, 2 * MODES, seed=3) if carried else None
    run = jax.jit(lambda u: diagonal_layer(system, u, h0, reverse=reverse, method="chunked", chunk=chunk))
    for steps in lengths_of_tails(chunk):
        u = drawn(BATCH, steps, WIDTH, seed=steps)
        y, last = run(u)
        start = None if h0 is None else as_complex(h0)
        expected, expected_last, _ = diagonal_loop(system, np.asarray(u), start, reverse=reverse)
        np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(as_complex(last), expected_last, rtol=1e-12, atol=1e-12)


@pytest.mark.every(3)
@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("way", WAYS)
def test_values_and_gradients_equal_those_of_the_recurrence(x64, chunk, way):
    """By the system, the inputs and the carried state, through outputs and last state."""
    system = make_system(bidirectional=way == "bidirectional")
    steps = 3 * chunk + 1
    u, h0 = drawn(BATCH, steps, WIDTH), drawn(BATCH, 2 * MODES, seed=1)
    h0 = jnp.stack([h0, -h0]) if way == "bidirectional" else h0
    g = drawn(BATCH, steps, WIDTH, seed=2)

    def loss(system, u, h0, method):
        y, last = diagonal_layer(
            system, u, h0, reverse=way == "backward", method=method, chunk=chunk if method == "chunked" else None
        )
        return (g * y).sum() + jnp.sin(last).sum(), (y, last)

    found, expected = (
        jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True), static_argnums=3)(system, u, h0, method)
        for method in ("chunked", "sequential")
    )
    assert_close(found, expected)


@pytest.mark.every(4)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("steps", [8, 9, 11])
def test_resets_at_the_starts_of_chunks(x64, way, steps):
    chunk = 4
    reset = jnp.zeros((BATCH, -(-steps // chunk)), bool).at[1, 1].set(True).at[2, 0].set(True)
    reset = reset.at[0, -1].set(True)
    system = make_system(bidirectional=way == "bidirectional")
    h0 = drawn(BATCH, 2 * MODES, seed=1)
    h0 = jnp.stack([h0, -h0]) if way == "bidirectional" else h0
    u = drawn(BATCH, steps, WIDTH)
    found, expected = both(system, u, h0, chunk=chunk, reset=reset, reverse=way == "backward")
    assert_close(found, expected)
    assert not np.allclose(found[0], both(system, u, h0, chunk=chunk, reverse=way == "backward")[0][0])


@pytest.mark.every(5)
@pytest.mark.parametrize("chunk", [2, 4])
@pytest.mark.parametrize("steps", [8, 11])
@pytest.mark.parametrize("way", WAYS)
def test_padding_at_the_end_holds_the_state(x64, chunk, way, steps):
    """Lengths of one step, within a chunk, of whole chunks, within the tail, and none at all; padding is NaN."""
    system = make_system(bidirectional=way == "bidirectional")
    lengths = jnp.asarray([1, chunk, chunk + 1, steps, steps - 1, 0])
    u = drawn(len(lengths), steps, WIDTH)
    u = jnp.where(jnp.arange(steps)[None, :, None] < lengths[:, None, None], u, jnp.nan)
    h0 = drawn(len(lengths), 2 * MODES, seed=1) if way == "forward" else None
    found, expected = both(system, u, h0, chunk=chunk, lengths=lengths, reverse=way == "backward")
    assert_close(found, expected)


@pytest.mark.parametrize("method", ["sequential", "chunked"])
def test_lengths_beyond_the_end_are_the_whole(x64, method):
    system, u = make_system(), drawn(2, 9, WIDTH)
    found = diagonal_layer(system, u, mask=jnp.asarray([12, 14]), method=method)
    assert_close(found, diagonal_layer(system, u, method=method))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("modulus", [0.7, 1e-12])
def test_a_stationary_start(x64, way, modulus):
    """g = (1 - |lambda|^2)^(-1/2) on the first input, of sequences that have not started yet."""
    system = make_system(bidirectional=way == "bidirectional")
    gain = 1 / np.sqrt(-np.expm1(2 * np.log(modulus)))
    system = system._replace(log_mag=jnp.full(MODES, np.log(modulus)), start_gain=jnp.full(MODES, gain))
    u, reverse = drawn(BATCH, 9, WIDTH), way == "backward"
    found, expected = both(system, u, chunk=4, reverse=reverse)
    assert_close(found, expected, 1e-13)
    if way == "bidirectional":
        return
    started = jnp.asarray([True, False, True])
    h0 = jnp.where(started[:, None], drawn(BATCH, 2 * MODES, seed=1), 0)
    found, expected = both(system, u, h0, chunk=4, reverse=reverse, started=started)
    assert_close(found, expected)


def test_pieces_equal_the_whole(x64):
    system, u = make_system(), drawn(BATCH, 11, WIDTH)
    whole, last = diagonal_layer(system, u, method="chunked", chunk=4)
    first, h = diagonal_layer(system, u[:, :6], method="chunked", chunk=4)
    second, end = diagonal_layer(system, u[:, 6:], h, method="chunked", chunk=3)
    assert_close((jnp.concatenate([first, second], 1), end), (whole, last))


@pytest.mark.parametrize("way", WAYS)
def test_the_parallel_recurrence_between_chunks(x64, monkeypatch, way):
    """What an accelerator runs."""
    system = make_system(bidirectional=way == "bidirectional")
    u, reverse = drawn(BATCH, 19, WIDTH), way == "backward"
    reset = jnp.zeros((BATCH, 5), bool).at[1, 2].set(True)
    _, expected = both(system, u, chunk=4, reset=reset, reverse=reverse)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    found, _ = both(system, u, chunk=4, reset=reset, reverse=reverse)
    assert_close(found, expected)


def long_system(modulus):
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=shape) / 8 for shape in ((16, 4), (16, 4), (4, 16), (4, 16), (4,))]
    parts = [np.full(16, np.log(modulus)), rng.uniform(0, 2 * np.pi, 16), *parts]
    return DiagonalSystem(*(part.astype(np.float32).astype(float) for part in parts))


@pytest.mark.parametrize("chunk", [2, 8])
def test_float32_stays_within_what_lambda_is_rounded_to(chunk):
    """5e-8 / (1 - |lambda|) of the largest output at |lambda| = 0.9999 over 16,384 steps (numpy in float64)."""
    system = long_system(0.9999)
    u = np.random.default_rng(1).normal(size=(1, 16384, 4))
    lam, b = np.exp(system.log_mag + 1j * system.phase), system.b_re + 1j * system.b_im
    x, y = np.zeros(16, complex), np.zeros_like(u[0])
    for t, u_t in enumerate(u[0]):
        x = lam * x + b @ u_t
        y[t] = ((system.c_re + 1j * system.c_im) @ x).real + system.d * u_t
    single = jax.tree.map(lambda part: jnp.asarray(part, jnp.float32), system)
    found, _ = diagonal_layer(single, jnp.asarray(u, jnp.float32), method="chunked", chunk=chunk)
    assert np.abs(found[0] - y).max() / np.abs(y).max() < 5e-8 / (1 - 0.9999)


# What is chosen, and what is refused.


def shaped(width, modes, dtype=jnp.float32):
    """A call of these sizes; only shapes matter."""
    zeros = lambda *shape: jnp.zeros(shape, jnp.float32)  # noqa: E731
    system = DiagonalSystem(
        zeros(modes), zeros(modes), zeros(modes, width), zeros(modes, width), zeros(width, modes), zeros(width, modes),
        zeros(width),
    )  # fmt: skip
    return Call(system, jnp.zeros((2, 64, width), dtype), None, None, None, False, "none")


@pytest.mark.parametrize(
    ("platform", "call", "expected"),
    [
        ("cpu", shaped(128, 256), 1),
        ("cpu", shaped(128, 256, dtype=jnp.bfloat16), 1),
        ("gpu", shaped(128, 256), 1),
        ("gpu", shaped(128, 256, dtype=jnp.bfloat16), 8),
        ("gpu", shaped(128, 128, dtype=jnp.bfloat16), 4),
        ("tpu", shaped(512, 192, dtype=jnp.bfloat16), 1),
    ],
)
def test_auto_looks_at_platform_and_shape(monkeypatch, platform, call, expected):
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    between = ScanMethod.SEQUENTIAL if platform == "cpu" else ScanMethod.ASSOCIATIVE
    assert choose(call, ScanMethod.AUTO, None) == (between, expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"mask": jnp.ones((2, 64), bool)},
        {"reset": jnp.ones((2, 64), bool)},
        {"states": "all"},
        {"mask": jnp.ones(2, int), "reverse": True, "h0": jnp.ones((2, 512))},
    ],
)
def test_auto_goes_step_by_step_where_chunks_cannot(changes):
    call = shaped(128, 256)
    assert choose(call, ScanMethod.AUTO, 4)[1] == 4
    assert choose(call._replace(**changes), ScanMethod.AUTO, 4)[1] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mask": jnp.ones((BATCH, 9), bool)}, "method=chunked: a mask of flags: chunks take lengths"),
        ({"states": "all"}, "method=chunked: states=all: chunks hold no states of single steps"),
        ({"reset": jnp.ones((BATCH, 9), bool)}, r"takes a reset for each of 5 chunks, got \(3, 9\)"),
        (
            {"mask": jnp.ones(BATCH, int), "reverse": True, "h0": jnp.ones((BATCH, 2 * MODES))},
            "method=chunked: a backward pass over padding that starts from a state",
        ),
        (
            {"mask": jnp.ones(BATCH, int), "reset": jnp.ones((BATCH, 5), bool)},
            "method=chunked: resets beside padding",
        ),
        ({"chunk": 9}, "chunk=9: expected 1 to 8"),
        ({"chunk": 2, "method": "sequential"}, "chunk=2 with method=sequential: expected auto or chunked"),
    ],
)
def test_refused_in_one_line(arguments, message):
    with pytest.raises(ValueError, match=message):
        diagonal_layer(make_system(), jnp.ones((BATCH, 9, WIDTH)), **{"method": "chunked", **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"reset": jnp.ones((BATCH, 5), bool)}, "a stationary start after a reset"),
        ({"mask": jnp.asarray([9, 4, 0])}, "a stationary start beside padding"),
    ],
)
def test_a_stationary_start_is_refused_where_it_has_no_place(arguments, message):
    """AUTO goes step by step there: a sequence without an input keeps its state."""
    system, u = make_system(start_gain=True), jnp.ones((BATCH, 9, WIDTH))
    with pytest.raises(ValueError, match=f"method=chunked: {message}"):
        diagonal_layer(system, u, method="chunked", **arguments)
    if "mask" in arguments:
        assert not diagonal_layer(system, u, chunk=4, **arguments)[1][2].any()


def test_no_array_is_as_long_as_time_but_inputs_and_outputs():
    """The states of every step, (B, T, 2N), are never made, not even for the gradient; the recurrence makes them."""
    system = jax.tree.map(jnp.float32, make_system())
    u = jnp.ones((2, 4096, WIDTH), jnp.float32)

    def temporary(method, chunk):
        run = jax.jit(jax.grad(lambda s, u: (diagonal_layer(s, u, method=method, chunk=chunk)[0] ** 2).sum(), (0, 1)))
        found = run.lower(system, u).compile().memory_analysis()
        assert found is not None
        return found.temp_size_in_bytes

    assert temporary("chunked", 8) < 0.5 * temporary("sequential", None)
