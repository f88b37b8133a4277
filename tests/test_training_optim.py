"""Optimiser groups and rates."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny import TASK, tiny_config

from configs.layers import options_of
from data.spec import TaskKind
from models.build import Backbone, ModelConfig, abstract_model
from models.registry import LAYERS
from training.optim import (
    Decay,
    Group,
    GroupOption,
    cosine_with_warmup,
    group_of,
    groups,
    make_optimiser,
    parameter_table,
    path_names,
    published_schedule,
)
from training.state import make_program

# What lindermanlab/S5 calls opt_config and dt_global, for B, C and D of every layer and the step sizes of S5; all
# others are the same in each option.
TABLE = {
    GroupOption.STANDARD: {"B": "ssm", "C": "regular", "D": "regular", "log_step": "ssm"},
    GroupOption.B_AND_C_DECAY: {"B": "b_slow", "C": "regular", "D": "regular", "log_step": "ssm"},
    GroupOption.B_FAST_AND_C_DECAY: {"B": "regular", "C": "regular", "D": "regular", "log_step": "ssm"},
    GroupOption.NO_BC_DECAY: {"B": "ssm", "C": "ssm", "D": "ssm", "log_step": "ssm"},
    GroupOption.STANDARD_DT_GLOBAL: {"B": "ssm", "C": "regular", "D": "regular", "log_step": "regular"},
}
RECURRENCE = {"gamma_log", "theta", "theta_log", "nu_log", "M", "W", "Lambda_re", "Lambda_im"}
VARIANTS = {
    "rotrnn": ("rotrnn", {}),
    "rotrnn, xi held": ("rotrnn", {"normalise": "init"}),
    "rotrnn, log angles": ("rotrnn", {"theta_storage": "log", "direction": "forward"}),
    "lru": ("lru", {}),
    "lru, gamma off": ("lru", {"gamma": "off", "direction": "backward"}),
    "s5": ("s5", {}),
    "s5, one direction": ("s5", {"direction": "forward"}),
    "mru": ("mru", {}),
    "dense": ("dense", {}),
    "attention": ("attention", {"position": "mru"}),
    "linear attention": ("linear_attention", {}),
    "mlp": ("mlp", {}),
}
SIZES = {
    "rotrnn": {"state_size": 8, "heads": 2},
    "lru": {"state_size": 8},
    "s5": {"state_size": 8, "blocks": 2},
    "mru": {"state_size": 8, "heads": 2},
    "dense": {"state_size": 4},
    "attention": {"heads": 2, "mru_order": 2},
    "linear_attention": {"heads": 2},
    "mlp": {},
}


def expected_group(layer: str, path: str, option: GroupOption) -> str:
    name = path.split("/")[-1]
    if not path.startswith("blocks") or "/layer/" not in path:
        return "regular" if name == "kernel" else "no_decay"
    if name == "xi":
        return "frozen"
    if name.startswith("W_"):
        return "elements" if (layer, name) == ("mru", "W_in") else "regular"
    return "ssm" if name in RECURRENCE else TABLE[option][name if name == "log_step" else name[0]]


def abstract_params(layer: str, changes: dict[str, Any]):
    config = tiny_config("rotrnn", {"model.mixing": "full_glu"}).model
    options = options_of(layer, **SIZES[layer], **changes)
    return abstract_model(type(config)(layer, 4, 2, config.mixing, 0.0, options), TASK)[1]


@pytest.mark.parametrize("option", GroupOption)
@pytest.mark.parametrize(("layer", "changes"), VARIANTS.values(), ids=VARIANTS)
def test_every_parameter_has_the_group_of_the_table(layer, changes, option):
    params = abstract_params(layer, changes)
    found = {
        "/".join(path_names(path)): g for path, g in jax.tree.leaves_with_path(groups(params, (layer,) * 2, option))
    }
    assert len(found) == len(jax.tree.leaves(params)) > 15
    assert found == {path: expected_group(layer, path, option) for path in found}


def test_every_role_of_a_layer_is_seen():
    """The variants above have every parameter that the registry knows, so that no name goes untested."""
    seen = {name: set() for name in LAYERS}
    for layer, changes in VARIANTS.values():
        seen[layer] |= abstract_params(layer, changes)["blocks"][0]["layer"].keys()
    assert seen == {name: set(spec.roles) for name, spec in LAYERS.items()}


@pytest.mark.parametrize("layer", LAYERS)
def test_a_renamed_parameter_raises(layer):
    for path, _ in jax.tree.leaves_with_path(abstract_params(layer, {})):
        *names, last = path_names(path)
        with pytest.raises(ValueError, match=f"{last}_new"):
            group_of((*names, f"{last}_new"), (layer,) * 2, GroupOption.STANDARD)


@pytest.mark.parametrize(
    "path", [("tail", "kernel"), ("blocks", "0", "gate", "kernel"), ("blocks", "0", "layer", "bias")]
)
def test_an_unknown_place_raises(path):
    with pytest.raises(ValueError, match="/".join(path)):
        group_of(path, ("rotrnn",), GroupOption.STANDARD)


BOTH = ("rotrnn", "rotrnn")


def stepped(option: GroupOption, gradient: float, steps: int = 1):
    """Path -> parameter before and after `steps` updates with `gradient` everywhere, and its group."""
    abstract = abstract_params("rotrnn", {"normalise": "init", "direction": "forward"})
    params = jax.tree.map(lambda x: np.linspace(-1, 1, x.size, dtype=np.float32).reshape(x.shape), abstract)
    optimiser = make_optimiser(params, BOTH, option, lr=1e-2, ssm_lr=1e-3, weight_decay=0.1, warmup_steps=0, steps=100)

    @jax.jit
    def update(new, state):
        gradients = jax.tree.map(lambda x: jnp.full_like(x, gradient), new)
        updates, state = optimiser.transform.update(gradients, state, new)
        return optax.apply_updates(new, updates), state

    new, state = params, optimiser.transform.init(params)
    for _ in range(steps):
        new, state = update(new, state)
    members = groups(params, BOTH, option)
    return {
        "/".join(path_names(path)): (old, np.asarray(now), group)
        for (path, old), now, group in zip(
            jax.tree.leaves_with_path(params), jax.tree.leaves(new), jax.tree.leaves(members), strict=True
        )
    }


@pytest.mark.parametrize("option", GroupOption)
def test_decay_and_rate_of_every_group(option):
    for path, (old, new, group) in stepped(option, 1.0).items():
        # The first update of Adam is the sign of the gradient; AdamW adds weight_decay times the parameter.
        rate, decay = {
            Group.SSM: (1e-3, 0.0),
            Group.REGULAR: (1e-2, 0.1),
            Group.NO_DECAY: (1e-2, 0.0),
            Group.B_SLOW: (1e-3, 0.1),
            Group.ELEMENTS: (1e-2, 0.1),
            Group.FROZEN: (0.0, 0.0),
        }[group]
        np.testing.assert_allclose(new, old - rate * (1 + decay * old), rtol=2e-6, atol=1e-7, err_msg=path)


def test_without_gradients_only_decayed_parameters_move():
    moved = {path for path, (old, new, _) in stepped(GroupOption.B_AND_C_DECAY, 0.0).items() if (old != new).any()}
    names = {path.replace("blocks/1", "blocks/0") for path in moved}
    layer = {f"blocks/0/layer/{name}" for name in ("B", "C", "D")}
    mix = {f"blocks/0/mix/{name}/kernel" for name in ("gate", "value")}
    assert names == layer | mix | {"encoder/dense/kernel", "head/kernel"}


def test_a_held_xi_keeps_every_bit():
    found = stepped(GroupOption.STANDARD, 1.0, steps=3)
    for depth in range(2):
        old, new, _ = found[f"blocks/{depth}/layer/xi"]
        assert old.tobytes() == new.tobytes()


@pytest.mark.parametrize(("warmup", "steps"), [(4, 20), (0, 20), (1, 2), (20, 20)])
def test_rates_over_a_run(warmup, steps):
    rate = cosine_with_warmup(0.5, warmup, steps)
    rates = np.array([rate(step) for step in range(steps + 1)])
    assert rates[0] > 0
    if warmup:
        np.testing.assert_allclose(rates[: warmup + 1], np.linspace(0.5 / warmup, 0.5, warmup + 1), rtol=1e-6)
    if steps > warmup:
        share = np.linspace(0, 1, steps - warmup + 1)
        np.testing.assert_allclose(rates[warmup:], 0.25 * (1 + np.cos(np.pi * share)), rtol=1e-5, atol=1e-7)


def over(schedule, updates):
    """The rates of the given updates."""
    return np.array([schedule(u) for u in updates])


def test_a_clean_schedule_ends_at_its_smallest_rate():
    rate = cosine_with_warmup(0.5, 4, 20, 0.02)
    np.testing.assert_allclose(over(rate, (4, 12, 20, 25)), [0.5, 0.26, 0.02, 0.02], rtol=1e-6)


def rates_of_the_published_loop(peak, warmup, steps, lr_min):
    """The loop of lindermanlab/S5 in words: a step runs at the rate that stands, then the next one is set from s."""
    rates, standing = [], peak
    for s in range(steps):
        rates.append(standing)
        if s < warmup:
            standing = peak * (s + 1) / warmup
        else:
            end = steps - warmup
            standing = lr_min + (peak - lr_min) * 0.5 * (1 + math.cos(math.pi * min(s, end) / end))
    return rates


@pytest.mark.parametrize(("warmup", "lr_min"), [(3, 0.0), (0, 0.0), (0, 1e-7), (3, 0.01)])
def test_the_published_schedule_is_that_of_the_published_loop(warmup, lr_min):
    rate = published_schedule(0.5, warmup, 12, lr_min)
    expected = rates_of_the_published_loop(0.5, warmup, 12, lr_min)
    np.testing.assert_allclose(over(rate, range(12)), expected, rtol=1e-5, atol=1e-7)
    assert expected[0] == 0.5


def test_quirks_of_the_published_schedule():
    """4 epochs of 3 steps, one of them warm-up: full rate first, the cosine begun late, nothing left for the last."""
    rates = over(published_schedule(0.9, 3, 12), range(12))
    np.testing.assert_allclose(rates[:4], [0.9, 0.3, 0.6, 0.9], rtol=1e-6)
    np.testing.assert_allclose(rates[4], 0.45 * (1 + math.cos(math.pi / 3)), rtol=1e-6)
    assert rates[9] > 0
    assert rates[10:].tolist() == [0.0, 0.0]
    # All of a run in its warm-up: no step of a cosine is left, none is divided by.
    np.testing.assert_allclose(over(published_schedule(1.0, 2, 2), (0, 1)), [1.0, 0.5])


def test_the_config_chooses_schedule_and_decay():
    changes = {"optim.schedule": "published", "optim.decay": "published", "optim.lr_min": 1e-4, "optim.warmup_steps": 2}
    program, plain = (make_program(tiny_config("rotrnn", c), TASK) for c in (changes, {"optim.warmup_steps": 2}))
    found, clean = (over(p.optimiser.lr, range(12)) for p in (program, plain))
    np.testing.assert_allclose(found, rates_of_the_published_loop(3e-3, 2, 12, 1e-4), rtol=1e-4)
    np.testing.assert_allclose(clean[:3], [1.5e-3, 2.25e-3, 3e-3], rtol=1e-6)
    # What decays: weight_decay moves a parameter whose gradient is 0.
    for p, decayed in ((program, True), (plain, False)):
        ones = jax.tree.map(lambda x: jnp.ones(x.shape), p.abstract_params)
        zeros = jax.tree.map(jnp.zeros_like, ones)
        updates: Any = p.optimiser.transform.update(zeros, p.optimiser.transform.init(ones), ones)[0]
        block = updates["blocks"][0]
        places = (block["norm"]["scale"], block["norm"]["bias"], updates["head"]["bias"], block["layer"]["M"])
        assert [bool((u < 0).all()) for u in places] == [decayed] * 4
        assert (updates["encoder"]["dense"]["kernel"] < 0).all()


@pytest.mark.parametrize("option", GroupOption)
@pytest.mark.parametrize("layer", ["rotrnn", "s5"])
def test_published_decay_spares_no_norm_and_no_bias(layer, option):
    params = abstract_params(layer, {})
    layers = (layer,) * 2
    found, clean = (groups(params, layers, option, decay) for decay in (Decay.PUBLISHED, Decay.CLEAN))
    for (path, group), old in zip(jax.tree.leaves_with_path(found), jax.tree.leaves(clean), strict=True):
        moved = old is Group.NO_DECAY or path_names(path)[-1] == "M"
        assert group is (Group.REGULAR if moved else old), path


def test_every_block_is_grouped_by_its_own_layer():
    """W_in of MRU makes matrices, W_in of the MLP beside it is a matrix; what is tied is not decayed."""
    options = options_of("mru", **SIZES["mru"], sublayers=4)
    config = ModelConfig("mru", 4, 2, options=options, backbone=Backbone.LANGUAGE, sublayers=("mru", "mlp"))
    spec = dataclasses.replace(TASK, kind=TaskKind.LANGUAGE, classes=TASK.input_width)
    params = abstract_model(config, spec)[1]
    assert config.layers == ("mru", "mlp") * 2
    found = groups(params, config.layers, GroupOption.STANDARD)
    assert [found["blocks"][i]["layer"]["W_in"] for i in range(4)] == [Group.ELEMENTS, Group.REGULAR] * 2
    assert found["embedding"] is found["norm"]["scale"] is found["blocks"][3]["norm"]["scale"] is Group.NO_DECAY
    first, *lines = parameter_table(params, config.layers, GroupOption.STANDARD).splitlines()
    assert first.endswith(" parameters; 2 blocks like blocks/0, 2 blocks like blocks/1")
    assert [line.split()[-1] for line in lines if "/W_in" in line] == ["elements", "regular"]


def test_the_logged_rate_is_that_of_the_regular_group():
    params = abstract_params("lru", {})
    optimiser = make_optimiser(
        params, ("lru",) * 2, GroupOption.STANDARD, lr=0.3, ssm_lr=0.1, weight_decay=0.0, warmup_steps=2, steps=8
    )
    assert optimiser.lr(2) == pytest.approx(0.3)


def test_the_table_shows_each_parameter_with_its_group():
    params = abstract_params("lru", {"direction": "forward"})
    first, *lines = parameter_table(params, ("lru",) * 2, GroupOption.STANDARD).splitlines()
    total = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
    assert first == f"{total:,} parameters; 2 blocks like blocks/0"
    shown = {line.split()[0]: line.split()[-1] for line in lines}
    assert shown["blocks/0/layer/nu_log"] == "ssm"
    assert shown["blocks/0/layer/C_re"] == "regular"
    assert shown["encoder/dense/bias"] == "no_decay"
    assert not any(path.startswith("blocks/1") for path in shown)
    assert len(shown) == len([p for p, _ in jax.tree.leaves_with_path(params) if path_names(p)[:2] != ("blocks", "1")])


def test_the_whole_gradient_is_clipped_before_adam_sees_it():
    """Adam's first moments are (1 - b1) g c/|g|, its second ones (1 - b2) (g c/|g|)^2, over all groups together."""
    params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), abstract_params("lru", {}))
    draw = np.random.default_rng(0)
    gradients = jax.tree.map(lambda leaf: jnp.asarray(draw.normal(size=leaf.shape), jnp.float32), params)
    norm = float(optax.tree.norm(gradients))
    for clip, factor in ((0.0, 1.0), (0.5, 0.5 / norm), (2 * norm, 1.0)):
        optimiser = make_optimiser(
            params, ("lru",) * 2, GroupOption.STANDARD, lr=0.1, ssm_lr=0.1, weight_decay=0.0, warmup_steps=0, steps=8,
            b2=0.75, clip=clip,
        )  # fmt: skip
        state = optimiser.transform.update(gradients, optimiser.transform.init(params), params)[1]
        expected = norm * factor
        moments = [found for found in jax.tree.leaves(state, is_leaf=is_adam) if is_adam(found)]
        assert sum(float(optax.tree.norm(m.mu)) ** 2 for m in moments) == pytest.approx((0.1 * expected) ** 2, rel=1e-5)
        second = sum(float(sum(leaf.sum() for leaf in jax.tree.leaves(m.nu))) for m in moments)
        assert second == pytest.approx(0.25 * expected**2, rel=1e-5)


def is_adam(state: Any) -> bool:
    return isinstance(state, optax.ScaleByAdamState)
