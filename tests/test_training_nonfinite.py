"""What a run leaves of steps that were not finite, whichever block and seed they were in, and who takes one again."""

import json
import shutil

import numpy as np
import pytest
from smoke_run import smoke_config, train_quietly

from scripts.kill_subjects import rows_of
from training import checkpoint, loop, memory, nonfinite
from training.errors import ConfigError
from training.files import write_sealed
from training.nonfinite import Incident
from training.replay import replay

INCIDENT = Incident(1, 3, "the loss", None, [*range(8)], {"head": {"parameters": 1.0}})


@pytest.fixture
def copy(trained, tmp_path):
    """A copy of a finished run of two seeds and one block: 12 steps, batches of 8."""
    return shutil.copytree(trained, tmp_path / "run")


def test_a_run_without_an_incident_or_with_a_damaged_one_has_nothing_to_replay(copy):
    with pytest.raises(ConfigError, match="/nonfinite has no step to take again: none that was not finite is recorded"):
        replay(copy, copy)
    nonfinite.write(copy, INCIDENT)
    with pytest.raises(ConfigError, match=r"/nonfinite has no step of seed 0: choose from 1$"):
        replay(copy, copy, 0)
    with pytest.raises(ConfigError, match="has no checkpoint of step 3 or later in which seed 1 is held"):
        replay(copy, copy)
    path = copy / "nonfinite" / "seed-1-step-3.json"
    written = path.read_text()
    path.write_text(written.replace('"step": 3', '"step": 4'))
    with pytest.raises(ConfigError, match=r"seed-1-step-3.json is damaged \(it was altered after it was written"):
        replay(copy, copy)
    record = json.loads(written)
    del record["sha256"]
    path.write_text(json.dumps(record | {"records": [-1]}))
    with pytest.raises(ConfigError, match=r"seed-1-step-3.json is damaged \(it has no sha256"):
        replay(copy, copy)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"seed": 2}, "its seed cannot be 2"),
        ({"seed": True}, "its seed cannot be True"),
        ({"seed": 0}, "it is that of seed 0, step 3"),
        ({"step": 0}, "its step cannot be 0"),
        ({"step": 13}, "its step cannot be 13"),
        ({"step": 3.0}, "its step cannot be 3.0"),
        ({"tensor": "the\nloss"}, r"its tensor cannot be 'the\\nloss'"),
        ({"block": 1}, "its block cannot be 1"),
        ({"records": [0] * 7}, "its records cannot be "),
        ({"records": [0] * 7 + [-1]}, "its records cannot be "),
        ({"records": [0] * 7 + ["1"]}, "its records cannot be "),
        ({"records": [0] * 7 + [10**9]}, "it has record 1000000000 of "),
        ({"layers": {"head": {"parameters": "1"}}}, "its layers cannot be "),
    ],
)
def test_values_that_no_step_of_the_run_can_have_are_damage_whoever_sealed_them(copy, change, why):
    (copy / "nonfinite").mkdir()
    write_sealed(copy / "nonfinite" / "seed-1-step-3.json", INCIDENT._asdict() | change)
    with pytest.raises(
        ConfigError, match=rf"seed-1-step-3.json is damaged \({why}.*\): put back a copy, or remove it$"
    ):
        replay(copy, copy)


HIT = {1: (0, 3), 2: (1, 6), 3: (2, 9)}
"""Seed -> the block and the step in which its states overflow."""


def overflowing(program, mesh):
    """The train step with a gain of e^100 before the states of the seeds in HIT: all parameters stay finite."""
    compiled = memory.compile_step(program, mesh)

    def call(state, batch, done):
        for seed, (block, step) in HIT.items():
            if int(done) == step - 1:
                layer = state.params["blocks"][block]["layer"]
                layer["gamma_log"] = layer["gamma_log"].at[seed].set(100.0)
        return compiled.call(state, batch, done)

    return compiled._replace(call=call)


def test_a_state_that_overflows_is_named_in_any_block_of_any_seed_and_the_others_are_unharmed(tmp_path, monkeypatch):
    config = smoke_config({"model.depth": 3, "seeds": (0, *HIT), "on_nonfinite": "continue"})
    alone = train_quietly(config, tmp_path / "alone")
    monkeypatch.setattr(loop, "compile_step", overflowing)
    folder = train_quietly(config, tmp_path / "run")
    incidents = nonfinite.read(folder, config)
    assert {incident.seed: (incident.block, incident.step) for incident in incidents} == HIT
    for incident in incidents:
        assert incident.line.endswith(f": the loss is not finite, first in the output of blocks/{incident.block}")
        assert None not in [sizes["parameters"] for sizes in incident.layers.values()]
        energies = [incident.layers[f"blocks/{block}"]["state_energy"] for block in range(3)]
        assert energies.index(None) == incident.block
    # Each seed has the rows of a run left alone until it is hit, seed 0 to the end, and there the same bits.
    hit = {0: 13} | {seed: step for seed, (_, step) in HIT.items()}
    rows, expected = ([row for row in rows_of(f) if row["step"] < hit[row["seed"]]] for f in (folder, alone))
    assert rows == expected
    saved, undisturbed = (checkpoint.restore(f / "checkpoints", None, read_only=True) for f in (folder, alone))
    assert saved is not None
    assert undisturbed is not None
    assert np.asarray(saved.tree["alive"]).tolist() == [True, False, False, False]
    for path, leaf in undisturbed.tree.items():
        assert np.asarray(saved.tree[path])[0].tobytes() == np.asarray(leaf)[0].tobytes(), path
