"""Every task trains: each task and each layer once; with LINREC_TEST_ALL set (`make test-all`) every layer on every
task and every language model on every text, from the first step to the record of the test."""

import itertools
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import stacked_batch

from configs import language, layers, lra, pixels, probes, shakespeare_char, speech_commands, tinystories
from data.registry import DATA_SETS
from training.config import from_config_dict
from training.loop import load_data, train
from training.results import score, summary_line
from training.state import Affine, initial_params_of_all, initial_state, make_program
from training.step import FINE, make_train_step
from training.writers import read_metrics

FAMILIES = {task: family for family in (lra, speech_commands, pixels, probes) for task in family.TASKS}
TEXTS = {"shakespeare_char": shakespeare_char, "tinystories": tinystories, "tinystories_small": tinystories}


ONE_LAYER = {
    "listops": "rotrnn",
    "text": "lru",
    "retrieval": "s5",
    "image": "mru",
    "pathfinder": "attention",
    "pathx": "linear_attention",
    "path256": "mlp",
    "scifar": "mlp",
    "smnist": "dense",
    "psmnist": "mlp",
    "sc35": "lru",
    "sc10": "mlp",
    "fsdd": "mlp",
}
"""The probes have tests of their own."""


def cases():
    """(family, string after the colon)."""
    of_layers = {**{layer: layer for layer in layers.OPTIONS}, "mru": "mru"}
    if os.environ.get("LINREC_TEST_ALL"):
        for task, layer in itertools.product(FAMILIES, of_layers):
            row = "mru_ldu" if layer == "mru" and FAMILIES[task] is probes else layer
            if FAMILIES[task] is probes and row not in probes.LAYERS:
                continue
            yield FAMILIES[task], f"task={task},layer={row}"
        for task, model in itertools.product(TEXTS, language.MODELS):
            yield TEXTS[task], f"task={task},model={model}"
        return
    for task, layer in ONE_LAYER.items():
        yield FAMILIES[task], f"task={task},layer={layer}"
    for task, model in zip(TEXTS, ("small_lru", "small_attention", "small_mru"), strict=True):
        yield TEXTS[task], f"task={task},model={model}"


CASES = [pytest.param(*case, id=case[1]) for case in cases()]


def smallest(family, row):
    """The smoke config with one block and four steps."""
    plain = family.get_config(f"{row},smoke").to_dict()
    plain["seeds"], plain["model"]["depth"] = (0,), 1
    if "sublayers" in plain["model"]["options"]:
        plain["model"]["options"]["sublayers"] = len(plain["model"].get("sublayers", ())) or 1
    plain["train"] |= {"steps": 4, "eval_every": 4, "checkpoint_every": 4, "probe_every": 4}
    return from_config_dict(plain)


if os.environ.get("LINREC_TEST_ALL"):

    @pytest.mark.parametrize(("family", "row"), CASES)
    def test_a_row_trains_and_is_scored(family, row, tmp_path):
        config = smallest(family, row)
        train(config, tmp_path, tmp_path)
        record = score(tmp_path, tmp_path, "test", "last")
        assert record["data"] == "smoke"
        assert np.isfinite(record["seeds"]["0"]["loss"])
        assert "smoke" in summary_line(record)
        steps = [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl") if row["split"] == "train"]
        assert steps == [0, 1, 2, 3, 4]

else:

    @pytest.mark.parametrize(("family", "row"), CASES)
    def test_a_row_takes_a_step_on_data_of_its_form(family, row, tmp_path):
        config = smallest(family, row)
        data = load_data(config, tmp_path)
        program = make_program(config, data.spec, data.affine and Affine(*data.affine))
        state = initial_state(program, initial_params_of_all(program), ())
        before = jax.device_get(state.params)
        state, metrics = make_train_step(program)(state, stacked_batch(data.splits["train"], (0,), 0, 8), jnp.int32(0))
        assert np.isfinite(metrics.loss[0])
        assert metrics.bad[0] == FINE
        assert any(
            (np.asarray(new) != old).any()
            for new, old in zip(*map(jax.tree.leaves, (state.params, before)), strict=True)
        )


def test_each_task_and_layer_is_among_the_cases():
    assert {*ONE_LAYER, *probes.TASKS} == FAMILIES.keys()
    assert {*ONE_LAYER.values()} == layers.OPTIONS.keys()


def test_every_data_set_is_in_a_family():
    assert {*FAMILIES, *TEXTS, "text_bytes"} == set(DATA_SETS)
