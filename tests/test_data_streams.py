"""Preparing streams: flat memory, going on after a kill, choices, partial sources."""

import json
import pathlib
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from data import prepared, registry
from data.errors import DataError
from data.examples import About, Choice, Example, Generated, Indexed
from data.sealed import sealed
from data.spec import DataRequest, InputKind, TaskKind, TaskSpec

ROOT = pathlib.Path(__file__).parent.parent


class Numbers:
    """Record i holds the bytes of i in little-endian order, label i % 2. It tells what is drawn."""

    def __init__(self, train=50, width=4, drawn=None, wait=0.0):
        self.CHOICES = {"numbers": {"form": Choice(("plain", "odd"), True), "view": Choice(("a", "b"), False)}}
        self.sizes, self.width, self.drawn, self.wait = {"train": train, "val": 5, "test": 5}, width, drawn, wait

    def about(self, request):
        return About("made up", "none", 0, 100)

    def task_spec(self, request):
        return TaskSpec(request.name, TaskKind.CLASSIFICATION, InputKind.CHANNELS, 1, self.width, 2)

    def sources(self, request):
        return ()

    def generate(self, request, sources, processes, progress):
        def starting_at(start, split):
            for index in range(start, self.sizes[split]):
                if self.drawn is not None:
                    self.drawn.append((split, index))
                if self.wait and index % 1000 == 0:
                    time.sleep(self.wait)
                values = np.zeros((self.width, 1), np.uint8)
                values[:4, 0] = np.array([index], "<u4").view(np.uint8)
                yield Example(values, index % 2)

        splits = {split: Indexed(lambda start, split=split: starting_at(start, split)) for split in self.sizes}
        return Generated(splits, lambda: {"version": "1"}, lambda: {"moments": np.arange(3.0)})

    def check(self, request, splits, facts, processes, progress):
        return {"records": float(sum(map(len, splits.values())))}

    def smoke(self, request):
        return {name: [Example(np.zeros((self.width, 1), np.uint8), 0)] for name in self.sizes}

    def baselines(self, request, splits):
        return {"val": {"majority": 0.5}, "test": {"majority": 0.5}}


REQUEST = DataRequest("numbers")


@pytest.fixture
def numbers(monkeypatch):
    def register(**options):
        monkeypatch.setitem(registry.DATA_SETS, "numbers", Numbers(**options))

    register()
    return register


def test_what_is_prepared_opens_with_its_arrays_and_guesses(numbers, tmp_path):
    manifest = prepared.prepare(REQUEST, tmp_path)
    opened = prepared.open_data(REQUEST, tmp_path)
    assert manifest["counts"] == {"train": 50, "val": 5, "test": 5}
    assert manifest["statistics"] == {"records": 60.0}
    np.testing.assert_array_equal(np.load(tmp_path / "numbers" / "moments.npy"), [0, 1, 2])
    assert opened.baselines["test"] == {"majority": 0.5}
    assert not opened.partial
    assert opened.content_sha256 == manifest["content_sha256"]
    assert sorted(path.suffix for path in (tmp_path / "numbers").iterdir() if path.suffix in (".npy", ".new")) == [
        ".npy"
    ]
    array = tmp_path / "numbers" / "moments.npy"
    array.write_bytes(b"")
    with pytest.raises(DataError, match=r"moments\.npy has 0 bytes"):
        prepared.open_data(REQUEST, tmp_path)


def test_verify_finds_what_the_manifest_invents(numbers, tmp_path):
    prepared.prepare(REQUEST, tmp_path)
    path = tmp_path / "numbers" / "manifest.json"
    honest = json.loads(path.read_text())
    for change in ({"baselines": {"val": {"majority": 0.99}, "test": {"majority": 0.99}}}, {"statistics": {}}):
        path.write_text(json.dumps(sealed(honest | change)))
        with pytest.raises(DataError, match="are not those of the records"):
            prepared.verify(REQUEST, tmp_path)
    for change in (
        {"baselines": {}},
        {"partial": "no"},
        {"arrays": ["../x"]},
        {"files": {}},
        {"statistics": 1},
        {"counts": {"train": -5, "val": 5, "test": 5}},
    ):
        path.write_text(json.dumps(sealed(honest | change)))
        with pytest.raises(DataError, match=r"damaged|shards"):
            prepared.open_data(REQUEST, tmp_path)


def test_choices_are_named_by_the_folder_if_they_are_stored(numbers, tmp_path):
    odd, viewed = replace(REQUEST, choices=(("form", "odd"),)), replace(REQUEST, choices=(("view", "b"),))
    assert registry.folder_of(odd) == "numbers_odd"
    assert registry.folder_of(viewed) == registry.folder_of(replace(REQUEST, choices=(("form", "plain"),))) == "numbers"
    assert registry.folder_of(replace(odd, partial=True, limit=3)) == "numbers_odd_partial_limit3"
    for wrong, message in (
        (("form", "even"), "form='even': expected one of plain, odd"),
        (("from", "odd"), r"numbers has no choice 'from' \(it has: form, view\)"),
    ):
        with pytest.raises(DataError, match=message):
            registry.task_spec(replace(REQUEST, choices=(wrong,)))
    with pytest.raises(DataError, match=r"prepare_data numbers --data_dir=\S+ --form=odd --partial --limit=3$"):
        prepared.open_data(replace(odd, partial=True, limit=3), tmp_path)


def test_partial_is_told(numbers, tmp_path):
    for request in (replace(REQUEST, partial=True), replace(REQUEST, limit=3)):
        assert prepared.prepare(request, tmp_path)["partial"]
        assert prepared.open_data(request, tmp_path).partial


class Interrupted(BaseException):
    """As Ctrl-C would."""


def test_an_interrupted_preparation_goes_on_where_it_stopped(numbers, tmp_path, monkeypatch):
    monkeypatch.setattr("data.store.BLOCK", 10)
    monkeypatch.setattr("data.splits.BLOCK", 10)
    numbers()
    whole = prepared.prepare(REQUEST, tmp_path / "whole")

    def stop(stage, done, total):
        if done == 37:
            raise Interrupted

    drawn = []
    numbers(drawn=drawn)
    with pytest.raises(Interrupted):
        prepared.prepare(REQUEST, tmp_path / "parts", progress=stop)
    drawn.clear()
    resumed = prepared.prepare(REQUEST, tmp_path / "parts")
    assert drawn[0] == ("train", 30)  # three blocks were finished
    assert len(drawn) == 20 + 5 + 5
    assert resumed == whole
    for path in (tmp_path / "whole" / "numbers").iterdir():
        assert path.read_bytes() == (tmp_path / "parts" / "numbers" / path.name).read_bytes()


def test_what_was_begun_by_other_code_is_not_gone_on_with(numbers, tmp_path, monkeypatch):
    monkeypatch.setattr("data.store.BLOCK", 10)
    monkeypatch.setattr("data.splits.BLOCK", 10)

    def stop(stage, done, total):
        if done == 37:
            raise Interrupted

    with pytest.raises(Interrupted):
        prepared.prepare(REQUEST, tmp_path, progress=stop)
    assert (tmp_path / ".numbers.preparing" / "journal.json").exists()
    monkeypatch.setattr(prepared, "code_sha256", lambda: {"other.py": "code"})
    drawn = []
    numbers(drawn=drawn)
    prepared.prepare(REQUEST, tmp_path)
    assert drawn[0] == ("train", 0)


PREPARE = """
import sys, pathlib
from data import prepared, registry
from data.spec import DataRequest
from tests.test_data_streams import Numbers
registry.DATA_SETS["numbers"] = Numbers(train={train}, width={width}, wait={wait})
prepared.prepare(DataRequest("numbers"), pathlib.Path(sys.argv[1]))
import re
print(1024 * int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]))
"""


def start(code, folder):
    return subprocess.Popen([sys.executable, "-c", code, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_a_killed_preparation_goes_on_and_gives_the_same_bytes(numbers, tmp_path):
    code = PREPARE.format(train=40_000, width=4, wait=0.02)
    process = start(code, tmp_path / "killed")
    journal = tmp_path / "killed" / ".numbers.preparing" / "journal.json"
    deadline = time.monotonic() + 100
    while not journal.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "killed" / "numbers").exists()
    for folder in ("killed", "straight"):
        process = start(code, tmp_path / folder)
        process.communicate(timeout=100)
        assert process.returncode == 0
    for path in (tmp_path / "straight" / "numbers").iterdir():
        assert path.read_bytes() == (tmp_path / "killed" / "numbers" / path.name).read_bytes()


FULL_DISK = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit fails, as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
from scripts.prepare_data import main
sys.exit(main(["parity", "--limit=5000", "--processes=1", "--data_dir=" + sys.argv[1]]))
"""


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path):
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("error: cannot write ")
    assert "Traceback" not in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == [".parity_limit5000.lock"]


def test_memory_stays_flat_with_a_split_above_a_gibibyte(tmp_path):
    """1.1 GiB of records of 256 KiB; the process may have 600 MiB in all, of which its libraries take half."""
    width = 2**18
    process = start(PREPARE.format(train=4_500, width=width, wait=0), tmp_path)
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 0
    assert 4_500 * width > 2**30
    assert int(out) < 600 * 2**20
