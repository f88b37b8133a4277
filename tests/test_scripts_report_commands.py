"""The command that makes a run, found from its config."""

import json
import shlex

import pytest
from report_runs import plain, write_run

from configs import demo, lra, pixels, probes, speech_commands, stability
from configs.argument import parse_argument
from scripts.report.commands import Command, command_of, flat
from scripts.report.runs import read_runs
from scripts.report.settings import why_not_the_benchmark
from training.config import from_config_dict, to_plain

FAMILIES = {
    "configs/lra.py": lra,
    "configs/speech_commands.py": speech_commands,
    "configs/pixels.py": pixels,
    "configs/demo.py": demo,
    "configs/probes.py": probes,
    "configs/stability.py": stability,
}
CASES = [
    ("configs/lra.py", "task=listops,layer=rotrnn"),
    ("configs/lra.py", "task=text,layer=lru,preset=published"),
    ("configs/lra.py", "task=pathx,layer=s5,depth=4,direction=forward"),
    ("configs/lra.py", "task=listops,layer=mru,smoke"),
    ("configs/lra.py", "task=listops,layer=attention,preset=published,smoke"),
    ("configs/speech_commands.py", "task=sc35,layer=rotrnn,preset=published"),
    ("configs/pixels.py", "task=psmnist,layer=linear_attention"),
    ("configs/pixels.py", "task=scifar,layer=mlp,depth=2"),
    ("configs/demo.py", "layer=rotrnn_folded,depth=4,rate=small"),
    ("configs/probes.py", "task=s3,layer=mru_identity,lr=0.003"),
    ("configs/stability.py", "task=listops,layer=rotrnn_stationary,depth=4,rate=large"),
    ("configs/stability.py", "task=listops,layer=lru,depth=6,rate=small,updates=10000"),
    ("configs/stability.py", "task=fsdd,layer=s5,depth=2,rate=small,smoke"),
]


def recorded(file, argument, changes=None):
    """What config.json holds of such a run."""
    config = to_plain(from_config_dict(FAMILIES[file].get_config(argument).to_dict()))
    for path, value in (changes or {}).items():
        *groups, name = path.split(".")
        group = config
        for key in groups:
            group = group[key]
        group[name] = value
    return json.loads(json.dumps(config))


def resolved(line):
    """The flat config that a command line asks for, and the rest of the line."""
    program, script, config, *rest = shlex.split(line)
    assert (program, script) == ("python", "train.py")
    file, _, argument = config.removeprefix("--config=").partition(":")
    found = flat(plain(FAMILIES[file].get_config(argument)))
    for change in (flag for flag in rest if flag.startswith("--config.")):
        key, _, value = change.removeprefix("--config.").partition("=")
        kind = type(found[key])
        found[key] = {"True": True, "False": False}[value] if kind is bool else kind(value)
    return found, [flag for flag in rest if not flag.startswith("--config.")]


@pytest.mark.parametrize(("file", "argument"), CASES)
def test_a_run_of_a_family_needs_no_overrides(file, argument):
    found = command_of(recorded(file, argument))
    assert (found.file, found.overrides) == (file, {})
    expected, kinds = FAMILIES[file].get_config(argument), {"depth": int, "updates": int, "lr": float, "smoke": bool}
    given = parse_argument(argument, dict.fromkeys(("task", "layer", "preset", "direction", "rate"), str) | kinds)
    assert found.argument == given
    config, rest = resolved(found.train((0, 1, 2), "runs/x"))
    assert config == flat(plain(expected)) | {"seeds": [0, 1, 2]}
    assert rest == ["--workdir=runs/x"]


def test_what_was_changed_is_overridden():
    changes = {"model.options.normalise": "folded", "train.steps": 40, "optim.lr": 0.002, "model.options.held": 1}
    found = command_of(recorded("configs/lra.py", "task=listops,layer=rotrnn", changes))
    assert found.overrides == {"model.options.normalise": "folded", "train.steps": 40, "optim.lr": 0.002}
    config, rest = resolved(found.train((4,), "a folder"))
    assert config["train.steps"] == 40
    assert config["optim.lr"] == 0.002
    assert config["model.options.normalise"] == "folded"
    assert config["seeds"] == [4]
    assert rest == ["--workdir=a folder"]
    assert found.parts == ("normalise=folded", "lr=0.002", "steps=40")


def test_what_is_only_measured_is_no_other_setting():
    same = recorded("configs/lra.py", "task=listops,layer=lru", {"train.log_every": 1, "train.probe_every": 7})
    found, plain_one = command_of(same), command_of(recorded("configs/lra.py", "task=listops,layer=lru"))
    assert found.setting == plain_one.setting
    assert "--config.train.log_every=1" in found.train((0,), "x")
    other = command_of(recorded("configs/lra.py", "task=listops,layer=lru", {"train.batch_size": 8}))
    assert other.setting != plain_one.setting


def test_an_older_run_lacks_keys_at_their_default():
    config = recorded("configs/lra.py", "task=listops,layer=lru")
    del config["model"]["options"]["chunk"]
    assert command_of(config).overrides == {}


def test_a_run_from_old_weights_is_another_setting_and_not_the_benchmark(tmp_path):
    folder = write_run(tmp_path / "run", "task=listops,layer=lru", {0: 0.4}, changes={"init_from": "runs/old"})
    ((run,), _) = read_runs([folder])
    found = command_of(run.config)
    assert found.parts == ("init_from=runs/old",)
    assert " --config.init_from=runs/old " in found.train((0,), "x")
    whole = {"updates": run.config["train"]["steps"]}
    assert why_not_the_benchmark(run, whole) == ["started from the weights of runs/old"]
    drawn = write_run(tmp_path / "drawn", "task=listops,layer=lru", {0: 0.4})
    assert why_not_the_benchmark(read_runs([drawn])[0][0], whole) == []


def test_a_run_of_no_family_says_so():
    config = recorded("configs/lra.py", "task=listops,layer=lru") | {"data": {"task": "mine"}}
    found = command_of(config)
    assert found.file == ""
    assert found.train((0,), "runs/x").startswith("python train.py with the config of runs/x/config.json")


@pytest.mark.parametrize(("seeds", "text"), [((3,), "3"), ((2, 0, 1), "0:3"), ((0, 4, 7), "0+4+7"), ((4, 5), "4:6")])
def test_seeds_are_written_as_configs_read_them(seeds, text):
    line = Command("configs/lra.py", "lru", {"task": "listops"}, {}).train(seeds, "x")
    assert f",seeds={text} " in line
    assert parse_argument(f"seeds={text}", {"seeds": tuple})["seeds"] == tuple(sorted(seeds))
