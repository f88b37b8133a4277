"""Optimiser groups and rates."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny import TASK, tiny_config

from configs.layers import options_of
from models.build import abstract_model
from models.registry import LAYERS
from training.optim import (
    Group,
    GroupOption,
    cosine_with_warmup,
    group_of,
    groups,
    make_optimiser,
    parameter_table,
    path_names,
)

# What lindermanlab/S5 calls opt_config and dt_global, for B, C and D of every layer and the step sizes of S5; all
# others are the same in each option.
TABLE = {
    GroupOption.STANDARD: {"B": "ssm", "C": "regular", "D": "regular", "log_step": "ssm"},
    GroupOption.B_AND_C_DECAY: {"B": "b_slow", "C": "regular", "D": "regular", "log_step": "ssm"},
    GroupOption.B_FAST_AND_C_DECAY: {"B": "regular", "C": "regular", "D": "regular", "log_step": "ssm"},
    GroupOption.NO_BC_DECAY: {"B": "ssm", "C": "ssm", "D": "ssm", "log_step": "ssm"},
    GroupOption.STANDARD_DT_GLOBAL: {"B": "ssm", "C": "regular", "D": "regular", "log_step": "regular"},
}
RECURRENCE = {"gamma_log", "theta", "theta_log", "nu_log", "M", "Lambda_re", "Lambda_im"}
VARIANTS = {
    "rotrnn": ("rotrnn", {}),
    "rotrnn, xi held": ("rotrnn", {"normalise": "init"}),
    "rotrnn, log angles": ("rotrnn", {"theta_storage": "log", "direction": "forward"}),
    "lru": ("lru", {}),
    "lru, gamma off": ("lru", {"gamma": "off", "direction": "backward"}),
    "s5": ("s5", {}),
    "s5, one direction": ("s5", {"direction": "forward"}),
    "mru": ("mru", {}),
    "attention": ("attention", {"position": "mru"}),
    "linear attention": ("linear_attention", {}),
    "mlp": ("mlp", {}),
}
SIZES = {
    "rotrnn": {"state_size": 8, "heads": 2},
    "lru": {"state_size": 8},
    "s5": {"state_size": 8, "blocks": 2},
    "mru": {"state_size": 8, "heads": 2},
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
    found = {"/".join(path_names(path)): g for path, g in jax.tree.leaves_with_path(groups(params, layer, option))}
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
            group_of((*names, f"{last}_new"), layer, GroupOption.STANDARD)


@pytest.mark.parametrize(
    "path", [("tail", "kernel"), ("blocks", "0", "gate", "kernel"), ("blocks", "0", "layer", "bias")]
)
def test_an_unknown_place_raises(path):
    with pytest.raises(ValueError, match="/".join(path)):
        group_of(path, "rotrnn", GroupOption.STANDARD)


def stepped(option: GroupOption, gradient: float, steps: int = 1):
    """Path -> parameter before and after `steps` updates with `gradient` everywhere, and its group."""
    abstract = abstract_params("rotrnn", {"normalise": "init", "direction": "forward"})
    params = jax.tree.map(lambda x: np.linspace(-1, 1, x.size, dtype=np.float32).reshape(x.shape), abstract)
    optimiser = make_optimiser(
        params, "rotrnn", option, lr=1e-2, ssm_lr=1e-3, weight_decay=0.1, warmup_steps=0, steps=100
    )

    @jax.jit
    def update(new, state):
        gradients = jax.tree.map(lambda x: jnp.full_like(x, gradient), new)
        updates, state = optimiser.transform.update(gradients, state, new)
        return optax.apply_updates(new, updates), state

    new, state = params, optimiser.transform.init(params)
    for _ in range(steps):
        new, state = update(new, state)
    members = groups(params, "rotrnn", option)
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


def test_the_logged_rate_is_that_of_the_regular_group():
    params = abstract_params("lru", {})
    optimiser = make_optimiser(
        params, "lru", GroupOption.STANDARD, lr=0.3, ssm_lr=0.1, weight_decay=0.0, warmup_steps=2, steps=8
    )
    assert optimiser.lr(2) == pytest.approx(0.3)


def test_the_table_shows_each_parameter_with_its_group():
    params = abstract_params("lru", {"direction": "forward"})
    first, *lines = parameter_table(params, "lru", GroupOption.STANDARD).splitlines()
    total = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
    assert first == f"{total:,} parameters; 2 blocks like blocks/0"
    shown = {line.split()[0]: line.split()[-1] for line in lines}
    assert shown["blocks/0/layer/nu_log"] == "ssm"
    assert shown["blocks/0/layer/C_re"] == "regular"
    assert shown["encoder/dense/bias"] == "no_decay"
    assert not any(path.startswith("blocks/1") for path in shown)
    assert len(shown) == len([p for p, _ in jax.tree.leaves_with_path(params) if path_names(p)[:2] != ("blocks", "1")])
