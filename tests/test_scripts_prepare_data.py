"""The command that makes data ready: output, refusals, kills, two at once."""

import pathlib
import signal
import subprocess
import sys
import time

import pytest

from data import prepared, registry
from data.spec import DataRequest
from scripts import prepare_data

ROOT = pathlib.Path(__file__).parent.parent
SMALL = ["listops", "--length_window=24:96", "--limit=60"]
LARGER = ["listops", "--length_window=24:96", "--limit=1000", "--processes=2"]
LARGER_REQUEST = DataRequest("listops", (24, 96), 1000)


def start(*arguments):
    command = [sys.executable, "-m", "scripts.prepare_data", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(*arguments):
    process = start(*arguments)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def test_prepare_again_verify_list(tmp_path, capsys):
    code, out, err = run(*SMALL, f"--data_dir={tmp_path}")
    assert code == 0, err
    assert out.splitlines()[0] == f"ready (partial): {tmp_path}/listops_24_96_limit60"
    assert "60 train / 60 val / 60 test records" in out
    # Without a terminal: plain lines, and no line is rewritten.
    assert "generate: 180 of 180" in err.splitlines()
    assert "\r" not in err

    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert prepare_data.main([*SMALL, f"--data_dir={tmp_path}"]) == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert "ready (partial): " in capsys.readouterr().out

    assert prepare_data.main([*SMALL, f"--data_dir={tmp_path}", "--verify", "--processes=1"]) == 0
    assert f"verified (partial): {tmp_path}/listops_24_96_limit60" in capsys.readouterr().out

    (tmp_path / "listops").mkdir()
    (tmp_path / "listops" / "manifest.json").write_text("{}")
    assert prepare_data.main(["list", f"--data_dir={tmp_path}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "listops: classification, 10 classes, 2048 tokens"
    assert f"  ready (partial, 60 train / 60 val / 60 test): {tmp_path}/listops_24_96_limit60" in lines
    assert any(line.startswith("  damaged: ") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["listop"], "unknown data set 'listop', did you mean 'listops'?"),
        (["listops", "--length_window=24"], "'24' should be LOW:HIGH, such as 24:96"),
        (["listops", "--length_window=a:b"], "'a:b' should be LOW:HIGH"),
        (["listops", "--length_window=96:24"], "length window 96:24"),
        (["listops", "--limit=0"], "'0' should be a whole number of at least 1"),
        (["listops", "--limit=many"], "'many' should be a whole number"),
        (["listops", "--processes=-1"], "'-1' should be a whole number"),
        (["listops", "--limti=5"], "--limti=5"),
        (["listops", "--lim=5"], "--lim=5"),
        ([], "name"),
        ([*SMALL, "--verify"], "no data in "),
    ],
)
def test_mistakes_are_refused_in_one_line(arguments, message, tmp_path, capsys):
    try:
        code = prepare_data.main([*arguments, f"--data_dir={tmp_path}/data"])
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    assert code == 2
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not (tmp_path / "data").exists()


def test_two_processes_write_the_same_bytes(tmp_path):
    # The order inside a serialised protobuf map differs between processes unless it is asked to be fixed.
    contents = []
    for name in ("first", "second", "third"):
        code, _, err = run(*SMALL, f"--data_dir={tmp_path / name}", "--processes=1")
        assert code == 0, err
        folder = tmp_path / name / "listops_24_96_limit60"
        contents.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert contents[0] == contents[1] == contents[2]


def test_a_refusal_ends_the_command_with_2(tmp_path):
    code, out, err = run("listops", "--length_window=5:4", f"--data_dir={tmp_path}")
    assert (code, out) == (2, "")
    assert err.startswith("error: length window 5:4")
    assert err.count("\n") == 1


@pytest.mark.parametrize("left_behind", [".*.preparing", ".*.preparing/*-train.array_record-*"])
def test_killed_preparation_leaves_nothing_that_looks_ready(tmp_path, left_behind):
    process = start(*LARGER, f"--data_dir={tmp_path}")
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(left_behind)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)  # the pipes close when the last worker is gone
    assert process.returncode == -signal.SIGKILL
    assert list(tmp_path.glob(".*.preparing"))
    assert not (tmp_path / registry.folder_of(LARGER_REQUEST)).exists()

    code, _, err = run(*LARGER, f"--data_dir={tmp_path}")
    assert code == 0, err
    prepared.verify(LARGER_REQUEST, tmp_path, processes=1)
    assert not list(tmp_path.glob(".*.preparing"))


def test_two_at_once_make_one(tmp_path):
    both = [start(*LARGER, f"--data_dir={tmp_path}") for _ in range(2)]
    ends = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    # One made the data, the other waited for it and found them ready.
    assert sorted("generate:" in err for _, err in ends) == [False, True]
    assert {out.splitlines()[0] for out, _ in ends} == {
        f"ready (partial): {tmp_path}/{registry.folder_of(LARGER_REQUEST)}"
    }
    prepared.verify(LARGER_REQUEST, tmp_path, processes=1)
