"""Splits in memory and on disk give the same batches; the content hash sees everything that they hold."""

import numpy as np
import pytest

from data import splits, store
from data.examples import Example
from data.folders import Journal
from data.manifest import manifest_of
from data.parallel import silent
from data.spec import NO_LABEL, InputKind, TaskKind, TaskSpec
from data.splits import MemorySplit, content_sha256

LENGTH = 9


def ids(*values, dtype="uint8"):
    return np.array(values, dtype)


SPECS = {
    "tokens": TaskSpec("tokens", TaskKind.CLASSIFICATION, InputKind.TOKENS, 300, LENGTH, 4, dtype="uint16"),
    "samples": TaskSpec("samples", TaskKind.CLASSIFICATION, InputKind.CHANNELS, 1, LENGTH, 4, dtype="int16"),
    "colours": TaskSpec("colours", TaskKind.CLASSIFICATION, InputKind.CHANNELS, 3, LENGTH, 4),
    "pairs": TaskSpec("pairs", TaskKind.PAIRS, InputKind.TOKENS, 300, LENGTH, 2),
    "tags": TaskSpec("tags", TaskKind.TAGGING, InputKind.TOKENS, 300, LENGTH, 200),
    "text": TaskSpec("text", TaskKind.LANGUAGE, InputKind.TOKENS, 300, LENGTH, 300, dtype="uint16"),
}


def examples(name, count=23):
    """Records of 1 to 9 steps, each unlike every other."""
    spec, draw = SPECS[name], np.random.default_rng(7)
    low, high = np.iinfo(spec.dtype).min, np.iinfo(spec.dtype).max
    shape = (spec.input_width,) if spec.input_kind is InputKind.CHANNELS else ()

    def sequence():
        return draw.integers(low, high, (draw.integers(1, LENGTH + 1), *shape), spec.dtype)

    for index in range(count):
        values = sequence()
        match spec.kind:
            case TaskKind.CLASSIFICATION:
                yield Example(values, index % 4)
            case TaskKind.PAIRS:
                yield Example(values, index % 2, sequence())
            case TaskKind.TAGGING:
                yield Example(values, draw.integers(NO_LABEL, 200, len(values)).astype(np.int32))
            case TaskKind.LANGUAGE:
                yield Example(values, None)


def stored(folder, name, monkeypatch, block=10):
    """The records in several shards."""
    monkeypatch.setattr(store, "BLOCK", block)
    monkeypatch.setattr(splits, "BLOCK", block)
    journal = Journal(folder, "", resumable=False)
    store.write(folder, name, {"train": examples(name)}, SPECS[name], journal, silent)
    manifest = manifest_of(folder, name, {"train": journal.shards("train")}, {})
    return store.place_of(folder, manifest, ["train"])


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for key in first:
        np.testing.assert_array_equal(first[key], second[key])
        assert first[key].dtype == second[key].dtype


@pytest.mark.parametrize("name", SPECS)
def test_records_come_back_as_they_were_made_from_memory_and_from_disk(name, tmp_path, monkeypatch):
    place, made = stored(tmp_path, name, monkeypatch), list(examples(name))
    on_disk = store.StoredSplit(place, SPECS[name], LENGTH)
    in_memory = store.read(place, SPECS[name], LENGTH)
    assert isinstance(in_memory, MemorySplit)
    for split in (on_disk, in_memory):
        assert len(split) == 23
        for found, expected in zip(split.examples(), made, strict=True):
            for part, wanted in zip(found, expected, strict=True):
                np.testing.assert_array_equal(part, wanted)
            assert found.values.dtype == SPECS[name].dtype
    if name != "text":
        indices = np.array([22, 0, 9, 10, 10, 19])
        assert_equal(on_disk.gather(indices), in_memory.gather(indices))
    assert content_sha256({"a": on_disk}) == content_sha256({"a": MemorySplit.from_examples(made, LENGTH)})


def test_batches_of_pairs_and_channels_are_padded_on_the_right():
    pair = Example(ids(5, 6), 1, ids(7, 8, 9))
    batch = MemorySplit.from_examples([pair, Example(ids(1), 0, ids(2))], 4).gather([1, 0])
    np.testing.assert_array_equal(batch["inputs"], [[[1, 0, 0, 0], [2, 0, 0, 0]], [[5, 6, 0, 0], [7, 8, 9, 0]]])
    np.testing.assert_array_equal(batch["lengths"], [[1, 1], [2, 3]])
    np.testing.assert_array_equal(batch["labels"], [0, 1])
    colours = MemorySplit.from_examples([Example(np.array([[1, 2, 3], [4, 5, 6]], np.uint8), 2)], 3).gather([0])
    np.testing.assert_array_equal(colours["inputs"], [[[1, 2, 3], [4, 5, 6], [0, 0, 0]]])


def test_a_record_that_is_too_long_is_not_cut():
    with pytest.raises(ValueError, match="could not broadcast"):
        MemorySplit.from_examples([Example(ids(1, 2, 3), 0)], 2).gather([0])


def test_a_slice_keeps_the_cuts_of_pairs():
    split = MemorySplit.from_examples(examples("pairs"), LENGTH)
    assert_equal(split.slice(5, 9).gather([0, 3]), split.gather([5, 8]))


@pytest.mark.parametrize(
    "changed",
    [
        Example(ids(1, 3), 1, ids(3)),
        Example(ids(1, 2), 0, ids(3)),
        Example(ids(1), 1, ids(2, 3)),
        Example(ids(1, 2, 3), 1, None),
        Example(ids(1, 2), 1, ids(4)),
        Example(ids(1, 2, dtype="uint16"), 1, ids(3)),
    ],
)
def test_the_content_hash_sees_values_labels_and_where_the_second_begins(changed):
    split = MemorySplit.from_examples([Example(ids(1, 2), 1, ids(3))], LENGTH)
    other = MemorySplit.from_examples([changed], LENGTH)
    assert content_sha256({"train": split}) != content_sha256({"train": other})
    assert content_sha256({"train": split}) != content_sha256({"val": split})


def test_large_splits_stay_on_disk(tmp_path, monkeypatch):
    place = stored(tmp_path, "samples", monkeypatch)
    monkeypatch.setattr(store, "IN_MEMORY_BYTES", 100)
    read = []
    monkeypatch.setattr(store, "_decode", lambda *arguments, decode=store._decode: read.append(1) or decode(*arguments))
    split = store.read(place, SPECS["samples"], LENGTH)
    assert isinstance(split, store.StoredSplit)
    assert len(split) == 23
    assert not read  # opening reads no record
    split.gather([3, 14])
    assert len(read) == 2
