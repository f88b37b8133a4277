"""What benchmarks say of a measured value, and what their commands refuse and write."""

import json

import pytest

from benchmarks import __main__ as command
from benchmarks import device
from benchmarks.result import Result, faster, smaller
from benchmarks.timing import Program


def program(seconds, temp_bytes=0):
    return Program("p", print, print, 0.0, temp_bytes, 0, wall=list(seconds))


@pytest.mark.parametrize(
    ("spread", "ceiling", "met"),
    [
        ((3.0, 3.4), False, False),
        ((3.0, 3.6), False, True),
        ((3.6, 4.0), False, True),
        ((3.6, 4.0), True, False),
        ((3.4, 4.0), True, True),
    ],
)
def test_a_target_is_met_if_the_interval_reaches_it(spread, ceiling, met):
    assert Result("r", 3.3, "x", spread, target=3.5, ceiling=ceiling).met is met


def test_a_value_without_interval_must_reach_the_target_itself():
    assert Result("r", 3.5, target=3.5).met
    assert not Result("r", 3.49, target=3.5).met
    assert Result("r", 3.5).met is None


def test_records_and_rows_say_all_of_it():
    found = faster("LRU", program([2.0] * 11), program([0.5] * 11), 3.5)
    assert found.record() == {
        "name": "LRU", "target": ">= 3.5", "value": 4.0, "unit": "x", "spread": (4.0, 4.0), "met": True,
    }  # fmt: skip
    assert found.row() == "| LRU | >= 3.5 | 4 [4, 4] | x | yes |"
    assert (
        smaller("m", program([], 600), program([], 100), 7)
        .row()
        .endswith("| >= 7 | 6 | x less temporary memory | **no** |")
    )


def test_the_command_writes_what_it_measured(monkeypatch, capsys, tmp_path):
    given = []

    def measure(rounds):
        given.append(rounds)
        yield Result("one", 2.0, target=1.0)
        yield Result("two", 0.5, target=1.0)

    monkeypatch.setattr(command, "BENCHMARKS", {"some": measure, "other": print})
    monkeypatch.setattr(command.timing, "tune_allocator", lambda: "as it is")
    monkeypatch.setattr(command.timing, "matmul_rate", lambda: 1e9)
    monkeypatch.setattr(command.jax.config, "update", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["benchmarks", "some", "--rounds=12", f"--out={tmp_path}"])
    command.main()
    assert given == [12]
    assert [(r["name"], r["met"]) for r in json.loads((tmp_path / "bench.json").read_text())] == [
        ("one", True), ("two", False),
    ]  # fmt: skip
    assert "1 targets missed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argument", "line"),
    [("--rounds=10", "at least 11"), ("nonsense", "unknown benchmark 'nonsense': expected one of")],
)
def test_the_command_refuses(monkeypatch, capsys, argument, line):
    monkeypatch.setattr("sys.argv", ["benchmarks", argument])
    with pytest.raises(SystemExit, match="2"):
        command.main()
    assert line in capsys.readouterr().err


def test_the_device_command_begins_nothing_when_its_time_is_up(monkeypatch, capsys, tmp_path):
    def first():
        yield Result("one", 1.0)
        yield Result("never", 1.0)

    clock = iter([0.0, 0.0, 70.0, 70.0, 70.0])
    monkeypatch.setattr(device, "PARTS", {"first": first, "second": print})
    monkeypatch.setattr(device.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(device.jax.config, "update", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["device", "--minutes=1", f"--out={tmp_path}"])
    device.main()
    said = capsys.readouterr().out
    assert "the rest of first" in said
    assert said.endswith("not measured, the time was up: second\n")
    assert [r["name"] for r in json.loads((tmp_path / "device.json").read_text())] == ["one"]


def test_a_device_is_correct_where_the_layer_is():
    (found,) = device.correctness()
    assert found.met
    assert 0 < found.value < 1e-5
