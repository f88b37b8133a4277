"""shakespeare-char: ids are ranks, the split is the published one, the stored text is the text."""

import math
import os

import numpy as np
import pytest
from language import sources_in, take

from data import shakespeare
from data.errors import DataError
from data.examples import Example
from data.parallel import silent
from data.spec import DataRequest, TaskKind
from data.windows import Packing, evaluation_windows, training_windows
from tests.fake_sources import Stored

REQUEST = DataRequest("shakespeare_char")
PARTIAL = DataRequest("shakespeare_char", partial=True)
TEXT = "".join("the quick brown fox jumps over\nthe lazy dog; " * 400)


@pytest.fixture
def made(tmp_path):
    (tmp_path / "input.txt").write_text(TEXT, encoding="utf-8", newline="")
    return take(shakespeare.generate(PARTIAL, sources_in(tmp_path), 1, silent))


def joined(split):
    return np.concatenate([example.values for example in split.examples()])


def test_the_splits_are_the_text(made):
    splits, facts = made
    vocabulary = facts["vocabulary"]
    assert list(vocabulary) == sorted(set(TEXT))
    assert list(vocabulary.values()) == list(range(facts["vocabulary_size"]))
    cut = int(0.9 * len(TEXT))
    for name, text in (("train", TEXT[:cut]), ("val", TEXT[cut:])):
        ids = joined(splits[name])
        assert ids.dtype == np.uint8
        assert shakespeare.decode(ids, vocabulary) == text
        np.testing.assert_array_equal(shakespeare.encode(text, vocabulary), ids)
        assert {len(example.values) for example in splits[name].records[:-1]} <= {4096}
        assert all(example.label is None for example in splits[name].records)
    assert list(splits) == ["train", "val"]
    assert facts["sources"] == [{"file": "input.txt"}]


def test_a_limit_keeps_the_first_records(tmp_path, made):
    limited = DataRequest("shakespeare_char", limit=2, partial=True)
    splits, facts = take(shakespeare.generate(limited, sources_in(tmp_path), 1, silent))
    assert [len(split) for split in splits.values()] == [2, 1]
    np.testing.assert_array_equal(joined(splits["train"]), joined(made[0]["train"])[: 2 * 4096])
    assert shakespeare.check(limited, splits, facts, 1, silent)["train_tokens"] == 2 * 4096


def test_statistics(made):
    """In a text that repeats itself, the bigram leaves only what the character before does not tell."""
    statistics = shakespeare.check(PARTIAL, made[0], made[1], 1, silent)
    assert statistics["train_tokens"] == statistics["train_text_bytes"] == int(0.9 * len(TEXT))
    assert statistics["val_uniform_loss"] == math.log(len(set(TEXT)))
    assert statistics["val_bigram_loss"] < statistics["val_unigram_loss"] < statistics["val_uniform_loss"]


def test_losses_count_every_pair_plus_one():
    train, val = np.array([0, 1, 0, 1, 1]), np.array([0, 1, 2])
    found = shakespeare.losses(train, val, 3)
    # Pairs of train and one: (0, 1) 3 of 5, (1, 0) 2 of 5, (1, 1) 2 of 5, (1, 2) 1 of 5.
    assert found["val_bigram_loss"] == pytest.approx(-(math.log(3 / 5) + math.log(1 / 5)) / 2)
    assert found["train_bigram_loss"] == pytest.approx(-(2 * math.log(3 / 5) + 2 * math.log(2 / 5)) / 4)
    assert found["val_unigram_loss"] == pytest.approx(-(math.log(4 / 8) + math.log(1 / 8)) / 2)


def change(splits, values=None):
    records = splits["val"].records
    values = np.array(records[0].values) if values is None else values
    splits["val"] = Stored([Example(values, None), *records[1:]])
    return values


def test_a_changed_record_is_found(made):
    splits, facts = made
    change(splits)[3] ^= 1
    with pytest.raises(DataError, match="the stored text has sha256"):
        shakespeare.check(PARTIAL, splits, facts, 1, silent)
    change(splits, np.array([200], np.uint8))
    with pytest.raises(DataError, match=r"val record 0 has id 200, expected less than \d\d$"):
        shakespeare.check(PARTIAL, splits, facts, 1, silent)


def test_another_text_is_not_the_official_one(made):
    with pytest.raises(DataError, match=r"characters is \{'train': 16200, 'val': 1800\}, expected \{'train': 1003854"):
        shakespeare.check(REQUEST, made[0], made[1], 1, silent)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"ab\xff", r"is not UTF-8 at byte 2"),
        ("".join(map(chr, range(300, 366))).encode(), "has 66 different characters, at most 65"),
        (b"abc", "has 3 characters: too few"),
        (b"", "has 0 characters: too few"),
    ],
)
def test_impossible_texts_are_refused(tmp_path, content, line):
    (tmp_path / "input.txt").write_bytes(content)
    with pytest.raises(DataError, match=line):
        shakespeare.generate(PARTIAL, sources_in(tmp_path), 1, silent)


def test_a_prompt_of_other_characters_is_refused(made):
    with pytest.raises(DataError, match="character 'é' is not among the"):
        shakespeare.encode("th\u00e9", made[1]["vocabulary"])
    with pytest.raises(DataError, match="character id 99 is outside the vocabulary"):
        shakespeare.decode(np.array([0, 99]), made[1]["vocabulary"])


def test_the_task():
    spec = shakespeare.task_spec(REQUEST)
    assert (spec.kind, spec.input_width, spec.classes, spec.length, spec.dtype) == (
        TaskKind.LANGUAGE,
        65,
        65,
        256,
        "uint8",
    )
    with pytest.raises(DataError, match="shakespeare_char has no length window"):
        shakespeare.task_spec(DataRequest("shakespeare_char", (3, 9)))
    assert shakespeare.about(REQUEST).download == 1_115_394
    assert [source.name for source in shakespeare.sources(REQUEST)] == ["input.txt"]


def test_the_sample_can_be_learned_and_fills_windows():
    splits = {name: Stored(examples) for name, examples in shakespeare.smoke(REQUEST).items()}
    train, val = joined(splits["train"]), joined(splits["val"])
    assert set(train) == set(val) == set(range(65))
    assert shakespeare.losses(train, val, 65)["val_bigram_loss"] == pytest.approx(
        math.log(4), abs=0.1
    )  # the counts plus one cost 0.06
    assert max(map(len, splits.values())) <= 64


if os.environ.get("LINREC_DATA_SOURCE"):

    def test_the_official_text():
        folder = sources_in(os.path.join(os.environ["LINREC_DATA_SOURCE"], "shakespeare_char"))
        splits, facts = take(shakespeare.generate(REQUEST, folder, 1, silent))
        statistics = shakespeare.check(REQUEST, splits, facts, 1, silent)
        assert "".join(facts["vocabulary"]).startswith("\n !$&',-.3:;?ABC")
        for name, expected in (("uniform", 4.174), ("unigram", 3.347), ("bigram", 2.482)):
            assert statistics[f"val_{name}_loss"] == pytest.approx(expected, abs=5e-4)
        assert statistics["train_bigram_loss"] == pytest.approx(2.455, abs=5e-4)
        for packing, train, val in ((Packing.SEPARATED, 3_921, 436), (Packing.PUBLISHED, 3_906, 434)):
            found = []
            for split, make in (("train", training_windows), ("val", evaluation_windows)):
                ids = joined(splits[split])
                offsets = np.cumsum([0, *(len(example.values) for example in splits[split].examples())])
                segments = shakespeare.segments(REQUEST, offsets)
                found.append(len(make(lambda start, stop, ids=ids: ids[start:stop], segments, 256, packing)))
            assert found == [train, val]
