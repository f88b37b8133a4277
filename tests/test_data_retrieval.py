"""AAN pairs: five columns between tabs, two ways with quotation marks, one vocabulary, what is refused."""

import numpy as np
import pytest

from data import retrieval
from data.errors import DataError
from data.examples import Example
from data.parallel import silent
from data.spec import DataRequest, TaskKind
from tests.fake_sources import Stored, pack, sources_at, stored, unpack

PLAIN = DataRequest("retrieval", partial=True)
CSV = DataRequest("retrieval", partial=True, choices=(("quoting", "csv"),))
FOLDER = "lra_release/lra_release/tsv_data"
EVAL = [b"1.0\tE1\tE2\tab\tba\n"]
TEST = [b"0.0\tT1\tT2\taa\tZ\n"]


def members(train, val=EVAL, test=TEST):
    """The part of the release that is read, between parts that are not."""
    return [
        ("lra_release/lra_release/listops-1000/basic_train.tsv", b"Source\tTarget\r\n"),
        (f"{FOLDER}/new_aan_pairs.train.tsv", b"".join(train)),
        (f"{FOLDER}/new_aan_pairs.train.only_ids.tsv", b"1.0\tP1\tP2\n"),
        (f"{FOLDER}/new_aan_pairs.eval.tsv", b"".join(val)),
        (f"{FOLDER}/new_aan_pairs.test.tsv", b"".join(test)),
        ("lra_release/lra_release/pathfinder32/README", b"paddles"),
    ]


@pytest.fixture
def write(tmp_path):
    def write_files(*files):
        pack(tmp_path / "lra_release.gz", members(*files))
        return sources_at(tmp_path)

    return write_files


def read(request, sources):
    """Label and both texts of every pair, with unknown characters as the sign for it; and the vocabulary."""
    made = retrieval.generate(request, sources, 1, silent)
    splits = stored(made)
    vocabulary = made.facts()["vocabulary"]
    tokens = list(vocabulary)

    def text(ids):
        return "".join(tokens[number] for number in ids).removesuffix("<eos>")

    return {
        name: [(example.label, text(example.values), text(example.second)) for example in split.records]
        for name, split in splits.items()
    }, vocabulary


def test_pairs(write):
    train = [b"0.0\tP1\tP2\tb ab\tc,'d'\n", b"1.0\tP3\tP1\t\tb ab\r\n", b"1\tP3\tP1\tcc\tcc"]
    pairs, vocabulary = read(PLAIN, write(train))
    assert pairs == {
        "train": [(0, "b ab", "c,'d'"), (1, "", "b ab"), (1, "cc", "cc")],
        "val": [(1, "ab", "ba")],
        "test": [(0, "aa", "<unk>")],
    }
    assert list(vocabulary) == ["<pad>", "<unk>", "<eos>", "c", "b", " ", "'", "a", ",", "d"]


def test_both_documents_are_cut_and_only_what_is_left_counts(write):
    made = retrieval.generate(PLAIN, write([b"1.0\t1\t2\t" + b"x" * 3999 + b"y\t" + b"x" * 3998 + b"zy\n"]), 1, silent)
    (example,) = stored(made)["train"].records
    assert list(made.facts()["vocabulary"]) == ["<pad>", "<unk>", "<eos>", "x", "z"]
    assert (example.values.dtype, example.second.dtype) == (np.uint8, np.uint8)
    assert example.values.tolist() == [3] * 3999 + [2]
    assert example.second.tolist() == [3] * 3998 + [4, 2]


QUOTED = [
    b'1.0\tP1\tP2\t"a ""b"" c"\tsay "d"\n',
    b'0.0\tP1\tP2\t"a\tb"\t"c\nd"\n',
    b'0.0\tP1\tP2\t"a" b\tc\n',
]


def test_quotation_marks_are_characters_in_plain_files(write):
    pairs, _ = read(PLAIN, write([QUOTED[0], QUOTED[2], b'0.0\tP1\tP2\t"a\tb"\n']))
    assert pairs["train"] == [(1, '"a ""b"" c"', 'say "d"'), (0, '"a" b', "c"), (0, '"a', 'b"')]


def test_quotation_marks_hold_a_field_together_in_csv(write):
    pairs, vocabulary = read(CSV, write(QUOTED))
    assert pairs["train"] == [(1, 'a "b" c', 'say "d"'), (0, "a\tb", "c\nd"), (0, "a b", "c")]
    assert {"\t", "\n", '"'} <= vocabulary.keys()
    pairs, _ = read(CSV, write([b'1.0\tP1\tP2\ta\t"b\rb"\r0.0\tP1\tP2\tc\td\n']))
    assert pairs["train"] == [(1, "a", "b\rb"), (0, "c", "d")]  # a lone CR ends a line too
    long = b"x" * 200_000
    pairs, _ = read(CSV, write([b"1.0\tP1\tP2\t" + long + b'\t"' + long + b'"\r\n']))
    assert pairs["train"] == [(1, "x" * 3999, "x" * 3999)]


@pytest.mark.parametrize(
    ("request_", "line", "message"),
    [
        (PLAIN, b"1.0\tP1\tP2\ttext\n", "line 2 has 4 fields between tabs, expected 5"),
        (PLAIN, b"1.0\tP1\tP2\ta\tb\tc\n", "line 2 has 6 fields between tabs, expected 5"),
        (PLAIN, b"\n", "line 2 has 1 fields between tabs, expected 5"),
        (PLAIN, QUOTED[1], "line 2 has 6 fields between tabs, expected 5"),
        (PLAIN, b"2.0\tP1\tP2\ta\tb\n", "line 2 has label '2.0', expected 0.0 or 1.0"),
        (PLAIN, b"0.5\tP1\tP2\ta\tb\n", "line 2 has label '0.5', expected 0.0 or 1.0"),
        (PLAIN, b"nan\tP1\tP2\ta\tb\n", "line 2 has label 'nan', expected 0.0 or 1.0"),
        (PLAIN, b"label\tP1\tP2\ta\tb\n", "line 2 has label 'label', expected 0.0 or 1.0"),
        (PLAIN, b"1.0\tP1\tP2\tcaf\xe9\tb\n", "line 2 is not UTF-8: byte 13 of the line"),
        (CSV, b"1.0\tP1\tP2\ttext\n", "line 2 has 4 fields between tabs, expected 5"),
        (CSV, b'1.0\tP1\tP2\ta\t"b\n1.0\tP1\tP2\ta\tb\n', "line 3 ends the file within quotation marks"),
    ],
)
def test_what_is_no_pair_stops_with_file_and_line(write, request_, line, message):
    with pytest.raises(DataError) as error:
        read(request_, write([b"0.0\tP1\tP2\ta\tb\n"], [*EVAL, line]))
    assert str(error.value) == f"{FOLDER}/new_aan_pairs.eval.tsv {message}"


def test_a_field_without_end_is_refused_before_it_fills_the_memory(write, monkeypatch):
    monkeypatch.setattr(retrieval, "LONGEST_LINE", 1000)
    sources = write([b'0.0\tP1\tP2\t"a\tb\n', *[b"0.0\tP1\tP2\ta\tb\n"] * 100])
    with pytest.raises(DataError, match=r"train\.tsv line \d+ cannot be read with quoting=csv: field larger than"):
        read(CSV, sources)
    with pytest.raises(DataError, match=r"train\.tsv line 1 is longer than 1000 bytes"):
        read(PLAIN, write([b"0.0\tP1\tP2\t" + b"a" * 2000 + b"\tb\n"]))


def test_another_number_of_pairs_stops_with_both_numbers_and_the_other_way(write):
    with pytest.raises(DataError) as error:
        read(DataRequest("retrieval"), write([b"0.0\tP1\tP2\ta\tb\n"]))
    assert str(error.value) == (
        "retrieval: 1 pairs in train, read with quoting=plain (the other way: quoting=csv), expected 147086"
    )


def test_the_counts_of_the_official_files(write, monkeypatch):
    monkeypatch.setattr(retrieval, "SIZES", {"train": 1, "val": 1, "test": 1})
    every = "".join(map(chr, range(32, 127))).encode()
    official = DataRequest("retrieval")
    made = retrieval.generate(official, write([b"0.0\tP1\tP2\t" + every + b"\tb\n"]), 1, silent)
    splits = stored(made)
    assert retrieval.check(official, splits, made.facts(), 1, silent)["vocabulary_size"] == 98
    with pytest.raises(DataError, match="retrieval: 97 entries in the vocabulary, expected 98"):
        read(official, write([b"0.0\tP1\tP2\t" + every[1:] + b"\tb\n"]))
    with pytest.raises(DataError, match=r"retrieval: 2 pairs in test, .*, expected 1"):
        read(official, write([b"0.0\tP1\tP2\t" + every + b"\tb\n"], EVAL, TEST * 2))
    with pytest.raises(DataError, match="retrieval: 99 entries in the vocabulary, the table has 98 rows"):
        read(PLAIN, write([b"0.0\tP1\tP2\t" + every + "é".encode() + b"\tb\n"]))
    with pytest.raises(DataError, match="retrieval: 2 records in val, expected 1"):
        retrieval.check(official, {**splits, "val": Stored(splits["val"].records * 2)}, made.facts(), 1, silent)


def test_an_unpacked_release_and_a_limit(tmp_path):
    train = [b"0.0\tP1\tP2\tab\tc\n", b"1.0\tP3\tP1\td\te\n", b"this line is not reached\n"]
    unpack(tmp_path, members(train[:2]))
    whole, vocabulary = read(PLAIN, sources_at(tmp_path))
    limited = DataRequest("retrieval", limit=1)
    assert read(limited, sources_at(tmp_path)) == ({name: pairs[:1] for name, pairs in whole.items()}, vocabulary)
    unpack(tmp_path, members(train[:2], EVAL + train[2:]))
    assert len(read(limited, sources_at(tmp_path))[0]["val"]) == 1


def test_check_looks_at_both_documents(write):
    made = retrieval.generate(PLAIN, write([b"0.0\tP1\tP2\ta\tb\n"], EVAL * 3), 1, silent)
    splits, facts = stored(made), made.facts()
    good, (label, first) = splits["val"].records[0], (1, splits["val"].records[0].values)
    statistics = retrieval.check(PLAIN, splits, facts, 1, silent)
    assert [statistics[f"{name}_records"] for name in ("train", "val", "test")] == [1, 3, 1]
    assert statistics["val_length_mean"] == 6
    assert (statistics["val_majority_share"], statistics["vocabulary_size"]) == (1, 5)
    assert facts["quoting"] == "plain"
    for second, line in (
        (np.array([3, 5, 2], np.uint8), "has id 5, the vocabulary has 5 entries"),
        (np.array([3, 3], np.uint8), "does not have its one <eos> at the end"),
        (np.full(4001, 2, np.uint8), "has 4001 ids, expected 1..4000"),
    ):
        bad = {**splits, "test": Stored([good, Example(first, label, second)])}
        with pytest.raises(DataError, match=f"retrieval: test record 1 {line}"):
            retrieval.check(PLAIN, bad, facts, 1, silent)


def test_a_pair_is_equal_to_another_only_in_both_documents_and_their_order(write):
    train = [b"0.0\tP1\tP2\ta\tb\n", b"0.0\tP1\tP2\tab\tc\n"]
    test = [b"0.0\t1\t2\ta\tb\n", b"0.0\t1\t2\tb\ta\n", b"0.0\t1\t2\ta\tbc\n", b"0.0\t1\t2\ta\tc\n"]
    made = retrieval.generate(PLAIN, write(train, EVAL, test), 1, silent)
    splits = stored(made)
    assert retrieval.check(PLAIN, splits, made.facts(), 1, silent)["test_seen_in_train"] == 0.25


def test_spec_and_smoke_sample():
    spec = retrieval.task_spec(PLAIN)
    assert (spec.kind, spec.input_width, spec.length, spec.classes) == (TaskKind.PAIRS, 98, 4000, 2)
    splits = {name: Stored(examples) for name, examples in retrieval.smoke(PLAIN).items()}
    facts = {"vocabulary": {str(i): i for i in range(98)}}
    statistics = retrieval.check(PLAIN, splits, facts, 1, silent)
    assert [statistics[f"{name}_records"] for name in ("train", "val", "test")] == [256, 64, 64]
    assert all(example.second is not None for example in splits["train"].records)
    with pytest.raises(DataError, match="retrieval has no length window"):
        retrieval.task_spec(DataRequest("retrieval", length_window=(10, 20)))
    choice = retrieval.CHOICES["retrieval"]["quoting"]
    assert (choice.values, choice.stored) == (("plain", "csv"), True)
    assert retrieval.sources(PLAIN)[0].name == "lra_release.gz"
    assert "redistribution" in retrieval.about(PLAIN).licence
