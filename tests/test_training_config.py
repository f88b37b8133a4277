"""Configs are checked on their way into code: one line says what is wrong, where, and what would be right."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import tiny_config, tiny_dict

from training.config import ExperimentConfig, flat, from_config_dict, to_plain
from training.errors import ConfigError


def as_json(config):
    return json.loads(json.dumps(to_plain(config)))


@pytest.mark.parametrize("layer", ["rotrnn", "lru"])
def test_what_json_holds_is_read_back_as_the_same_config(layer):
    config = tiny_config(layer, {"seeds": (3, 0), "optim.weight_decay": 0.04})
    assert from_config_dict(as_json(config)) == config
    assert isinstance(from_config_dict(as_json(config)).seeds, tuple)


REFUSED = {
    "unknown key": ({"optim.momentum": 1.0}, "unknown key config.optim.momentum: known: lr, ssm_lr"),
    "misspelt key": ({"optim.weight_decai": 1.0}, "config.optim.weight_decai: did you mean 'weight_decay'?"),
    "misspelt group": ({"optmi": {}}, "unknown key config.optmi: did you mean 'optim'?"),
    "misspelt option": ({"model.options.orthogonol": "expm"}, "options.orthogonol: did you mean 'orthogonal'?"),
    "option of no layer's own": ({"model.options.width": 4}, "unknown key config.model.options.width"),
    "text for a number": ({"optim.lr": "fast"}, "config.optim.lr must be of type float, got 'fast'"),
    "bool for a number": ({"optim.lr": True}, "config.optim.lr must be of type float, got True"),
    "bool for an integer": ({"train.steps": True}, "config.train.steps must be of type int, got True"),
    "fraction for an integer": ({"train.steps": 2.0}, "config.train.steps must be of type int, got 2.0"),
    "number for a bool": ({"data.smoke": 1}, "config.data.smoke must be of type bool, got 1"),
    "number for a text": ({"published": 3}, "config.published must be of type str, got 3"),
    "scalar for a tuple": ({"seeds": 3}, "config.seeds must be a tuple, got 3"),
    "tuple for a scalar": ({"model.width": (4,)}, r"config.model.width must be of type int, got \[4\]"),
    "fraction in a tuple": ({"seeds": (0, 1.5)}, r"config.seeds\[1\] must be of type int, got 1.5"),
    "value for a group": ({"optim": 3}, "config.optim must be a group of keys, got 3"),
    "value for the options": ({"model.options": 3}, "config.model.options must be a group of keys, got 3"),
    "wrong type of an option": (
        {"model.options.heads": "4"},
        "config.model.options.heads must be of type int, got '4'",
    ),
    "nan rate": ({"optim.lr": math.nan}, "config.optim.lr must be a finite number, got nan"),
    "infinite rate": ({"optim.ssm_lr": math.inf}, "config.optim.ssm_lr must be a finite number, got inf"),
    "nan option": ({"model.options.gamma_max": math.nan}, "options.gamma_max must be a finite number"),
    "rate 0": ({"optim.lr": 0.0}, "rates must be positive, got lr=0.0, ssm_lr=0.001"),
    "negative decay": ({"optim.weight_decay": -0.1}, "weight_decay=-0.1 .* must not be negative"),
    "unknown layer": ({"model.layer": "gru"}, "config.model.layer: unknown layer 'gru': expected one of rotrnn, lru"),
    "depth 0": ({"model.depth": 0}, "depth=0 must be at least 1"),
    "width 0": ({"model.width": 0}, "width=0 and depth=2 must be at least 1"),
    "dropout 1": ({"model.dropout": 1}, "0 <= dropout < 1 is needed, got 1.0"),
    "odd state per head": ({"model.options.state_size": 12}, "must be even .* 12/4 = 3"),
    "heads that do not divide": ({"model.options.heads": 3}, "state_size=16 is not divisible by heads=3"),
    "unknown mixing": ({"model.mixing": "glu"}, "config.model.mixing: .* 'glu': expected one of full_glu, half_glu1"),
    "unknown option value": (
        {"model.options.normalise": "no"},
        "options.normalise: .* 'no': expected one of xi, folded",
    ),
    "unknown groups": ({"optim.groups": "all"}, "config.optim.groups: .* 'all': expected one of standard, BandCdecay"),
    "unknown schedule": ({"optim.schedule": "s5"}, "config.optim.schedule: .* 's5': expected one of clean, published"),
    "unknown decay": ({"optim.decay": "all"}, "config.optim.decay: .* 'all': expected one of clean, published"),
    "an end above the peak": (
        {"optim.lr_min": 2e-3},
        r"lr_min=0.002 must be in 0..0.001, the smaller of lr and ssm_lr",
    ),
    "a negative end": ({"optim.lr_min": -1e-7}, "lr_min=-1e-07 must be in 0"),
    "unknown precision": ({"model.precision": "half"}, "model.precision: .* expected one of float32, bfloat16"),
    "remat of another type": ({"train.remat": 1}, "config.train.remat must be of type bool, got 1"),
    "unknown norm": ({"model.norm": "group"}, "config.model.norm: .* 'group': expected one of layer, batch"),
    "unknown padding": ({"model.padding": "mask"}, "model.padding: .* expected one of full, pool_only, none"),
    "momentum 1": ({"model.bn_momentum": 1.0}, "0 <= bn_momentum < 1 is needed, got 1.0"),
    "sublayers of no language model": ({"model.sublayers": ("rotrnn",)}, "are for backbone=language: leave them at"),
    "unknown reaction": ({"on_nonfinite": "wait"}, "config.on_nonfinite: .* expected one of stop, continue"),
    "no seed": ({"seeds": ()}, r"seeds must be distinct, at least one, got \(\)"),
    "a seed twice": ({"seeds": (1, 2, 1)}, r"seeds must be distinct, at least one, got \(1, 2, 1\)"),
    "negative seed": ({"seeds": (0, -1)}, r"seeds must be in 0..2\^31-1, got \(0, -1\)"),
    "seed too large for a key": ({"seeds": (2**31,)}, r"seeds must be in 0..2\^31-1"),
    "warm-up too long": ({"optim.warmup_steps": 13}, "optim.warmup_steps=13 is longer than train.steps=12"),
    "b2 of 1": ({"optim.b2": 1.0}, "optim: b2=1.0 must lie between 0 and 1"),
    "a negative clip": ({"optim.clip": -1.0}, "optim: clip=-1.0 must not be negative; 0 is none"),
    "parts that are not alike": ({"train.accumulate": 3}, "train: batch_size=8 is not a multiple of accumulate=3"),
    "batch norm in parts": (
        {"train.accumulate": 2, "model.norm": "batch"},
        "train.accumulate=2: batch norm needs a batch as a whole: set model.norm=layer, or accumulate=1",
    ),
    "no steps": ({"train.steps": 0}, "train: steps=0 must be at least 1"),
    "never logged": ({"train.log_every": 0}, "train: log_every=0 must be at least 1"),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_in_one_line(changes, message):
    with pytest.raises(ConfigError, match=message) as refusal:
        tiny_config("rotrnn", changes)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("path", ["optim.lr", "model.layer", "train.steps", "seeds", "model.options.heads", "optim"])
def test_a_missing_key_is_named(path):
    config = tiny_dict()
    *groups, name = path.split(".")
    group = config
    for key in groups:
        group = group[key]
    del group[name]
    with pytest.raises(ConfigError, match=rf"^config\.{path} is missing$"):
        from_config_dict(config)


def test_a_key_that_an_older_file_lacks_takes_its_default():
    config = tiny_config("rotrnn")
    older = as_json(config)
    del older["published"], older["on_nonfinite"], older["schema"], older["data"]["limit"]
    del older["model"]["options"]["output_init"]
    for key in ("norm", "bn_momentum", "padding", "backbone", "sublayers", "precision"):
        del older["model"][key]
    for key in ("schedule", "decay", "lr_min"):
        del older["optim"][key]
    for key in ("accumulate", "remat", "profile"):
        del older["train"][key]
    del older["compile_cache"], older["mirrors"]
    newer = from_config_dict(older)
    assert {key: value for key, value in flat(newer).items() if value != flat(config)[key]} == {"published": ""}
    assert flat(newer)["model.options.output_init"] == "by_init"


def test_integers_are_rates_too():
    config = tiny_config("rotrnn", {"optim.lr": 1})
    assert config.optim.lr == 1.0
    assert isinstance(config.optim.lr, float)


def test_flat_names_every_value_by_its_dotted_key():
    values = flat(tiny_config("lru", {"optim.lr": 0.5}))
    assert values["optim.lr"] == 0.5
    assert values["model.options.r_max"] == 0.99
    assert values["optim.groups"] == "standard"
    assert not any(isinstance(value, dict) for value in values.values())


positive = st.floats(1e-12, 1e6)
count = st.integers(1, 2**40)
SMALL = {
    "seeds": st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4, unique=True).map(tuple),
    "optim.lr_min": st.just(0.0),
}
CHANGES = {
    "data.limit": st.integers(0, 10**6),
    "data.length_window": st.sampled_from([(), (24, 96)]),
    "model.width": count,
    "model.depth": count,
    "model.mixing": st.sampled_from(["full_glu", "half_glu1", "half_glu2", "gelu"]),
    "model.dropout": st.floats(0, 1, exclude_max=True),
    "model.options.direction": st.sampled_from(["forward", "backward", "bidirectional"]),
    "optim.lr": positive,
    "optim.ssm_lr": positive,
    "optim.groups": st.sampled_from(["standard", "BandCdecay", "BfastandCdecay", "noBCdecay"]),
    "train.steps": st.integers(2, 2**40),
    "train.batch_size": count,
    "on_nonfinite": st.sampled_from(["stop", "continue"]),
    "published": st.text(),
}


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["rotrnn", "lru"]), st.fixed_dictionaries(SMALL, optional=CHANGES))
def test_every_valid_config_survives_json(layer, changes):
    config = tiny_config(layer, changes)
    assert isinstance(config, ExperimentConfig)
    assert from_config_dict(as_json(config)) == config
