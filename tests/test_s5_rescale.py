"""A trained S5 scored at another sampling rate: other step sizes, the same parameters, a record of its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import tiny_config

from data.registry import task_spec
from training import checkpoint
from training.errors import ConfigError
from training.loop import load_data
from training.probe import probe_batch
from training.reading import Reading, rescaled
from training.results import read_results, score, summary_line
from training.start import begin
from training.state import initial_params_of_all, make_program
from training.step import make_probe_step
from training.workdir import CHECKPOINTS, RESULTS, claim

META = {"repairs": [], "stopped": []}


def save_run(folder, config):
    """What a run has before its first step."""
    program = make_program(config, task_spec(config.data.request))
    data = load_data(config, folder)
    inputs = probe_batch(data.splits["val"], 4)
    state, _ = begin(program, initial_params_of_all(program), make_probe_step(program, (1,)), inputs)
    claim(folder, config, {"data_sha256": data.content_sha256})
    longer = jax.tree.map_with_path(
        lambda path, x: x + jnp.log(2.0) if "log_step" in jax.tree_util.keystr(path) else x, state.params
    )
    checkpoint.save(folder / CHECKPOINTS, 0, state, META)
    checkpoint.save(folder / CHECKPOINTS, 1, state._replace(params=longer), META)


def test_scoring_at_half_the_rate(tmp_path):
    save_run(tmp_path, tiny_config("s5", {"model.depth": 1}))
    plain = score(tmp_path, tmp_path, "val", "0")
    fast = score(tmp_path, tmp_path, "val", "0", Reading(2.0))
    stored = score(tmp_path, tmp_path, "val", "1")
    assert fast["seeds"]["0"]["loss"] == pytest.approx(stored["seeds"]["0"]["loss"], rel=1e-6)
    assert abs(fast["seeds"]["0"]["loss"] - plain["seeds"]["0"]["loss"]) > 1e-4
    assert score(tmp_path, tmp_path, "val", "0", Reading(2.0)) == fast
    assert read_results(tmp_path / RESULTS) == [plain, stored, fast]
    assert (plain["step_rescale"], fast["step_rescale"]) == (1.0, 2.0)
    assert "0 checkpoint at 1/2 of the sampling rate (rule step_rescale), smoke" in summary_line(fast)
    assert "sampling rate" not in summary_line(plain)


def test_the_factor_is_relative_to_the_rate_of_training():
    config = tiny_config("s5", {"model.options.step_rescale": 0.5})
    assert rescaled(config, 4.0).model.options["step_rescale"] == 2.0
    assert rescaled(config, 1.0) is config


@pytest.mark.parametrize(
    ("layer", "factor", "message"),
    [
        ("mru", 2.0, "another sampling rate: layer mru has no step size and no rule for one"),
        ("lru", 1.5, "--step_rescale=1.5: layer lru holds inputs for whole steps"),
        ("lru", 1e10, "--step_rescale=10000000000.0: layer lru holds inputs for at most 1000 steps"),
        (
            "rotrnn",
            -1.0,
            "--step_rescale=-1.0: rotrnn: held >= 1 is needed, and 1 with start=stationary, got held=-1, start=zero",
        ),
        ("s5", 0.0, "--step_rescale=0.0: s5: 0 < step_rescale < 1e6 is needed, got 0.0"),
        ("s5", np.nan, "--step_rescale=nan: expected a finite number"),
        ("s5", np.inf, "--step_rescale=inf: expected a finite number"),
    ],
)
def test_refused_factors(layer, factor, message):
    with pytest.raises(ConfigError) as refusal:
        rescaled(tiny_config(layer), factor)
    assert str(refusal.value) == message
