"""MRU in training: the rate, decay and clipping of W_in, what the probe records, refusals of the config."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny import TASK, fresh, of_seed, stacked_batch, tiny_config, tiny_split

from models.build import abstract_model
from training.errors import ConfigError
from training.optim import PLAIN, ElementsRule, GroupOption, make_optimiser, path_names
from training.probe import energy_refs, probe_rows
from training.step import make_probe_step, make_train_step


@pytest.mark.parametrize(
    ("order", "length", "rate", "clip"), [(8, 256, 0.01105, 11.3), (16, 512, 0.0039, 16.0), (8, 512, 0.0078, 16.0)]
)
def test_published_scaling(order, length, rate, clip):
    rule = ElementsRule.published(1.0, order, length)
    assert rule.rate == pytest.approx(rate, rel=2e-3)
    assert rule.clip == pytest.approx(clip, rel=2e-3)
    assert (rule.weight_decay, rule.clip_others) == (0.1, 1.0)
    assert ElementsRule.published(0.5, order, length) == rule._replace(rate=rule.rate / 2)


def updated(rule, gradient):
    """Path -> (parameter before, after one update with `gradient` everywhere), and the optimiser's state."""
    config = tiny_config("mru").model
    params = jax.tree.map(lambda x: np.linspace(-1, 1, x.size).reshape(x.shape), abstract_model(config, TASK)[1])
    optimiser = make_optimiser(
        params, ("mru",) * 2, GroupOption.STANDARD, lr=1e-2, ssm_lr=1.0, weight_decay=0.05, warmup_steps=0, steps=100,
        elements=rule,
    )  # fmt: skip

    @jax.jit
    def update(params):
        gradients = jax.tree.map(lambda x: jnp.full_like(x, gradient), params)
        updates, state = optimiser.transform.update(gradients, optimiser.transform.init(params), params)
        return optax.apply_updates(params, updates), state

    new, state = update(params)
    paths = ["/".join(path_names(path)) for path, _ in jax.tree.leaves_with_path(params)]
    return dict(zip(paths, zip(jax.tree.leaves(params), jax.tree.leaves(new), strict=True), strict=True)), state


@pytest.mark.parametrize(
    ("rule", "rate", "decay"),
    [(PLAIN, 1e-2, 0.05), (ElementsRule(0.1), 1e-3, 0.05), (ElementsRule.published(1.0, 2, 50), 1e-3, 0.1)],
)
def test_w_in_has_its_own_rate_and_decay(x64, rule, rate, decay):
    for path, (old, new) in updated(rule, 1.0)[0].items():
        # The first update of Adam is the sign of the gradient; AdamW adds weight decay times the parameter.
        decayed = 0.05 if path.endswith("kernel") or "/W_" in path else 0.0
        own = (rate, decay) if path.endswith("W_in") else (1e-2, decayed)
        np.testing.assert_allclose(new, old - own[0] * (1 + own[1] * old), rtol=1e-5, err_msg=path)


def test_w_in_ends_at_its_share_of_the_last_rate(x64):
    """Under a constant gradient Adam moves by the rate: behind the last of two updates by lr_min, W_in by a tenth."""
    params = jax.tree.map(lambda x: jnp.zeros(x.shape), abstract_model(tiny_config("mru").model, TASK)[1])
    optimiser = make_optimiser(
        params, ("mru",) * 2, GroupOption.STANDARD, lr=1e-2, ssm_lr=1e-2, weight_decay=0.0, warmup_steps=0, steps=2,
        elements=ElementsRule(0.1), lr_min=2e-3,
    )  # fmt: skip
    state, gradients = optimiser.transform.init(params), jax.tree.map(jnp.ones_like, params)
    updates: Any = None
    for _ in range(3):
        updates, state = optimiser.transform.update(gradients, state, params)
    layer = updates["blocks"][0]["layer"]
    np.testing.assert_allclose(layer["W_out"], -2e-3, rtol=1e-6)
    np.testing.assert_allclose(layer["W_in"], -2e-4, rtol=1e-6)


def first_moments(state, group):
    """Norm of the first moments of a group, over (1 - b1): that of the gradient as Adam saw it."""
    found = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(state)}
    return 10 * math.sqrt(
        sum((leaf**2).sum() for path, leaf in found.items() if f"'{group}'" in path and ".mu" in path)
    )


def test_each_group_is_clipped_by_itself(x64):
    rule = ElementsRule.published(1.0, 2, 50)
    for group, limit in (("elements", 5.0), ("regular", 1.0), ("no_decay", 1.0)):
        assert first_moments(updated(rule, 10.0)[1], group) == pytest.approx(limit)
        assert first_moments(updated(PLAIN, 10.0)[1], group) > 2 * limit
        assert first_moments(updated(rule, 1e-4)[1], group) == pytest.approx(
            first_moments(updated(PLAIN, 1e-4)[1], group)
        )


def test_keys_of_w_in_are_refused_where_there_is_none():
    for changes in ({"optim.w_in_rate": 0.5}, {"optim.w_in_scaling": "published"}):
        with pytest.raises(ConfigError, match=r"are for the layer mru, not for lru: leave them at 1\.0 and none"):
            tiny_config("lru", changes)
    with pytest.raises(ConfigError, match=r"optim: w_in_rate=0\.0 must be positive"):
        tiny_config("mru", {"optim.w_in_rate": 0.0})
    with pytest.raises(ConfigError, match=r"w_in_scaling: .* 'author': expected one of none, published"):
        tiny_config("mru", {"optim.w_in_scaling": "author"})
    with pytest.raises(ConfigError, match=r"clip=1\.0 with w_in_scaling=published, which clips each group: set clip=0"):
        tiny_config("mru", {"optim.w_in_scaling": "published", "optim.clip": 1.0})
    assert tiny_config("mru", {"optim.w_in_rate": 0.5, "optim.w_in_scaling": "published"}).optim.w_in_rate == 0.5


def test_sizes_are_refused_in_one_line():
    with pytest.raises(ConfigError, match="state_size/heads = 24/4 = 6 is not a perfect square") as refusal:
        tiny_config("mru", {"model.options.state_size": 24})
    assert "\n" not in str(refusal.value)


def test_a_run_records_energies_without_a_split():
    """At the start every state is I: energy n per head, as designed. Training moves it; the split is null."""
    config = tiny_config("mru", {"seeds": (0, 1), "model.options.variant": "identity", "optim.lr": 0.1})
    split = tiny_split()
    program, state = fresh(config)
    probe, train_step = make_probe_step(program, (1, 4)), make_train_step(program)
    batch = split.gather(np.arange(8))
    first = of_seed(state.params, 0)
    start = probe(state.params, batch)
    before = probe_rows(start, energy_refs(start), batch["lengths"], (1, 4))
    for step in range(3):
        state, metrics = train_step(state, stacked_batch(split, (0, 1), step, 8), jnp.asarray(step))
        assert (np.asarray(metrics.bad) == -1).all()
    after = probe_rows(probe(state.params, batch), energy_refs(start), batch["lengths"], (1, 4))
    heads, n = 4, 2
    row: dict[str, Any]
    for row in before:
        np.testing.assert_allclose(row["state_energy_raw"], [heads * n] * 2, rtol=1e-6)
        for name in ("state_energy", "state_energy_median", "state_energy_t"):
            np.testing.assert_allclose(row[name], np.ones_like(row[name]), rtol=1e-6)
        np.testing.assert_allclose(row["state_energy_drift"], [0, 0], atol=1e-6)
        assert row["max_element"] == [0, 0]
        assert row["max_log_norm"] == [0, 0]
        np.testing.assert_allclose(row["log10_cond"], [0, 0], atol=1e-6)
    for row in after:
        assert min(row["max_element"]) > 0
        assert all(abs(drift) > 1e-4 for drift in row["state_energy_drift"])
        np.testing.assert_allclose(10 ** np.array(row["state_energy_drift"]), row["state_energy"], rtol=1e-5)
    for row in [*before, *after]:
        assert [row[f"state_{name}"] for name in ("gain", "gain_max", "align", "temporal")] == [[None, None]] * 4
    moved = of_seed(state.params, 0)["blocks"][0]["layer"]
    assert all((moved[name] != first["blocks"][0]["layer"][name]).any() for name in ("W_in", "W_down", "W_out"))
