"""The laws of RotRNN (arXiv 2407.07239) through the registered module: at initialisation and after training."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layer_runs import (
    Run,
    assert_all_finite,
    assert_close,
    assert_mean,
    assert_normal,
    assert_uniform,
    by_steps,
    evaluate,
    extreme_uniforms,
    mode_energy,
    normals,
    outputs,
    trained,
)
from reference import diagonal_loop
from scipy.linalg import block_diag, expm

from rotrnn import GammaInit, RotRNNConfig

WIDTH, HEADS, N = 3, 2, 4
RANGE = {"gamma_min": 0.5, "gamma_max": 0.9}
START_LAW = {"zero": lambda gamma, t: 1 - gamma ** (2 * t), "stationary": lambda gamma, t: 1.0 + 0 * gamma * t}


def sizes(heads=HEADS, n=N, **options) -> dict[str, Any]:
    return {"state_size": heads * n, "heads": heads} | RANGE | options


def make(seed=0, *, width=WIDTH, **options) -> Run:
    return Run.of("rotrnn", width, seed, **sizes(**options))


@functools.cache
def before_and_after_training(start: str) -> tuple[Run, Run]:
    """Bidirectional, P far from the identity."""
    first = make(start=start, direction="bidirectional", init="clean")
    return first, trained(first, WIDTH)


def forward_half(run: Run, **options) -> Run:
    """The forward layer inside a bidirectional one."""
    shell = Run.drawn("rotrnn", WIDTH, **sizes(**options))
    return shell.with_params(**{k: v for k, v in run.params.items() if k != "C_backward"})


def gammas(run: Run) -> np.ndarray:
    return np.exp(-np.exp(run.array("gamma_log")))


def bases(run: Run) -> np.ndarray:
    return np.stack([expm(m - m.T) for m in run.array("M")])


def published_xi(run: Run) -> np.ndarray:
    return np.sqrt((1 - gammas(run) ** 2) / (run.array("B") ** 2).sum((1, 2)))


def head_energy(x):
    """|x|^2 of every head of a state [Re | Im]."""
    energy = mode_energy(x)
    return energy.reshape(*energy.shape[:-1], HEADS, -1).sum(-1)


def turned(c: np.ndarray, p: np.ndarray) -> np.ndarray:
    """C_h P_h of every head."""
    return np.asarray(c) @ block_diag(*p)


def test_transition_is_a_decayed_rotation(x64):
    """What the module makes of a state while its input is 0, in full and by a step: gamma A, A = P Theta P^T."""
    size = HEADS * N

    @jax.jit
    def move(params, z):
        layer = first.on(params).module()
        state = layer.initial_state(size)._replace(x=jnp.concatenate([z[:, 0::2], z[:, 1::2]], 1))
        zero = jnp.zeros((size, WIDTH))
        moved = [layer(zero[:, None], state)[1].x, layer.step(zero, state)[1].x]
        return [jnp.stack(jnp.split(x, 2, -1), -1).reshape(size, size) for x in moved], layer.basis()

    runs = [forward_half(run) for run in before_and_after_training("zero")]
    first = runs[0]
    for run in runs:
        p, gamma = block_diag(*bases(run)), np.repeat(gammas(run), N)
        turns = [[[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]] for t in run.array("theta").ravel()]
        states, basis = move(run.params, p)
        for z in states:
            # Row i of p is P^T e_i: the state after one step from e_i in the original basis is column i of gamma A.
            a = block_diag(*np.asarray(basis)) @ np.asarray(z).T / gamma
            assert_close(a @ a.T, np.eye(size))
            assert_close([np.linalg.det(a[:N, :N]), np.linalg.det(a)], [1.0, 1.0])
            assert_close(a, p @ block_diag(*turns) @ p.T)


@pytest.mark.parametrize("start", START_LAW)
def test_energy_law_by_simulation(x64, start):
    """White inputs, 20,000 sequences for every length, ragged with full padding, both directions; and by steps."""
    count, lengths, steps = 20_000, np.array([1, 2, 6]), 6
    mask = jnp.asarray(np.arange(steps) < np.repeat(lengths, count)[:, None])
    runs = before_and_after_training(start)
    causal = [forward_half(run, start=start) for run in runs]
    full = jax.jit(lambda params, u, mask: head_energy(runs[0].on(params).module()(u, mask=mask)[1].x))
    step = jax.jit(lambda params, u: head_energy(by_steps(causal[0].on(params), u)[1]))
    for seed, (run, forward) in enumerate(zip(runs, causal, strict=True)):
        u = normals(len(mask), steps, WIDTH, seed=seed)
        law = START_LAW[start](gammas(run), lengths[:, None])
        for way in np.asarray(full(run.params, u, mask)).reshape(2, len(lengths), count, HEADS):
            assert_mean(np.swapaxes(way, 0, 1), law)
        assert_mean(np.asarray(step(forward.params, u[:count]))[:, lengths - 1], law)


@pytest.mark.parametrize("start", START_LAW)
def test_energy_law_exactly(x64, start):
    """E|x_t|^2 under white inputs is the sum of |x_t|^2 over all unit impulses; and the gain of every head is 1."""
    steps = 5
    impulses = np.eye(steps * WIDTH).reshape(-1, steps, WIDTH)
    runs = before_and_after_training(start)

    @jax.jit
    def energies(params):
        _, state, diagnostics = runs[0].on(params).module()(jnp.asarray(impulses), probe=(1,))
        return head_energy(state.x).sum(1), diagnostics["gain"]

    stepped = jax.jit(lambda params: head_energy(by_steps(causal[0].on(params), impulses)[1]).sum(0))
    causal = [forward_half(run, start=start) for run in runs]
    for run, forward in zip(runs, causal, strict=True):
        both, gain = energies(run.params)
        law = START_LAW[start](gammas(run), np.arange(1, steps + 1)[:, None])
        assert_close(both, np.stack([law[-1], law[-1]]))
        # Impulses up to t alone have reached the state at t.
        assert_close(stepped(forward.params), law)
        assert_close(gain, np.ones(2 * HEADS))


@pytest.mark.parametrize("start", START_LAW)
def test_the_basis_can_be_absorbed(x64, start):
    u, cotangent = normals(2, 6, WIDTH), normals(2, 6, WIDTH, seed=2)
    run = before_and_after_training(start)[1]
    p = bases(run)
    new = {k: v for k, v in run.params.items() if k != "M"} | {
        "B": np.swapaxes(p, 1, 2) @ run.array("B"),
        "C": turned(run.params["C"], p),
        "C_backward": turned(run.params["C_backward"], p),
    }
    assert np.abs(new["B"] - run.array("B")).max() > 0.1
    plain = Run.drawn("rotrnn", WIDTH, **sizes(start=start, direction="bidirectional", orthogonal="identity"))
    assert plain.params.keys() == run.params.keys() - {"M"}
    found, expected = evaluate(plain.with_params(**new), u, cotangent), evaluate(run, u, cotangent)
    for what in ("y", "x", "by_u"):
        assert_close(found[what], expected[what])


def test_the_scale_of_b_does_not_matter(x64):
    """B_h -> s_h B_h leaves the output, so that the gradient is orthogonal to B_h."""
    u, cotangent = jnp.asarray(normals(2, 6, WIDTH)), normals(2, 6, WIDTH, seed=2)
    runs = before_and_after_training("zero")

    @jax.jit
    def output_and_gradient(b, params):
        def value(b):
            y = runs[0].on(params | {"B": b}).module()(u)[0]
            return (y * cotangent).sum(), y

        return jax.grad(value, has_aux=True)(b)

    for run in runs:
        b = run.array("B")
        g, y = output_and_gradient(b, run.params)
        assert_close(output_and_gradient(np.array([3.0, 0.02])[:, None, None] * b, run.params)[1], y)
        norms = np.sqrt((b**2).sum((1, 2)) * (np.asarray(g) ** 2).sum((1, 2)))
        assert (norms > 1e-3).all()
        assert (np.abs((b * np.asarray(g)).sum((1, 2))) < 1e-13 * norms).all()


def lru_of(run: Run, *, full: bool, **options) -> Run:
    """The LRU with the modes of a RotRNN layer; `full` stores both of every conjugate pair."""
    p = bases(run)
    heads, n, _ = p.shape
    b = (np.swapaxes(p, 1, 2) @ run.array("B")).reshape(heads * n, -1)
    theta = np.mod(run.array("theta"), 2 * np.pi).ravel()
    params = {
        "nu_log": np.repeat(run.array("gamma_log"), n // 2),
        "theta_log": np.log(theta),
        "gamma_log": np.log(np.repeat(published_xi(run), n // 2)),
        "B_re": b[0::2],
        "B_im": b[1::2],
    }
    for name in run.params.keys() & {"C", "C_backward"}:
        c = turned(run.params[name], p)
        params |= {f"{name}_re": c[:, 0::2], f"{name}_im": -c[:, 1::2]}
    if full:
        for name, value in params.items():
            sign = -1 if name.endswith("_im") else 1
            mirrored = np.log(2 * np.pi - theta) if name == "theta_log" else sign * value
            half = 0.5 if name.startswith("C") else 1
            params[name] = half * np.concatenate([value, mirrored], 1 if name.startswith("C") else 0)
    shell = Run.drawn("lru", run.array("D").size, state_size=params["nu_log"].size, **options)
    return shell.with_params(D=run.params["D"], **params)


@pytest.mark.parametrize(
    ("direction", "heads", "n", "steps"), [("forward", 2, 4, 6), ("backward", 3, 2, 9), ("bidirectional", 1, 6, 5)]
)
def test_a_layer_is_an_lru_with_its_modes(x64, direction, heads, n, steps):
    u, cotangent = normals(2, steps, WIDTH), normals(2, steps, WIDTH, seed=2)
    mask = np.arange(steps) < np.array([[steps], [steps - 2]])
    run = Run.drawn("rotrnn", WIDTH, **sizes(heads, n, direction=direction))
    half, full = (lru_of(run, full=f, direction=direction) for f in (False, True))
    expected = evaluate(run, u, cotangent, mask)
    for lru in (half, full):
        found = evaluate(lru, u, cotangent, mask)
        assert_close([found["y"], found["by_u"]], [expected["y"], expected["by_u"]])
        if lru is half:
            assert_close(found["x"], expected["x"])
    if direction == "forward":
        as_lru, as_rotrnn = (jax.jit(lambda u, r=r: by_steps(r, u))(u) for r in (half, run))
        assert_close(as_lru, as_rotrnn)
        system = full.module().system()
        states = diagonal_loop(system, u)[2]
        output = states @ (np.asarray(system.c_re) + 1j * np.asarray(system.c_im)).T
        assert np.abs(output.real).max() > 0.1
        assert np.abs(output.imag).max() < 1e-12


@pytest.mark.parametrize(("direction", "n"), [("forward", 2), ("bidirectional", 4)])
def test_an_lru_with_modes_of_equal_modulus_is_a_layer(x64, direction, n):
    modes, planes = 4, n // 2
    u, cotangent = normals(2, 6, WIDTH), normals(2, 6, WIDTH, seed=2)
    lru = Run.drawn("lru", WIDTH, state_size=modes, direction=direction)
    gamma_log = lru.array("nu_log")[::planes]
    lru = lru.with_params(nu_log=np.repeat(gamma_log, planes))
    b = np.stack([lru.array("B_re"), lru.array("B_im")], 1) * np.exp(lru.array("gamma_log"))[:, None, None]
    b = b.reshape(modes // planes, n, WIDTH)
    rho = np.sqrt((b**2).sum((1, 2)) / (1 - np.exp(-2 * np.exp(gamma_log))))
    params = {"gamma_log": gamma_log, "theta": np.exp(lru.array("theta_log")).reshape(-1, planes), "B": b}
    for name in ("C", "C_backward")[: 2 if direction == "bidirectional" else 1]:
        c = np.stack([lru.array(f"{name}_re"), -lru.array(f"{name}_im")], 2)
        params[name] = c.reshape(WIDTH, -1) * np.repeat(rho, n)
    shell = Run.drawn("rotrnn", WIDTH, **sizes(modes // planes, n, direction=direction, orthogonal="identity"))
    found = evaluate(shell.with_params(D=lru.params["D"], **params), u, cotangent)
    expected = evaluate(lru, u, cotangent)
    assert_close([found["y"], found["by_u"]], [expected["y"], expected["by_u"]])
    assert_close(np.asarray(found["x"]) * np.tile(np.repeat(rho, planes), 2), expected["x"])


def test_normalise_options(x64):
    u = normals(2, 6, WIDTH)
    runs = {name: make(normalise=name, orthogonal="identity") for name in ("xi", "folded", "init", "off")}
    y, xi = {name: outputs(run, u) for name, run in runs.items()}, published_xi(runs["xi"])
    assert_close([y["folded"], y["init"]], [y["xi"], y["xi"]])
    assert np.abs(y["off"] - y["xi"]).max() > 0.1
    assert_close(outputs(runs["off"].with_params(B=xi[:, None, None] * runs["off"].array("B")), u), y["xi"])
    held, recomputed = trained(runs["init"], WIDTH), trained(runs["xi"], WIDTH)
    np.testing.assert_array_equal(held.array("xi"), runs["init"].array("xi"))
    assert (np.abs(held.array("B") - runs["init"].array("B")) > 1e-3).all()
    assert_close([held.array("xi"), held.module().input_gain()], [xi, xi])
    assert_close(recomputed.module().input_gain(), published_xi(recomputed))
    assert (np.abs(published_xi(recomputed) / xi - 1) > 0.01).all()


def test_theta_can_be_stored_as_its_logarithm(x64):
    u = normals(2, 6, WIDTH)
    raw, log = make(orthogonal="identity"), make(orthogonal="identity", theta_storage="log")
    assert_close(log.array("theta_log"), np.log(raw.array("theta")))
    assert raw.params.keys() - {"theta"} == log.params.keys() - {"theta_log"}
    assert_close(outputs(log, u), outputs(raw, u))


BIG: dict[str, Any] = {"width": 100, "heads": 4, "n": 50, "direction": "bidirectional"}
JOINT, INPUT, STATE = 1 / np.sqrt(300), 1 / np.sqrt(100), 1 / np.sqrt(200)
STDS = {  # M, B, C
    "training": (JOINT, JOINT, JOINT),
    "clean": (1, JOINT, JOINT),
    "simple": (1, INPUT, STATE),
    "appendix": (1, INPUT, STATE),
}


@pytest.mark.parametrize("option", STDS)
def test_initial_standard_deviations(option):
    run = make(init=option, **BIG)
    m, b, c = STDS[option]
    for name, std in {"M": m, "B": b, "C": c, "C_backward": c, "D": 1}.items():
        assert_normal(run.array(name), std)
    shared = np.corrcoef(run.array("C").ravel(), run.array("C_backward").ravel())[0, 1]
    assert abs(shared) < 5 / np.sqrt(run.array("C").size)


def test_unit_output_gives_outputs_of_variance_one():
    """Summed over unit inputs, which is exact for white ones, at the first step of a stationary start."""
    options: dict[str, Any] = BIG | {"direction": "forward", "start": "stationary", "output_init": "unit_output"}
    run = make(**options)
    assert_normal(run.array("C"), 1 / np.sqrt(4))
    u = np.eye(100, dtype=np.float32)
    y = outputs(run, u[:, None])[:, 0] - run.array("D") * u
    assert_mean((y**2).sum(0), 1.0)


@pytest.mark.parametrize(
    ("options", "law"),
    [
        ({}, "log_uniform"),
        ({"init": "clean"}, "log_uniform"),
        ({"init": "appendix"}, "ring"),
        ({"init": "appendix", "gamma_init": "log_uniform"}, "log_uniform"),
        ({"gamma_init": "ring"}, "ring"),
    ],
)
def test_laws_of_decays_and_angles(options, law):
    low, high, theta_max, heads = 0.1, 0.9999, np.pi / 10, 4000
    run = make(
        width=1, heads=heads, n=2, gamma_min=low, gamma_max=high, theta_max=theta_max, orthogonal="identity", **options
    )
    gamma_log = run.array("gamma_log").astype(float)
    if law == "ring":
        assert_uniform(np.exp(-2 * np.exp(gamma_log)), low**2, high**2)
    else:
        assert_uniform(gamma_log, np.log(-np.log(high)), np.log(-np.log(low)))
        assert abs((gammas(run) < 0.9849).mean() - 0.5) < 5 * 0.5 / np.sqrt(heads)
    assert_uniform(run.array("theta"), 0, theta_max)


FINITE: list[dict[str, Any]] = [
    {"gamma_init": law, "gamma_min": low, "gamma_max": high}
    for law, low, high in (("log_uniform", 1e-9, 0.9999), ("ring", 0.0, 0.9999), ("ring", 0.0, 1e-3))
]


def test_every_seed_is_finite():
    assert_all_finite([make(seed, start="stationary", **options) for options in FINITE for seed in range(20)], WIDTH)


def test_extreme_draws_are_finite(monkeypatch):
    """Both ends of the uniform draws, where a logarithm could be infinite."""
    runs = [
        make(theta_storage="log", orthogonal="identity", **options)
        for _ in extreme_uniforms(monkeypatch)
        for options in FINITE
    ]
    assert_all_finite(runs, WIDTH)


def test_a_head_of_zero_input_matrix_is_silent_and_finite(x64):
    u = jnp.asarray(normals(2, 6, WIDTH))
    run = make(start="stationary", orthogonal="identity")
    b, c = run.array("B").copy(), run.array("C").copy()
    b[0], c[:, :N] = 0, 0
    silent, without = run.with_params(B=b), run.with_params(C=c)
    assert_close(outputs(silent, u), outputs(without, u))
    grads = jax.jit(jax.grad(lambda params: (run.on(params).module()(u)[0] ** 2).sum()))(silent.params)
    assert all(np.isfinite(x).all() for x in grads.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state_size": 9, "heads": 3}, r"even .* 9/3 = 3"),
        ({"state_size": 10, "heads": 4}, r"state_size=10 is not divisible by heads=4"),
        ({"state_size": 2, "heads": 4}, r"state_size=2 is not divisible by heads=4"),
        ({"heads": 0}, r"at least 1, .* heads=0"),
        ({"state_size": 0}, r"at least 1, .*state_size=0"),
        ({"width": 0}, r"at least 1, got width=0"),
        ({"gamma_min": 0.0}, r"0 < gamma_min .*log_uniform.* gamma_min=0.0, gamma_max=0.999"),
        ({"gamma_min": -0.1, "init": "appendix"}, r"0 <= gamma_min .*ring.* gamma_min=-0.1"),
        ({"gamma_min": 0.95, "gamma_max": 0.9}, r"gamma_min=0.95, gamma_max=0.9"),
        ({"gamma_max": 1.0}, r"0 < gamma_max < 1 .* gamma_max=1.0"),
        ({"gamma_max": float("nan")}, r"gamma_max=nan"),
        ({"gamma_min": 0.0, "gamma_max": 0.0, "gamma_init": "ring"}, r"gamma_min=0.0, gamma_max=0.0"),
        ({"theta_max": 0.0}, r"0 < theta_max <= 2 pi is needed, got 0.0"),
        ({"theta_max": 6.3}, r"got 6.3"),
        ({"theta_max": float("nan")}, r"got nan"),
        ({"start": "warm"}, r"unknown Start 'warm': expected one of zero, stationary"),
        ({"normalise": "none"}, r"unknown Normalise 'none'"),
        ({"direction": "up"}, r"unknown Direction 'up'"),
    ],
)
def test_refuses_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        RotRNNConfig(**({"width": 4, "state_size": 8, "heads": 2} | options))


def test_ring_alone_allows_a_smallest_decay_of_zero():
    assert RotRNNConfig(width=4, state_size=8, heads=2, gamma_init=GammaInit.RING, gamma_min=0.0).gamma_min == 0
