"""A diagonal system at a lower rate: exact for held inputs, near for slow ones."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from lru import LRU, LRUConfig
from lru.parametrize import diagonal_system as lru_system
from rotrnn import RotRNN, RotRNNConfig
from rotrnn.config import Start
from rotrnn.parametrize import diagonal_system as rotrnn_system
from s5 import S5, S5Config
from scans import DiagonalSystem, Direction, diagonal_layer, held_system

WIDTH, STEPS = 3, 24
RATE = 16_000.0  # samples a second


def systems(direction=Direction.FORWARD):
    """One drawn system of each family, float64."""
    yield RotRNN(RotRNNConfig(WIDTH, 8, 2, direction), rngs=nnx.Rngs(0)).system()
    yield LRU(LRUConfig(WIDTH, 6, direction), rngs=nnx.Rngs(1)).system()


def inputs(steps=STEPS, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(2, steps, WIDTH)))


run = jax.jit(diagonal_layer, static_argnames="reverse")


def without_d(system: DiagonalSystem) -> DiagonalSystem:
    return system._replace(d=jnp.zeros_like(system.d))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("steps", [2, 3])
def test_exact_for_held_inputs(steps):
    """Forward: the last of every r outputs, and the same state at the end. Backward: the first of them."""
    u = inputs()
    for system in systems():
        slow = held_system(system, steps)
        full, last = run(system, jnp.repeat(u, steps, 1))
        found, slow_last = run(slow, u)
        np.testing.assert_allclose(found, full[:, steps - 1 :: steps], rtol=0, atol=1e-12)
        np.testing.assert_allclose(slow_last, last, rtol=0, atol=1e-12)
        full, _ = run(system, jnp.repeat(u, steps, 1), reverse=True)
        found, _ = run(slow, u, reverse=True)
        np.testing.assert_allclose(found, full[:, ::steps], rtol=0, atol=1e-12)


@pytest.mark.usefixtures("x64")
def test_both_directions_of_a_bidirectional_layer():
    """Each direction stands where it has read all copies of an input."""
    u = inputs()
    for system in systems(Direction.BIDIRECTIONAL):
        system = without_d(system)
        forward = system._replace(c_backward_re=None, c_backward_im=None)
        backward = forward._replace(c_re=system.c_backward_re, c_im=system.c_backward_im)
        ahead, _ = diagonal_layer(forward, jnp.repeat(u, 2, 1))
        behind, _ = diagonal_layer(backward, jnp.repeat(u, 2, 1), reverse=True)
        found, _ = diagonal_layer(held_system(system, 2), u)
        np.testing.assert_allclose(found, ahead[:, 1::2] + behind[:, ::2], rtol=0, atol=1e-12)


@pytest.mark.usefixtures("x64")
def test_it_is_what_a_zero_order_hold_does_for_s5():
    config = S5Config(width=WIDTH, state_size=8, blocks=2)
    twice = S5(dataclasses.replace(config, step_rescale=2.0), rngs=nnx.Rngs(0)).system()
    found = held_system(S5(config, rngs=nnx.Rngs(0)).system(), 2)
    for name in ("log_mag", "phase", "b_re", "b_im", "c_re", "c_im"):
        np.testing.assert_allclose(getattr(found, name), getattr(twice, name), rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.usefixtures("x64")
def test_long_holds_and_moduli_near_one():
    """1 + lambda + ... + lambda^(r-1) against sums of powers; 1 - lambda is 1e-9 and its quotient would lose digits."""
    system = next(systems())._replace(log_mag=jnp.full(4, -1e-9), phase=jnp.full(4, 1e-9))
    one = np.ones((4, WIDTH))
    found = held_system(system._replace(b_re=jnp.asarray(one), b_im=jnp.zeros_like(one)), 160)
    exact = np.exp(np.arange(160) * (-1e-9 + 1e-9j)).sum()
    np.testing.assert_allclose(found.b_re + 1j * found.b_im, exact * one, rtol=1e-14)


@pytest.mark.parametrize(("hertz", "bound"), [(50, 0.01), (200, 0.04), (1000, 0.2)])
@pytest.mark.usefixtures("x64")
def test_slow_tones_at_half_the_rate(hertz, bound):
    """Every second sample of a tone through the held system, against the tone through the system: rms of the difference
    over rms of the outputs. A held sample is half an old step late; found are at most 0.7, 2.7 and 11.8 per cent."""
    t = np.arange(int(RATE / 8)) / RATE
    u = jnp.asarray(np.sin(2 * np.pi * hertz * t)[None, :, None] * np.ones(WIDTH))
    for system in systems():
        full = np.asarray(diagonal_layer(system, u)[0])[:, ::2]
        found = np.asarray(diagonal_layer(held_system(system, 2), u[:, ::2])[0])
        error = np.sqrt(np.mean((found - full) ** 2) / np.mean(full**2))
        assert error < bound


@pytest.mark.usefixtures("x64")
def test_the_families_pass_it_on():
    layer = LRU(LRUConfig(width=WIDTH, state_size=6), rngs=nnx.Rngs(1))
    names = ("nu_log", "theta_log", "gamma_log", "B_re", "B_im", "C_re", "C_im", "D")
    arrays = {name: getattr(layer, name)[...] for name in names}
    assert_same(lru_system(**arrays, held=2), held_system(layer.system(), 2))
    layer = RotRNN(RotRNNConfig(width=WIDTH, state_size=8, heads=2), rngs=nnx.Rngs(0))
    arrays = {name: getattr(layer, name)[...] for name in ("gamma_log", "theta", "B", "C", "D")}
    found = rotrnn_system(**arrays, P=layer.basis(), gain=layer.input_gain(), held=2)
    assert_same(found, held_system(layer.system(), 2))
    assert (found.log_mag == 2 * layer.system().log_mag).all()


def assert_same(found: DiagonalSystem, expected: DiagonalSystem):
    for one, other in zip(found, expected, strict=True):
        assert one is other or (one == other).all()


@pytest.mark.usefixtures("x64")
def test_what_is_refused():
    system = next(systems())
    assert held_system(system, 1) is system
    with pytest.raises(ValueError, match="held: at least one step is needed, got 0"):
        held_system(system, 0)
    config = RotRNNConfig(width=WIDTH, state_size=8, heads=2, start=Start.STATIONARY)
    stationary = RotRNN(config, rngs=nnx.Rngs(0)).system()
    assert held_system(stationary, 1) is stationary
    with pytest.raises(ValueError, match="stationary start has no counterpart at a lower rate"):
        held_system(stationary, 2)
