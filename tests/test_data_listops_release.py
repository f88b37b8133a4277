"""ListOps from the published files: what is read, and everything that must not be believed."""

import os
import pathlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data import listops_release as release
from data.errors import DataError
from data.listops_law import TOKENS
from data.parallel import silent
from data.spec import DataRequest
from tests.fake_sources import sources_at, stored

REQUEST = DataRequest("listops", length_window=(2, 20), partial=True)
FIRST = ("( ( ( ( [MED 1 ) 4 ) ( ( ( [MAX 3 ) 9 ) ] ) ) ] )", "4")  # MED(1, 4, MAX(3, 9))
SECOND = ("( ( ( ( [SM 9 ) 9 ) 5 ) ] )", "3")


def bracketed(tree):
    """Text and value of a nested (operator, arguments), as the published generator writes it: one pair around the
    operator and each argument so far, one around the end."""
    if isinstance(tree, int):
        return str(tree), tree
    operator, arguments = tree
    text, values = f"[{operator}", []
    for argument in arguments:
        inner, value = bracketed(argument)
        text, values = f"( {text} {inner} )", [*values, value]
    ordered = sorted(values)
    middle = len(ordered) // 2
    value = {
        "MIN": ordered[0],
        "MAX": ordered[-1],
        "MED": ordered[middle] if len(ordered) % 2 else int((ordered[middle - 1] + ordered[middle]) / 2),
        "SM": sum(values) % 10,
    }[operator]
    return f"( {text} ] )", value


@pytest.fixture
def write(tmp_path):
    """Files with the line ends of a CSV writer, in the folder of the release."""

    def write_files(train, val=(SECOND,), test=(SECOND,), *, end="\r\n", header="Source\tTarget"):
        folder = tmp_path / "lra_release" / "lra_release" / "listops-1000"
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in (("train", train), ("val", val), ("test", test)):
            text = "".join(f"{line}{end}" for line in (header, *("\t".join(row) for row in rows)))
            (folder / f"basic_{name}.tsv").write_bytes(text.encode())
        return sources_at(tmp_path)

    return write_files


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_records_in_the_order_of_the_files(write, end):
    made = release.generate(REQUEST, write([FIRST, SECOND], [SECOND], [FIRST], end=end), 1, silent)
    splits = {name: split.records for name, split in stored(made).items()}
    assert {name: [example.label for example in split] for name, split in splits.items()} == {
        "train": [4, 3],
        "val": [3],
        "test": [4],
    }
    values = splits["train"][0].values
    assert values.dtype == np.uint8
    assert [TOKENS[i] for i in values] == ["[MED", "1", "4", "[MAX", "3", "9", "X", "X", "<eos>"]
    facts = made.facts()
    assert facts["vocabulary"] == {token: number for number, token in enumerate(TOKENS)}
    assert [fact["file"] for fact in facts["sources"]] == ["basic_train.tsv", "basic_val.tsv", "basic_test.tsv"]


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.integers(0, 9),
        lambda inner: st.tuples(st.sampled_from(["MIN", "MAX", "MED", "SM"]), st.lists(inner, min_size=2, max_size=10)),
        max_leaves=40,
    ).filter(lambda tree: not isinstance(tree, int))
)
def test_any_expression_has_its_value(tree):
    text, value = bracketed(tree)
    request = DataRequest("listops", length_window=(3, 2000), partial=True)
    assert release.example("here", f"{text}\t{value}", request).label == value
    with pytest.raises(DataError, match=f"here has label '{value + 1}', the value of its expression is {value}"):
        release.example("here", f"{text}\t{value + 1}", request)


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ((FIRST[0], "5"), "has label '5', the value of its expression is 4"),
        ((FIRST[0], "4.0"), "has label '4.0', the value of its expression is 4"),
        ((FIRST[0].replace("9", "10"), "4"), "has the unknown token '10'"),
        ((FIRST[0].replace("[MAX", "[FIRST"), "4"), "has the unknown token '[FIRST'"),
        ((FIRST[0].replace("9", "<eos>"), "4"), "has the unknown token '<eos>'"),
        ((FIRST[0].replace("]", "X"), "4"), "has the unknown token 'X'"),
        ((FIRST[0].removesuffix(" ] )"), "4"), "is not a ListOps expression in left-nested brackets"),
        ((FIRST[0].replace("( ( ( [MAX 3 ) 9 ) ] )", "( [MAX 3 9 ] )"), "4"), "is not a ListOps expression in left-"),
        (("( ( [MED 1 ) ] )", "1"), "is not a ListOps expression in left-nested brackets"),
        (("7", "7"), "has a length of 1, expected 2 < length < 20"),
        (("( " * 18 + "[SM" + " 1 )" * 17 + " ] )", "7"), "is not a ListOps expression in left-nested brackets"),
        ((bracketed(("SM", [("SM", [1] * 9), ("SM", [1] * 9)]))[0], "8"), "has a length of 24, expected 2 < length <"),
        (("", ""), "has a length of 0, expected 2 < length < 20"),
        ((FIRST[0], "4", "1"), "has 3 fields between tabs, expected 2"),
        ((FIRST[0],), "has 1 fields between tabs, expected 2"),
    ],
)
def test_what_is_wrong_stops_with_file_and_line(write, row, line):
    with pytest.raises(DataError) as error:
        stored(release.generate(REQUEST, write([SECOND, FIRST], [SECOND, FIRST, row]), 1, silent))
    assert str(error.value).startswith(f"basic_val.tsv line 4 {line}")


def test_the_official_window_is_the_default(write):
    with pytest.raises(DataError, match="line 2 has a length of 5, expected 500 < length < 2000"):
        stored(release.generate(DataRequest("listops", partial=True), write([SECOND]), 1, silent))
    row = ("MAX", [("MAX", [("MIN", [5] * 10)] * 10)] * 5)
    text, value = bracketed(row)
    sources = write([(text, str(value))], [(text, str(value))], [(text, str(value))])
    made = stored(release.generate(DataRequest("listops", partial=True), sources, 1, silent))
    assert [len(split) for split in made.values()] == [1, 1, 1]


def test_the_published_number_of_lines(write):
    sources = write([FIRST, SECOND, FIRST])
    with pytest.raises(DataError, match=r"listops: 3 expressions in basic_train\.tsv, expected 96000"):
        stored(release.generate(DataRequest("listops", length_window=(2, 20)), sources, 1, silent))
    few = stored(release.generate(DataRequest("listops", length_window=(2, 20), limit=2), sources, 1, silent))
    assert [len(split) for split in few.values()] == [2, 1, 1]


@pytest.mark.parametrize("header", ["Source,Target", SECOND[0] + "\t3", ""])
def test_the_header_must_be_there(write, header):
    with pytest.raises(DataError, match=r"basic_train\.tsv line 1 is .*, expected 'Source\\tTarget'"):
        stored(release.generate(REQUEST, write([SECOND], header=header), 1, silent))


def test_lines_that_are_no_text_are_refused(write, monkeypatch):
    with pytest.raises(DataError, match=r"basic_train\.tsv line 3 has the unknown token 'é'"):
        stored(release.generate(REQUEST, write([SECOND, ("( ( [SM é", "3")]), 1, silent))
    sources = write([SECOND])
    path = sources.file(release.FILES["val"])
    path.write_bytes(b"Source\tTarget\r\n( \xe9\t1\r\n")
    with pytest.raises(DataError, match=r"basic_val\.tsv line 2 is not UTF-8: byte 2 of the line"):
        stored(release.generate(REQUEST, sources, 1, silent))
    path.write_bytes(b"Source\tTarget\r\n" + b"( " * 50)
    monkeypatch.setattr(release, "LONGEST_LINE", 60)
    with pytest.raises(DataError, match=r"basic_val\.tsv line 2 is longer than 60 bytes"):
        stored(release.generate(REQUEST, sources, 1, silent))


if os.environ.get("LINREC_DATA_SOURCE"):

    def test_published_lines(write):
        path = pathlib.Path(os.environ["LINREC_DATA_SOURCE"]) / "listops" / "raw_sample.tsv"
        rows = [tuple(line.split("\t")) for line in path.read_text().splitlines()[1:]]
        request = DataRequest("listops", length_window=(4, 100), partial=True)
        made = stored(release.generate(request, write(rows, rows[:1], rows[1:]), 1, silent))
        assert [example.label for example in made["train"].records] == [int(target) for _, target in rows]
