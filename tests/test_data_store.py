"""The format on disk: read by the public reader, the same bytes every time, and damage that is seen."""

import json
import logging
import shutil

import numpy as np
import pytest
import tensorflow_datasets as tfds

from data import prepared, registry, splits, store
from data.errors import DataError
from data.folders import Journal, create, default_data_dir
from data.manifest import MANIFEST, manifest_of, read_manifest, save_manifest
from data.parallel import silent
from data.sealed import sealed
from data.spec import DataRequest
from tests.data_sets import in_memory, made

REQUEST = DataRequest("listops", (24, 96), 120)
NAME = registry.folder_of(REQUEST)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A data directory with one prepared data set."""
    data_dir = tmp_path_factory.mktemp("original")
    prepared.prepare(REQUEST, data_dir, processes=1)
    return data_dir


@pytest.fixture
def data_dir(original, tmp_path):
    """A copy that a test may damage."""
    shutil.copytree(original / NAME, tmp_path / NAME)
    return tmp_path


def shard(data_dir):
    return data_dir / NAME / f"{NAME}-train.array_record-00000-of-00001"


def stored(data_dir):
    """The prepared splits."""
    return in_memory(prepared.open_data(REQUEST, data_dir))


def public_source(folder, split):
    """What anyone reads who has TensorFlow Datasets and not this project."""
    builder = tfds.builder_from_directory(str(folder))
    return builder.as_data_source(split=split)  # pyright: ignore[reportCallIssue]  hidden by a decorator


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_public_reader_reads_what_we_read(original, caplog):
    ours = stored(original)
    with caplog.at_level(logging.WARNING):
        for name, split in ours.items():
            source = public_source(original / NAME, name)
            assert len(source) == len(split) == 120
            for index, record in enumerate(source.__getitems__(list(range(len(source))))):
                expected = split.symbols[split.offsets[index] : split.offsets[index + 1]]
                np.testing.assert_array_equal(record["symbols"], expected)
                assert record["symbols"].dtype == np.uint8
                assert record["label"] == split.labels[index]
    assert not caplog.records  # the reader complains about records that are packed in groups


def test_stored_records_are_the_generated_ones(original):
    generated, _ = made(REQUEST)
    for name, split in stored(original).items():
        np.testing.assert_array_equal(split.symbols, generated[name].symbols)
        np.testing.assert_array_equal(split.offsets, generated[name].offsets)
        np.testing.assert_array_equal(split.labels, generated[name].labels)
        assert split.length == 96
        assert split.labels.dtype == np.int32


def test_several_shards_hold_the_records_in_order(tmp_path, original, monkeypatch):
    whole = stored(original)["train"]
    monkeypatch.setattr(store, "BLOCK", 50)
    monkeypatch.setattr(splits, "BLOCK", 50)
    manifest = prepared.prepare(REQUEST, tmp_path, processes=1)
    assert sum("train.array_record" in file for file in manifest["files"]) == 3
    in_parts = stored(tmp_path)["train"]
    np.testing.assert_array_equal(in_parts.symbols, whole.symbols)
    np.testing.assert_array_equal(in_parts.labels, whole.labels)
    source = public_source(tmp_path / NAME, "train")
    assert len(source) == 120
    np.testing.assert_array_equal(source[119]["symbols"], whole.symbols[whole.offsets[119] :])


def test_files_are_the_same_bytes_whatever_the_number_of_processes(original, tmp_path):
    prepared.prepare(REQUEST, tmp_path, processes=3)
    first, second = (
        {path.name: path.read_bytes() for path in (folder / NAME).iterdir()} for folder in (original, tmp_path)
    )
    assert first == second


def test_manifest_says_where_the_data_come_from(original):
    manifest = json.loads((original / NAME / MANIFEST).read_text())
    assert manifest["request"] == {
        "task": "listops",
        "length_window": [24, 96],
        "limit": 120,
        "choices": {"origin": "generated"},
    }
    assert manifest["counts"] == {"train": 120, "val": 120, "test": 120}
    assert manifest["seed"] == 0
    assert manifest["vocabulary"]["<pad>"] == 0
    assert len(manifest["vocabulary"]) == 18
    assert manifest["source"].startswith("generated")
    assert manifest["versions"]["numpy"] == np.__version__
    assert set(manifest["code_sha256"]) >= {"listops.py", "listops_law.py", "store.py"}
    assert manifest["statistics"]["length_max"] <= 95
    on_disk = {path.name for path in (original / NAME).iterdir()} - {MANIFEST}
    assert set(manifest["files"]) == on_disk


@pytest.mark.parametrize(
    "change",
    [{"request": {}}, {"content_sha256": 0}, {"counts": [1]}, {"counts": {"train": 1}}, {"files": {"x": {}}}],
)
def test_a_manifest_without_an_entry_is_damaged(data_dir, change):
    manifest = json.loads((data_dir / NAME / MANIFEST).read_text())
    (data_dir / NAME / MANIFEST).write_text(json.dumps(sealed(manifest | change)))
    for use in (prepared.prepare, prepared.verify, prepared.open_data):
        with pytest.raises(DataError, match=r"manifest\.json is damaged"):
            use(REQUEST, data_dir)


def test_intact_data_verify(original):
    assert prepared.verify(REQUEST, original, processes=1)["name"] == NAME


def missing_shard(data_dir):
    shard(data_dir).unlink()


def truncated_shard(data_dir):
    path = shard(data_dir)
    path.write_bytes(path.read_bytes()[:-1])


def missing_description(data_dir):
    (data_dir / NAME / "features.json").unlink()


def missing_manifest(data_dir):
    (data_dir / NAME / MANIFEST).unlink()


def cut_manifest(data_dir):
    path = data_dir / NAME / MANIFEST
    path.write_bytes(path.read_bytes()[:200])


def foreign_manifest(data_dir):
    (data_dir / NAME / MANIFEST).write_text('["something", "else"]')


def another_data_set(data_dir):
    path = data_dir / NAME / MANIFEST
    path.write_text(json.dumps(sealed(json.loads(path.read_text()) | {"name": "listops"})))


def altered_manifest(data_dir):
    path = data_dir / NAME / MANIFEST
    path.write_text(path.read_text().replace('"majority": 0.', '"majority": 0.9'))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (missing_shard, "train.array_record-00000-of-00001 is missing; delete .* run: python -m scripts.prepare_data"),
        (truncated_shard, r"train.array_record-00000-of-00001 has \d+ bytes instead of \d+; delete"),
        (missing_description, "features.json is missing"),
        (missing_manifest, "has no manifest.json, so it is no prepared data set; move it away"),
        (cut_manifest, "manifest.json is damaged"),
        (foreign_manifest, "manifest.json is damaged"),
        (altered_manifest, "manifest.json is damaged .*altered after it was written"),
        (another_data_set, f"holds 'listops' and not '{NAME}'"),
    ],
)
def test_damage_is_seen_at_opening_and_never_repaired_in_silence(data_dir, damage, message):
    damage(data_dir)
    for action in (prepared.open_data, prepared.verify, prepared.prepare):
        with pytest.raises(DataError, match=message) as caught:
            action(REQUEST, data_dir)
        assert "\n" not in str(caught.value)


def test_descriptions_of_another_version_change_no_record(data_dir):
    """Records are read without them. One that has another length, or a format of the manifest, is refused."""
    ours, folder = stored(data_dir), data_dir / NAME
    for name, old, new in (
        ("dataset_info.json", '"version": "1.0.0"', '"version": "9.9.9"'),
        ("features.json", "tensorflow_datasets.core", "tensorflow_datasets.next"),
    ):
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["versions"] = {"python": "3.99", "tensorflow-datasets": "9.9.9"}
    (folder / MANIFEST).write_text(json.dumps(sealed(manifest)))
    theirs = stored(data_dir)
    for name, split in ours.items():
        np.testing.assert_array_equal(split.symbols, theirs[name].symbols)
        np.testing.assert_array_equal(split.labels, theirs[name].labels)
    with pytest.raises(DataError, match=r"(dataset_info|features)\.json has sha256 \w+ instead of"):
        prepared.verify(REQUEST, data_dir)
    (folder / "features.json").write_text("{}")
    with pytest.raises(DataError, match=r"features\.json has 2 bytes instead of \d+; delete .* run: python -m"):
        prepared.open_data(REQUEST, data_dir)
    (folder / MANIFEST).write_text(json.dumps(sealed(manifest | {"format": 1})))
    with pytest.raises(DataError, match=r"prepared by another version \(format 1, here 2\); delete .* run: python"):
        prepared.open_data(REQUEST, data_dir)


def test_a_foreign_folder_is_refused_and_left_alone(tmp_path):
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "thesis.txt").write_text("years of work")
    for action in (prepared.open_data, prepared.verify, prepared.prepare):
        with pytest.raises(DataError, match="no prepared data set; move it away"):
            action(REQUEST, tmp_path)
    assert (tmp_path / NAME / "thesis.txt").read_text() == "years of work"


def test_a_flipped_byte_in_a_record_is_seen_at_opening(data_dir):
    flip(shard(data_dir), 3_000)
    with pytest.raises(DataError, match=r"train\.array_record-00000-of-00001 is damaged"):
        prepared.open_data(REQUEST, data_dir)


def test_a_flipped_byte_anywhere_is_seen_by_verify(data_dir):
    flip(shard(data_dir), -3)  # behind the last record: reading does not notice
    prepared.open_data(REQUEST, data_dir)
    with pytest.raises(DataError, match=r"train\.array_record-00000-of-00001 has sha256 \w+ instead of"):
        prepared.verify(REQUEST, data_dir)


def forge(folder, splits):
    """Puts other records into a prepared folder and makes every hash right again, except that of the content."""
    manifest = read_manifest(folder, NAME, splits, "")
    for path in folder.iterdir():
        path.unlink()
    journal = Journal(folder, "", resumable=False)
    examples = {name: split.examples() for name, split in splits.items()}
    store.write(folder, NAME, examples, registry.task_spec(REQUEST), journal, silent)
    forged = manifest_of(folder, NAME, {name: journal.shards(name) for name in splits}, {})
    save_manifest(folder, {**manifest, "files": forged["files"]})
    return forged["content_sha256"]


def test_verify_compares_the_content_with_the_manifest(data_dir):
    splits = stored(data_dir)
    forge(data_dir / NAME, {"train": splits["train"], "val": splits["test"], "test": splits["val"]})
    with pytest.raises(DataError, match="content has sha256"):
        prepared.verify(REQUEST, data_dir, processes=1)


def test_verify_evaluates_every_expression_again(data_dir):
    # A label is changed, and every hash with it: only the value of the expression tells.
    splits = stored(data_dir)
    splits["test"].labels[99] = (splits["test"].labels[99] + 1) % 10
    content = forge(data_dir / NAME, splits)
    manifest = read_manifest(data_dir / NAME, NAME, splits, "")
    save_manifest(data_dir / NAME, {**manifest, "content_sha256": content})
    with pytest.raises(DataError, match="test record 99 has a label that is not the value"):
        prepared.verify(REQUEST, data_dir, processes=1)


def test_a_failed_write_leaves_nothing(tmp_path):
    def write(folder):
        (folder / "half").write_text("half")
        raise DataError("the law is broken")

    with pytest.raises(DataError, match="the law is broken"):
        create(tmp_path / "set", write, silent)
    assert [path.name for path in tmp_path.iterdir()] == [".set.lock"]


def test_what_a_killed_preparation_left_is_removed(tmp_path):
    (tmp_path / ".set.preparing").mkdir()
    (tmp_path / ".set.preparing" / "half").touch()
    (tmp_path / ".other.preparing").mkdir()
    create(tmp_path / "set", lambda folder: Journal(folder, "set", resumable=False).close(), silent)
    assert {path.name for path in tmp_path.iterdir()} == {"set", ".set.lock", ".other.preparing"}
    assert list((tmp_path / "set").iterdir()) == []


def test_what_another_process_made_meanwhile_stays(tmp_path):
    (tmp_path / "set").mkdir()
    create(tmp_path / "set", lambda folder: pytest.fail("written twice"), silent)


def test_an_unwritable_place_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot write .*file"):
        prepared.prepare(REQUEST, tmp_path / "file", processes=1)


def test_a_shard_that_cannot_be_written_is_one_line(tmp_path):
    splits, _ = made(REQUEST)
    examples = {name: split.examples() for name, split in splits.items()}
    journal = Journal(tmp_path, "", resumable=False)
    with pytest.raises(DataError, match=r"cannot write .*train\.array_record"):
        store.write(tmp_path / "nowhere", NAME, examples, registry.task_spec(REQUEST), journal, silent)


def test_default_data_dir(monkeypatch, tmp_path):
    monkeypatch.setenv("LINREC_DATA", str(tmp_path))
    assert default_data_dir() == tmp_path
    monkeypatch.delenv("LINREC_DATA")
    monkeypatch.setenv("HOME", "/home/someone")
    assert str(default_data_dir()) == "/home/someone/.cache/linrec"
