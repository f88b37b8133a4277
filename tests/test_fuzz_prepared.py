"""Whatever is in the folder of prepared or half prepared data, it is used only as far as it makes sense."""

import json

from fuzzing import fuzzed, json_like, refusing
from hypothesis import example, given

from data import download, folders, manifest
from data.errors import DataError

MANIFEST = {
    "format": 2,
    "name": "x",
    "request": {"task": "listops"},
    "partial": False,
    "arrays": ["mean"],
    "counts": {"train": 3, "val": 1, "test": 1},
    "record_bytes": {"train": 30, "val": 10, "test": 10},
    "baselines": {"val": {"majority": 0.5}, "test": {"majority": 0.5}},
    "statistics": {"length_mean": 3.5},
    "content_sha256": "0" * 64,
    "files": {"mean.npy": {"bytes": 3, "sha256": "0" * 64}},
    "vocabulary_size": 9,
}


def of_files(files):
    return json.dumps(
        {**MANIFEST, "arrays": [], "files": {name: {"bytes": 0, "sha256": ""} for name in files}}
    ).encode()


@given(json_like(MANIFEST))
@example(b'{"name":' + b"[" * 2_000)  # RecursionError
@example(of_files(["../x"]))
@example(of_files(["/etc/hostname"]))
@example(of_files(["a" * 256]))  # OSError, too long a name
@example(of_files(["\0"]))
@fuzzed
def test_manifests(tmp_path, content):
    folder = tmp_path / "x"
    folder.mkdir(exist_ok=True)
    (folder / "mean.npy").write_bytes(b"abc")
    (folder / "manifest.json").write_bytes(content)
    with refusing(DataError):
        found = manifest.read_manifest(folder, "x", {"train", "val", "test"}, "run: prepare")
        assert all((folder / name).parent == folder for name in found["files"])


@given(json_like({"purpose": "p", "shards": {"train": [[3, 30, "0" * 64]]}, "complete": ["train"]}))
@example(b"[" * 2_000)
@example(json.dumps({"purpose": "p", "shards": {"train": [["x", None, 3]]}, "complete": []}).encode())
@fuzzed
def test_journals(tmp_path, content):
    (tmp_path / folders.JOURNAL).write_bytes(content)
    with refusing():
        journal = folders.Journal(tmp_path, "p", resumable=True)
        assert isinstance(journal.records(), int)
        journal.add("train", folders.Shard(1, 1, ""))
        journal.complete("val")


@given(json_like({"url": "https://a.example/x", "validator": '"1"', "bytes": 9}))
@example(b"[" * 2_000)
@example(json.dumps({"url": "https://a.example/x", "validator": "x\r\nHost: b", "bytes": 9}).encode())
@fuzzed
def test_notes_of_downloads(tmp_path, content):
    part = download._Part(tmp_path / "x")
    (tmp_path / "x.part.json").write_bytes(content)
    with refusing():
        state = part.load()
        assert isinstance(state.url, str)
        assert state.validator.isprintable()
        state.validator.encode("ascii")
