"""A manifest without a seal, as older versions wrote them, that was altered: `--verify` says it in one line."""

import json
import re

import pytest

from data import byte_pairs, prepared, tinystories
from data.errors import DataError
from data.manifest import MANIFEST
from data.registry import folder_of
from data.spec import DataRequest
from scripts import prepare_data
from tests.small_sources import SOURCES

TASKS = ("listops", "text", "retrieval", "shakespeare_char", "tinystories", "fsdd")
"""Their checks read what their manifests say, or models do."""


def altered(manifest):
    """The manifest without each of its entries, and with another value there."""
    for key, value in manifest.items():
        yield {name: entry for name, entry in manifest.items() if name != key}
        yield manifest | {key: 5 if isinstance(value, dict) else {"x": 10**12}}
        if isinstance(value, dict):
            yield manifest | {key: {}}
            yield manifest | {key: dict.fromkeys(value)}
        if isinstance(value, list):
            yield manifest | {key: []}


@pytest.mark.parametrize("task", TASKS)
def test_whatever_an_unsealed_manifest_lacks_is_one_line(task, tmp_path, monkeypatch):
    for module in (byte_pairs, tinystories):
        monkeypatch.setattr(module, "TOP_SIZE", 260)
    write, request = SOURCES[task]
    if task == "listops":
        request = DataRequest("listops", (24, 96), 60)
    else:
        write(tmp_path / "source", False)
    prepared.prepare(request, tmp_path, data_source=tmp_path / "source" if task != "listops" else None, processes=1)
    path = tmp_path / folder_of(request) / MANIFEST
    manifest = json.loads(path.read_text())
    del manifest["sha256"]
    refused = 0
    for wrong in altered(manifest):
        path.write_text(json.dumps(wrong))
        try:
            prepared.verify(request, tmp_path, processes=1)
            prepared.open_data(request, tmp_path)
        except DataError:
            refused += 1
    assert refused > 20
    path.write_text(json.dumps(manifest))
    prepared.verify(request, tmp_path, processes=1)


def test_verify_of_such_a_manifest_exits_with_2(tmp_path, capsys):
    arguments = ["listops", "--length_window=24:96", "--limit=60", "--processes=1", f"--data_dir={tmp_path}"]
    assert prepare_data.main(arguments) == 0
    (path,) = tmp_path.glob(f"*/{MANIFEST}")
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in manifest.items() if key not in ("sha256", "draws")}))
    capsys.readouterr()
    assert prepare_data.main([*arguments, "--verify"]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if not re.match(r"\w+: \d+ of \d+", line)]
    assert line.startswith(f"error: {path} is damaged (KeyError: 'draws'); delete {path.parent}, then run: python -m ")
