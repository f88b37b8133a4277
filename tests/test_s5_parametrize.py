"""The discretisations of S5, digit by digit, and what they mean."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s5 import Discretization
from s5.parametrize import CLIP, bilinear, diagonal_system, zoh
from scans import diagonal_layer

RULES = {Discretization.ZOH: zoh, Discretization.BILINEAR: bilinear}


def published(rule, lam, delta):
    """(Lambda_bar, factor of B) in complex numbers, as arXiv 2208.04933 writes them."""
    if rule is Discretization.ZOH:
        return np.exp(lam * delta), np.expm1(lam * delta) / lam
    return (1 + lam * delta / 2) / (1 - lam * delta / 2), delta / (1 - lam * delta / 2)


def random_modes(seed=0, count=200):
    """Lambda and Delta over the range that training meets: HiPPO frequencies, steps down to 1e-6, some unstable."""
    rng = np.random.default_rng(seed)
    re = -np.exp(rng.uniform(-4, 3, count)) * np.where(rng.random(count) < 0.1, -1, 1)
    im = -np.exp(rng.uniform(-3, 7, count))
    return re, im, np.exp(rng.uniform(np.log(1e-6), np.log(0.1), count))


@pytest.mark.parametrize("rule", RULES)
def test_equal_to_the_published_formula(x64, rule):
    re, im, delta = random_modes()
    found = RULES[rule](*map(jnp.asarray, (re, im, delta)))
    bar, factor = published(rule, re + 1j * im, delta)
    np.testing.assert_allclose(np.exp(found.log_mag + 1j * found.phase), bar, rtol=1e-12)
    np.testing.assert_allclose(found.factor_re + 1j * found.factor_im, factor, rtol=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_float32_keeps_its_digits_at_small_steps(x64, rule):
    """log|Lambda_bar| and exp(z) - 1 are differences of numbers near 1; formed as such they lose all digits here."""
    re, im, delta = (x.astype(np.float32) for x in random_modes())
    found, exact = RULES[rule](*map(jnp.asarray, (re, im, delta))), RULES[rule](
        *(jnp.asarray(x.astype(np.float64)) for x in (re, im, delta))
    )  # fmt: skip
    assert found.log_mag.dtype == found.factor_re.dtype == jnp.float32
    np.testing.assert_allclose(found.log_mag, exact.log_mag, rtol=1e-6)
    turns = np.maximum(1, abs(im * delta))  # a float32 phase of many turns is known to its own rounding
    assert (abs(found.phase - exact.phase) < 2e-7 * np.maximum(abs(exact.phase), 1e-30) * turns).all()
    difference = found.factor_re - exact.factor_re + 1j * (found.factor_im - exact.factor_im)
    assert (abs(difference) < 1e-6 * turns * np.hypot(exact.factor_re, exact.factor_im)).all()


def parameters(seed=0, modes=6, width=3, both=False) -> dict[str, Any]:
    """Random parameters as the layer stores them."""
    rng = np.random.default_rng(seed)
    found = {
        "Lambda_re": -np.exp(rng.normal(size=modes)),
        "Lambda_im": -np.exp(rng.normal(size=modes)),
        "log_step": rng.uniform(-4, -1, (modes, 1)),
        "B": rng.normal(size=(modes, width, 2)),
        "C": rng.normal(size=(width, modes, 2)),
        "D": rng.normal(size=width),
    } | ({"C_backward": rng.normal(size=(width, modes, 2))} if both else {})
    return {name: jnp.asarray(value) for name, value in found.items()}


def changed(values: dict[str, Any], **new: Any) -> dict[str, Any]:
    return values | new


def test_a_held_input_at_twice_the_step(x64):
    """Zero-order hold is exact for inputs held over a step: a step of 2 Delta is two steps of Delta with one input."""
    u = jnp.asarray(np.random.default_rng(1).normal(size=(2, 12, 3)))
    # D u_t stands outside of the recurrence, so the skip is read at the same places.
    slow, _ = diagonal_layer(diagonal_system(**parameters(), step_rescale=2.0), u)
    fast, _ = diagonal_layer(diagonal_system(**parameters()), jnp.repeat(u, 2, axis=1))
    np.testing.assert_allclose(slow, fast[:, 1::2], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_a_rescale_is_a_shift_of_log_step(x64, rule):
    values = parameters(2)
    by_argument = diagonal_system(**values, discretization=rule, step_rescale=0.3)
    shifted = changed(values, log_step=values["log_step"] + np.log(0.3))
    by_parameter = diagonal_system(**shifted, discretization=rule)
    for one, other in zip(jax.tree.leaves(by_argument), jax.tree.leaves(by_parameter), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_half_of_the_pairs_is_the_whole(x64, rule, both):
    """s = 2 and one mode of every pair: the same function as all modes with s = 1."""
    half = parameters(3, both=both)
    sign = jnp.array([1, -1])
    whole: dict[str, Any] = {
        "Lambda_re": jnp.tile(half["Lambda_re"], 2),
        "Lambda_im": jnp.concatenate([half["Lambda_im"], -half["Lambda_im"]]),
        "log_step": jnp.tile(half["log_step"], (2, 1)),
        "B": jnp.concatenate([half["B"], sign * half["B"]]),
        "D": half["D"],
    } | {name: jnp.concatenate([half[name], sign * half[name]], 1) for name in ("C", "C_backward") if name in half}
    u = jnp.asarray(np.random.default_rng(4).normal(size=(2, 9, 3)))
    few, all_ = (
        diagonal_layer(diagonal_system(**p, discretization=rule, conj_sym=c), u)[0]
        for p, c in ((half, True), (whole, False))
    )
    np.testing.assert_allclose(few, all_, rtol=1e-12, atol=1e-12)


def test_clipped_eigenvalues_decay(x64):
    values = changed(parameters(5), Lambda_re=jnp.array([-2.0, -1e-3, -1e-5, 0.0, 0.3, 7.0]))
    delta = np.exp(values["log_step"][:, 0])
    free, clipped = (diagonal_system(**values, clip_eigs=on).log_mag for on in (False, True))
    np.testing.assert_allclose(free, values["Lambda_re"] * delta)
    np.testing.assert_allclose(clipped, np.array([-2.0, -1e-3, CLIP, CLIP, CLIP, CLIP]) * delta)
    # What is clipped gets no gradient, what is not gets its own.
    grad = jax.grad(lambda re: diagonal_system(**changed(values, Lambda_re=re), clip_eigs=True).log_mag.sum())
    np.testing.assert_allclose(grad(values["Lambda_re"]), np.where([1, 1, 0, 0, 0, 0], delta, 0))
