"""No test example reaches training, selection, a vocabulary or statistics: poison changes nothing but the test."""

import json

import numpy as np
import pytest

from data import byte_pairs, probes, tinystories
from data.parallel import silent
from data.prepared import open_data, prepare
from data.registry import DATA_SETS, folder_of, read_name
from data.spec import DataRequest
from scripts.kill_subjects import differ_runs
from tests.data_sets import made
from tests.small_sources import SOURCES
from tests.smoke_run import train_quietly
from tests.tiny import tiny_config
from training.results import score

TEXTS = {"shakespeare_char", "tinystories", "tinystories_small"}
"""They have no test split: they are reported on what they are validated on."""

GENERATED = {"pathx", "path256", *probes.PROBES}
"""Made here, image by image and split by split; listops and pathfinder are read from files below."""

ABOUT_ALL = {"content_sha256", "files", "sources", "found", "text_sha256"}
"""What a manifest says of all splits together: by it data are known, nothing is computed from it."""


def prepared(task, folder, *, poisoned):
    """The folder and the manifest of a data set made of its small files."""
    write, request = SOURCES[task]
    write(folder / "source", poisoned)
    manifest = prepare(request, folder / "data", data_source=folder / "source", processes=1, progress=silent)
    return folder / "data" / folder_of(request), manifest


def without(value, names):
    """A manifest without what it says of some splits."""
    if not isinstance(value, dict):
        return value
    hidden = tuple(f"{name}_" for name in names)
    kept = {key: found for key, found in value.items() if key not in names and not key.startswith(hidden)}
    return {key: without(found, names) for key, found in kept.items()}


def seen(task, folder, manifest):
    """All that training and selection can see of prepared data: bytes of files by name, entries of the manifest."""
    held = "val" if task in TEXTS else "test"
    hidden = ("val", "test") if task in TEXTS else ("test",)  # of a text the guesses are those on both
    files = {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.name not in ("manifest.json", "dataset_info.json")
        and not path.name.startswith((f"{manifest['name']}-{held}.", f"{held}_"))
    }
    entries = without({key: value for key, value in manifest.items() if key not in ABOUT_ALL}, hidden)
    # Statistics that name no split describe all records for the reader of a manifest.
    entries["statistics"] = {key: x for key, x in entries["statistics"].items() if key.startswith(("train_", "val_"))}
    return files, entries


@pytest.mark.parametrize("task", SOURCES)
def test_a_poisoned_test_changes_nothing_that_is_prepared_of_the_rest(task, tmp_path, monkeypatch):
    """Records of train and val, vocabulary, statistics for normalising, guesses on val; prepared twice, equal bytes."""
    for module in (byte_pairs, tinystories):
        monkeypatch.setattr(module, "TOP_SIZE", 260)  # so few that the counts decide which byte pairs are in
    clean, poisoned = (prepared(task, tmp_path / str(bad), poisoned=bad) for bad in (False, True))
    (files, entries), (others, other_entries) = seen(task, *clean), seen(task, *poisoned)
    assert any("-train." in name for name in files)
    assert files.keys() == others.keys()
    assert [name for name, content in files.items() if others[name] != content] == []
    assert entries == other_entries
    held = "val" if task in TEXTS else "test"
    (ours,), (theirs,) = (list(folder.glob(f"*-{held}.array_record-*")) for folder, _ in (clean, poisoned))
    assert ours.read_bytes() != theirs.read_bytes(), "the poison is there"


def test_every_data_set_is_made_of_files_here_or_generated():
    assert {*SOURCES, *GENERATED} == DATA_SETS.keys()


@pytest.mark.parametrize("task", ["copy", "a5"])
def test_probes_draw_each_split_by_itself(task, monkeypatch):
    request, records = DataRequest(task, limit=20), probes._records
    clean, facts = made(request)

    def poisoned_records(task, tested, stream, size):
        return records(task, tested, stream + 9 * tested, size)  # a stream that nothing else draws from

    monkeypatch.setattr(probes, "_records", poisoned_records)
    poisoned, other_facts = made(request)
    assert facts == other_facts
    for name, split in clean.items():
        same = all(
            np.array_equal(getattr(split, field), getattr(poisoned[name], field))
            for field in ("symbols", "offsets", "labels")
        )
        assert same == (name != "test"), name


def trained_on(folder, *, poisoned):
    """The folder of a run on sounds with statistics of their own, with its records on val and test by split."""
    prepared("fsdd", folder, poisoned=poisoned)
    changes = {"data.task": "fsdd", "data.length_window": (), "data.partial": True, "data.smoke": False}
    changes |= {"data.steps": 64, "model.norm": "batch", "model.depth": 1, "seeds": (0, 1)}
    config = tiny_config("mlp", changes)
    workdir = train_quietly(config, folder / "data" / "run")
    opened = open_data(config.data.request, folder / "data")
    assert opened.affine is not None
    return workdir, {split: score(workdir, folder / "data", split, "best") for split in ("val", "test")}


def test_a_run_on_a_poisoned_test_differs_in_its_test_score_alone(tmp_path):
    """Parameters, averages, best and its step bit for bit; every row; config.json and the record of val but hashes."""
    (clean, records), (poisoned, others) = (trained_on(tmp_path / str(bad), poisoned=bad) for bad in (False, True))
    assert differ_runs(clean, poisoned) == []
    config, other = (json.loads((workdir / "config.json").read_text()) for workdir in (clean, poisoned))
    assert [name for name in config if config[name] != other[name]] == ["data_sha256", "sha256"]
    differing = [name for name, value in records["val"].items() if others["val"][name] != value]
    assert differing == ["data_sha256", "manifest_sha256"]
    for seed, values in records["test"]["seeds"].items():
        assert values["best_step"] == others["test"]["seeds"][seed]["best_step"]
        assert values["loss"] != others["test"]["seeds"][seed]["loss"]


def test_the_published_policy_that_selects_on_the_test_is_named_by_its_data():
    """`test_selected`: validated on the test split, as published; it is no default, and every record says it."""
    assert read_name(DataRequest("text")) == "text"
    assert read_name(DataRequest("text", choices=(("policy", "test_selected"),))) == "text,policy=test_selected"
