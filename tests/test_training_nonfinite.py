"""What a run leaves of steps that were not finite, whichever block and seed they were in, and who takes one again."""

import json
import shutil

import pytest

from training import nonfinite
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
