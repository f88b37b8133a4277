"""The chain behind every published number."""

import json
import shlex
import subprocess

import pytest
from commands import assert_refused, call

from configs import lra, pixels
from scripts import reproduce
from scripts.report.commands import FAMILIES
from scripts.report.published import REFERENCE

SCRIPT = "scripts/reproduce.py"
ROWS = json.loads(REFERENCE.read_text())["rows"]


def test_a_chain_prepares_trains_scores_and_reports():
    ended = call(SCRIPT, "speech_commands", "--task", "sc35", "--layer", "s5", "--out=runs/a b", "--data_dir=d")
    assert (ended.code, ended.err) == (0, "")
    remarks = [line for line in ended.out.splitlines() if line.startswith("#")]
    assert "96.52 (0.15) %" in remarks[0]
    assert "one NVIDIA A100" in remarks[1]
    commands = [shlex.split(line) for line in ended.out.splitlines() if not line.startswith("#")]
    folder = "--workdir=runs/a b/sc35_s5_published"
    config = "--config=configs/speech_commands.py:task=sc35,layer=s5,preset=published,seeds=0:3"
    assert commands == [
        ["python", "-m", "scripts.prepare_data", "sc35", "--data_dir=d"],
        ["python", "train.py", config, folder, "--data_dir=d"],
        ["python", "eval.py", folder, "--split=test", "--data_dir=d"],
        ["python", "eval.py", folder, "--split=test", "--every=2", "--data_dir=d"],
        ["python", "-m", "scripts.report", "runs/a b", "--out=runs/a b/report"],
    ]


def test_every_published_number_has_a_chain_or_a_reason():
    lines = reproduce.numbers()
    assert len(lines) == len(ROWS)
    chains = 0
    for row, line in zip(ROWS, lines, strict=True):
        model, task, _, how = line.split(" | ")
        assert (model, task) == (row["model"], row["task"])
        if not how.startswith("python"):
            assert how.startswith(("no: ", "no number: ", "not trained: "))
            continue
        chains += 1
        family, _, asked, _, layer = shlex.split(how)[3:]
        assert asked == task.removesuffix("_8k")
        assert FAMILIES[f"configs/{family}.py"].get_config(f"task={asked},layer={layer}").model.layer == layer
    assert chains == 10 + 6 + 1 + 1
    ours = {row["model"] for row, line in zip(ROWS, lines, strict=True) if "| python" in line}
    assert ours == {"S5", "LRU", "RotRNN", "LRU (re-run by RotRNN authors)"}


@pytest.mark.parametrize(
    ("family", "task", "hours"),
    [
        (lra, "listops", 10.6),
        (lra, "text", 0.9),
        (lra, "retrieval", 4.9),
        (lra, "pathfinder", 9.0),
        (lra, "pathx", 29),
        (pixels, "scifar", 3.1),
    ],
)
def test_hours_of_the_lru_are_the_published_ones(family, task, hours):
    found = reproduce.expected(family.get_config(f"task={task},layer=lru,preset=published").to_dict())
    assert found.hours == pytest.approx(hours, abs=0.05, rel=0.01)
    assert found.how.startswith("published: ")


def test_other_hours_say_how_they_were_estimated():
    found = reproduce.expected(lra.get_config("task=image,layer=rotrnn").to_dict())
    # 225,000 steps of batches of 50, at the speed of S5 on colour images of the same size.
    assert found.hours == pytest.approx(225_000 / 15.9 / 3600, rel=1e-6)
    assert found.how.startswith("an estimate: ")
    assert "RotRNN published no speed" in found.how
    # A batch of 50 expressions is 50/32 of the published one.
    s5 = reproduce.expected(lra.get_config("task=listops,layer=s5").to_dict())
    assert s5.hours == pytest.approx(76_800 / 2.2 / 3600 * 50 / 32, rel=1e-6)
    assert reproduce.expected(lra.get_config("task=image,layer=mru").to_dict()).hours is None


def test_a_stored_choice_goes_to_the_preparation():
    _, commands = reproduce.chain("pixels", "psmnist", "lru", (0,), "published", reproduce.Path("x"), None)
    assert commands[0][3:] == ["psmnist"]  # in its default permutation
    config = pixels.get_config("task=psmnist,layer=lru").to_dict()
    config["data"]["choices"]["permutation"] = "numpy_92916"
    assert reproduce._stored(config) == ["--permutation=numpy_92916"]


def test_run_stops_at_the_first_failure(monkeypatch):
    called = []

    def fake(command, check):
        called.append(command[1:])
        return subprocess.CompletedProcess(command, 75 if "train.py" in command else 0)

    monkeypatch.setattr(subprocess, "run", fake)
    assert call(SCRIPT, "lra", "--task", "listops", "--layer", "lru", "--run").code == 75
    assert [command[:2] for command in called] == [["-m", "scripts.prepare_data"], ["train.py", called[1][1]]]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["lra", "--task", "sc35"], "--task=sc35: lra has listops, text"),
        (["lra", "--task", "listops", "--seeds", "x"], "--seeds: seeds='x'"),
        (["lra"], "--task is missing: lra has listops, text"),
        (["list", "--task", "nonsense"], "--task=nonsense: list takes none"),
        (["arena"], "invalid choice: 'arena'"),
    ],
)
def test_what_is_refused(arguments, line):
    assert_refused(call(SCRIPT, *arguments), line)
