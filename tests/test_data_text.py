"""IMDB reviews: what is read from the archive's layout, the order of the splits, the ids, what is refused."""

import dataclasses
import os
import pathlib

import numpy as np
import pytest

from data import text
from data.errors import DataError
from data.examples import Example
from data.parallel import silent
from data.permutation import torch_permutation
from data.spec import DataRequest, TaskKind
from tests.fake_sources import Stored, pack, sources_at, stored, unpack

PARTIAL = DataRequest("text", partial=True)
BYTES = DataRequest("text_bytes", partial=True)


def write_archive(path, reviews):
    """The official layout: one folder for each split and class, and what else lies there."""
    others = [
        ("aclImdb/README", b"Large Movie Review Dataset v1.0"),
        ("aclImdb/imdb.vocab", b"the\nand\n"),
        ("aclImdb/train/unsup/0_0.txt", b"\xff unlabelled \xa4"),
        ("aclImdb/train/labeledBow.feat", b"9 0:9 1:1\n"),
        ("aclImdb/train/urls_pos.txt", b"http://www.imdb.com/title/tt0453418/usercomments\n"),
    ]
    pack(path, [*((f"aclImdb/{name}", data) for name, data in reviews), *others])


def numbered(split, name, rating, count):
    """Reviews whose text says who they are; numbers 9 and 10 tell numeric order from that of the names."""
    return [(f"{split}/{name}/{i}_{rating}.txt", f"{name} {split} {i}.".encode()) for i in range(count)]


@pytest.fixture
def reviews():
    return [
        *numbered("test", "neg", 2, 12),
        *numbered("test", "pos", 9, 12),
        *numbered("train", "neg", 1, 20),
        *numbered("train", "pos", 10, 20),
    ]


@pytest.fixture
def sources(tmp_path, reviews):
    write_archive(tmp_path / "aclImdb_v1.tar.gz", reviews)
    return sources_at(tmp_path)


def decoded(example, vocabulary):
    tokens = list(vocabulary)
    return "".join(tokens[number] for number in example.values)


def test_splits_hold_the_reviews_of_each_class_by_turns(sources, monkeypatch):
    monkeypatch.setattr(text, "MIN_FREQ", 1)
    made = text.generate(PARTIAL, sources, 1, silent)
    splits, facts = stored(made), made.facts()
    texts = {
        name: [decoded(example, facts["vocabulary"]) for example in split.examples()] for name, split in splits.items()
    }
    assert {name: len(split) for name, split in splits.items()} == {"train": 36, "val": 4, "test": 24}
    order = torch_permutation(20, 42)
    for split, numbers in (("train", order[:18]), ("val", order[18:]), ("test", range(12))):
        assert texts[split] == [
            f"{name} {'test' if split == 'test' else 'train'} {i}.<eos>" for i in numbers for name in ("neg", "pos")
        ]
    for name, split in splits.items():
        assert [example.label for example in split.examples()] == [int("pos" in line) for line in texts[name]]
    assert [(fact["file"], fact["official"]) for fact in facts["sources"]] == [("aclImdb_v1.tar.gz", False)]


def test_packed_or_not_and_in_any_order_the_records_are_the_same(tmp_path, reviews, sources):
    unpack(tmp_path / "open" / "aclImdb", reviews)
    write_archive(tmp_path / "turned" / "aclImdb_labelled.tar.gz", reviews[::-1])
    expected = stored(text.generate(PARTIAL, sources, 1, silent))
    for folder in ("open", "turned"):
        found = stored(text.generate(PARTIAL, sources_at(tmp_path / folder), 1, silent))
        for name, split in expected.items():
            assert len(found[name]) == len(split)
            for one, other in zip(split.examples(), found[name].examples(), strict=True):
                assert (one.values.tolist(), one.label) == (other.values.tolist(), other.label)


def test_the_vocabulary_is_that_of_all_training_reviews(tmp_path, reviews):
    """Whatever the limit, and of nothing else: no unlabelled and no test review."""
    rare = [("train/neg/77_1.txt", b"<br />" + b"q" * 15 + b"w" * 14 + b"x" * 5000), ("test/pos/99_9.txt", b"J" * 50)]
    write_archive(tmp_path / "aclImdb_v1.tar.gz", reviews + rare)
    whole = text.generate(PARTIAL, sources_at(tmp_path), 1, silent)
    few = text.generate(dataclasses.replace(PARTIAL, limit=2), sources_at(tmp_path), 1, silent)
    vocabulary = whole.facts()["vocabulary"]
    assert list(vocabulary)[:4] == ["<pad>", "<unk>", "<eos>", "x"]
    assert {"q", "n", "."} <= vocabulary.keys()
    assert not {"w", "J", "<", "u"} & vocabulary.keys()
    assert few.facts()["vocabulary"] == vocabulary
    whole, few = stored(whole), stored(few)
    assert {name: len(split) for name, split in few.items()} == {"train": 2, "val": 2, "test": 2}
    for name, split in few.items():
        for one, other in zip(split.records, whole[name].records, strict=False):
            np.testing.assert_array_equal(one.values, other.values)
    cut = max((example for name in ("train", "val") for example in whole[name].records), key=lambda e: len(e.values))
    assert len(cut.values) == 4096
    assert cut.values[-2:].tolist() == [vocabulary["x"], 2]
    assert cut.values[:6].tolist() == [1, vocabulary.get("b", 1), vocabulary["r"], vocabulary[" "], 1, 1]
    last = whole["test"].records[-1]
    assert last.values.tolist() == [1] * 50 + [2]
    assert last.label == 1


def test_bytes(tmp_path, reviews):
    odd = [("test/neg/500_1.txt", "é\x00\n<br />€".encode()), ("test/pos/500_8.txt", b"ab" * 4000)]
    write_archive(tmp_path / "aclImdb_v1.tar.gz", reviews + odd)
    made = text.generate(BYTES, sources_at(tmp_path), 1, silent)
    first, second = stored(made)["test"].records[-2:]
    assert first.values.tolist() == [196, 170, 1, 11, 61, 99, 115, 33, 48, 63, 227, 131, 173]
    assert first.values.dtype == np.uint16
    assert second.values.tolist() == [98, 99] * 2048
    assert "vocabulary" not in made.facts()


@pytest.mark.parametrize(
    ("name", "data", "line"),
    [
        ("train/neg/3_4.txt", b"again", "aclImdb_v1.tar.gz: train/neg/3_4.txt is the second review with the number 3"),
        ("test/pos/77_7.txt", b"", "aclImdb_v1.tar.gz: test/pos/77_7.txt is empty"),
        ("train/pos/77_7.txt", b"caf\xe9 ", "aclImdb_v1.tar.gz: train/pos/77_7.txt is not UTF-8 at byte 3"),
    ],
)
def test_damaged_reviews_are_refused(tmp_path, reviews, name, data, line):
    write_archive(tmp_path / "aclImdb_v1.tar.gz", [*reviews, (name, data)])
    with pytest.raises(DataError) as error:
        text.generate(PARTIAL, sources_at(tmp_path), 1, silent)
    assert str(error.value) == line


def test_a_class_without_reviews_is_refused(tmp_path, reviews):
    write_archive(tmp_path / "aclImdb_v1.tar.gz", [review for review in reviews if "test/pos" not in review[0]])
    with pytest.raises(DataError, match=r"no review <number>_<rating>.txt in test/pos"):
        text.generate(PARTIAL, sources_at(tmp_path), 1, silent)


def test_the_official_vocabulary_has_135_entries_and_no_other_has_more(tmp_path, reviews):
    write_archive(tmp_path / "aclImdb_v1.tar.gz", reviews)
    with pytest.raises(DataError, match="text: 16 entries in the vocabulary, expected 135"):
        text.generate(DataRequest("text"), sources_at(tmp_path), 1, silent)
    many = "".join(chr(0x4E00 + i) * 15 for i in range(133)).encode()
    write_archive(tmp_path / "aclImdb_v1.tar.gz", [*reviews, ("train/pos/99_9.txt", many)])
    with pytest.raises(DataError, match="entries in the vocabulary, the table has 135 rows"):
        text.generate(PARTIAL, sources_at(tmp_path), 1, silent)


@pytest.mark.parametrize("request_", [PARTIAL, BYTES])
def test_check_takes_what_was_made_and_tells_about_it(sources, request_, monkeypatch):
    monkeypatch.setattr(text, "MIN_FREQ", 1)
    made = text.generate(request_, sources, 1, silent)
    splits, facts = stored(made), made.facts()
    splits["test"].records[5] = splits["train"].records[3]
    statistics = text.check(request_, splits, facts, 1, silent)
    assert (statistics["train_records"], statistics["val_records"], statistics["test_records"]) == (36, 4, 24)
    assert statistics["train_majority_share"] == 0.5
    assert statistics["val_seen_in_train"] == 0
    assert statistics["test_seen_in_train"] == 1 / 24
    assert statistics["test_length_mean"] == np.mean([len(example.values) for example in splits["test"].records])
    if request_ is PARTIAL:
        assert statistics["vocabulary_size"] == len(facts["vocabulary"])


@pytest.mark.parametrize(
    ("request_", "example", "line"),
    [
        (PARTIAL, Example(np.array([3, 2], np.uint8), 2), "has label 2, expected 0..1"),
        (PARTIAL, Example(np.array([3, 4], np.uint8), 1), "does not have its one <eos> at the end"),
        (PARTIAL, Example(np.array([2, 3, 2], np.uint8), 1), "does not have its one <eos> at the end"),
        (PARTIAL, Example(np.array([3, 0, 2], np.uint8), 1), "has the id of the padding among its 3 ids"),
        (PARTIAL, Example(np.array([3, 90, 2], np.uint8), 1), "has id 90, the vocabulary has 5 entries"),
        (PARTIAL, Example(np.full(4097, 2, np.uint8), 1), "has 4097 ids, expected 1..4096"),
        (PARTIAL, Example(np.array([3, 2], np.int64), 1), "is int64 of shape (2,), expected uint8 ids"),
        (BYTES, Example(np.array([3, 0], np.uint16), 1), "has ids 0..3, expected 1..256"),
        (BYTES, Example(np.array([3, 257], np.uint16), 1), "has ids 3..257, expected 1..256"),
        (BYTES, Example(np.ones(4097, np.uint16), 1), "is uint16 of shape (4097,), expected 1..4096 of uint16"),
    ],
)
def test_check_names_the_record_that_is_wrong(request_, example, line):
    good = Example(np.array([3, 4, 2], text.task_spec(request_).dtype), 0)
    facts = {"vocabulary": dict.fromkeys("abcde", 0)}
    splits = {"train": Stored([good]), "val": Stored([good, good, example]), "test": Stored([good])}
    with pytest.raises(DataError) as error:
        text.check(request_, splits, facts, 1, silent)
    assert str(error.value) == f"{request_.task}: val record 2 {line}"


def test_the_official_counts_are_asserted_for_the_official_archive(monkeypatch):
    monkeypatch.setattr(text, "SIZES", {"train": 2, "val": 2, "test": 2})
    negative, positive = (Example(np.array([3, 2], np.uint8), label) for label in (0, 1))
    facts = {"vocabulary": {str(i): i for i in range(135)}}
    splits = {name: Stored([negative, positive]) for name in text.SIZES}
    text.check(DataRequest("text"), splits, facts, 1, silent)
    with pytest.raises(DataError, match="text: 3 records in val, expected 2"):
        text.check(DataRequest("text"), {**splits, "val": Stored([negative] * 3)}, facts, 1, silent)
    with pytest.raises(DataError, match="text: 2 neg reviews in val, expected 1"):
        text.check(DataRequest("text"), {**splits, "val": Stored([negative] * 2)}, facts, 1, silent)
    with pytest.raises(DataError, match="text: 134 entries in the vocabulary, expected 135"):
        text.check(DataRequest("text"), splits, {"vocabulary": {str(i): i for i in range(134)}}, 1, silent)


@pytest.mark.parametrize(("task", "width", "dtype"), [("text", 135, "uint8"), ("text_bytes", 257, "uint16")])
def test_spec_and_smoke_sample(task, width, dtype):
    request = DataRequest(task, partial=True)
    spec, splits = text.task_spec(request), text.smoke(request)
    assert (spec.kind, spec.input_width, spec.length, spec.classes, spec.dtype) == (
        TaskKind.CLASSIFICATION,
        width,
        4096,
        2,
        dtype,
    )
    vocabulary = {str(i): i for i in range(135)}
    statistics = text.check(
        request, {name: Stored(split) for name, split in splits.items()}, {"vocabulary": vocabulary}, 1, silent
    )
    assert [statistics[f"{name}_records"] for name in ("train", "val", "test")] == [256, 64, 64]
    with pytest.raises(DataError, match=f"{task} has no length window"):
        text.task_spec(DataRequest(task, length_window=(10, 20)))
    assert not text.CHOICES[task]["policy"].stored
    assert text.sources(request)[0].bytes == text.about(request).download == 84_125_825


if os.environ.get("LINREC_DATA_SOURCE"):

    def test_the_real_reviews():
        folder = pathlib.Path(os.environ["LINREC_DATA_SOURCE"])
        made = text.generate(PARTIAL, sources_at(folder), 1, silent)
        assert len(made.facts()["vocabulary"]) in (134, 135)
        splits = stored(made)
        statistics = text.check(PARTIAL, splits, made.facts(), 1, silent)
        assert {name: len(split) for name, split in splits.items()} == text.SIZES
        assert {statistics[f"{name}_majority_share"] for name in text.SIZES} == {0.5}
