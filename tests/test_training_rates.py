"""Scoring at a lower sampling rate: every second sample, read with steps twice as long."""

import numpy as np
import pytest
from tiny import tiny_config

from data.spec import InputKind, TaskKind, TaskSpec
from training.errors import ConfigError
from training.reading import Reading, rescaled
from training.state import Affine, initial_params_of_all, make_program
from training.step import make_eval_step

TASK = TaskSpec("clips", TaskKind.CLASSIFICATION, InputKind.CHANNELS, 1, 10, 3, dtype="int16")
AFFINE = Affine(np.linspace(0.1, 1, 10, dtype=np.float32)[:, None], np.full((10, 1), 0.5, np.float32))


def clips():
    rng = np.random.default_rng(0)
    return {
        "inputs": rng.integers(-5, 6, (6, 10, 1)).astype(np.int16),
        "lengths": np.array([10, 9, 7, 2, 1, 10], np.int32),
        "labels": np.arange(6, dtype=np.int32) % 3,
        "weight": np.ones(6, np.float32),
    }


@pytest.mark.parametrize("layer", ["s5", "lru", "rotrnn"])
def test_every_second_sample_is_taken_of_the_normalised_input(layer):
    """The same as a task of half the length whose samples were normalised beforehand, with rescaled steps."""
    config = rescaled(tiny_config(layer, {"model.depth": 1}), 2)
    program = make_program(config, TASK, AFFINE)
    params, batch = initial_params_of_all(program), clips()
    stats = (None,)
    found = make_eval_step(program, 2)(params, stats, batch)

    half = make_program(config, TASK, Affine(np.ones(1, np.float32), np.zeros(1, np.float32)))
    normalised = batch["inputs"] * AFFINE.scale + AFFINE.shift
    lower = {**batch, "inputs": normalised[:, ::2].astype(np.float32), "lengths": (batch["lengths"] + 1) // 2}
    expected = make_eval_step(half)(params, stats, lower)
    np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-6)
    whole = make_eval_step(program)(params, stats, batch)
    assert abs(float(whole.loss[0] - found.loss[0])) > 1e-4


def test_the_rule_is_recorded_and_the_option_is_whole():
    assert rescaled(tiny_config("lru"), 2.0).model.options["held"] == 2
    assert rescaled(tiny_config("rotrnn"), 3).model.options["held"] == 3
    assert isinstance(rescaled(tiny_config("lru"), 2.0).model.options["held"], int)


def test_only_samples_can_be_left_out():
    tokens = TaskSpec("words", TaskKind.CLASSIFICATION, InputKind.TOKENS, 6, 10, 3)
    Reading(every=1).refuse_skipping(tokens)
    Reading(every=2).refuse_skipping(TASK)
    with pytest.raises(ConfigError, match="--every=2: words has no samples that could be left out"):
        Reading(every=2).refuse_skipping(tokens)
