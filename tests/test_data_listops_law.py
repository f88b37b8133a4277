"""The ListOps language: generator, evaluator and text format, each against an independent description."""

import hashlib
import os
import pathlib
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data import listops_law as law

OFFICIAL = (500, 2000)
SHORT = (24, 96)


def ids_of(text: str) -> bytes:
    """Ids of tokens separated by blanks."""
    return bytes(law.VOCABULARY[token] for token in text.split())


def closed(*expressions: str) -> bytes:
    return b"".join(ids_of(expression) + bytes([law.EOS]) for expression in expressions)


# Trees as nested tuples (operator, children), with a definition of their own.


def value(tree) -> int:
    if isinstance(tree, int):
        return tree
    operator, children = tree
    values = [value(child) for child in children]
    definitions = {
        "[MIN": min,
        "[MAX": max,
        "[MED": lambda v: int(statistics.median(v)),
        "[SM": lambda v: sum(v) % 10,
    }
    return definitions[operator](values)


def tokens(tree) -> str:
    if isinstance(tree, int):
        return str(tree)
    return " ".join([tree[0], *map(tokens, tree[1]), "X"])


def published_text(tree) -> str:
    """Left-nested pairs, as the published files have them."""
    if isinstance(tree, int):
        return str(tree)
    text = tree[0]
    for part in [*map(published_text, tree[1]), "]"]:
        text = f"( {text} {part} )"
    return text


operators = st.sampled_from(["[MIN", "[MAX", "[MED", "[SM"])
trees = st.recursive(
    st.integers(0, 9),
    lambda inner: st.tuples(operators, st.lists(inner, min_size=2, max_size=10)),
    max_leaves=60,
)


def test_ids_are_the_published_ones():
    # Specials 0, 1, 2; then falling frequency (closing bracket, digits, operators), ties in ascending order.
    expected = ["<pad>", "<unk>", "<eos>", "X", *map(str, range(10)), "[MAX", "[MED", "[MIN", "[SM"]
    assert {token: number for number, token in enumerate(expected)} == law.VOCABULARY


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("[MED 2 3 X", 2),
        ("[MED 1 4 4 9 X", 4),
        ("[MED 9 1 5 X", 5),
        ("[SM 9 9 5 X", 3),
        ("[MAX [MIN 3 7 X 2 X", 3),
        ("[MIN 4 [SM 5 5 X X", 0),
        ("7", 7),
    ],
)
def test_known_values(expression, expected):
    assert law.evaluate(closed(expression)) == [expected]


@settings(max_examples=120, deadline=None, derandomize=True)
@given(st.lists(trees, min_size=1, max_size=4))
def test_evaluator_agrees_with_the_recursive_definition(several):
    assert law.evaluate(closed(*map(tokens, several))) == [value(tree) for tree in several]


@settings(max_examples=120, deadline=None, derandomize=True)
@given(trees)
def test_text_form_is_the_published_one_and_comes_back(tree):
    ids = ids_of(tokens(tree))
    text = law.raw_form(ids)
    assert text == published_text(tree)
    assert len(text.split()) == 3 * len(ids) - 2
    assert law.tokenize_raw(text) == ids


def test_text_form_example():
    assert law.raw_form(ids_of("[MAX 1 2 X")) == "( ( ( [MAX 1 ) 2 ) ] )"
    assert law.tokenize_raw("( ( ( [MAX 1 ) 2 ) ] )\r") == ids_of("[MAX 1 2 X")
    assert law.tokenize_raw("( ( ( [FIRST 1 ) 2 ) ] )") == ids_of("<unk> 1 2 X")


@pytest.mark.parametrize(
    "expression",
    ["[MAX 1 2", "1 2 X", "[MAX 1 X", "[MAX X", "1 2", "[MAX 1 <unk> X", "[MAX 1 2 X X", "", "[SM" + " 1" * 11 + " X"],
)
def test_ids_that_are_no_expression_have_no_value(expression):
    assert law.evaluate(closed("[MAX 1 2 X", expression, "5")) == [2, None, 5]


def test_ids_after_the_last_eos_are_no_expression():
    assert law.evaluate(closed("3") + ids_of("4")) == [3, None]


class Abandoned(Exception):
    """A node opened at a length of `high` or more."""


def literal_tree(draw, depth, high, length):
    """The law, word by word, as a tree; `length` is a list with the length so far."""
    r = draw() if depth < 10 else 1.0
    if r > 0.25:
        length[0] += 1
        return int(10 * draw())
    if length[0] >= high:
        raise Abandoned
    length[0] += 1
    children = [literal_tree(draw, depth + 1, high, length) for _ in range(2 + int(9 * draw()))]
    length[0] += 1
    return ["[MIN", "[MAX", "[MED", "[SM"][int(4 * draw())], children


@pytest.mark.parametrize(("window", "count"), [(SHORT, 300), (OFFICIAL, 30)])
def test_generator_follows_the_law_word_by_word(window, count):
    chunk = law.draw_chunk(3, seed=5, window=window, trees=count)
    draw, kept, drawn = random.Random((5 << 32) | 3).random, [], 0
    while len(kept) < count:
        drawn += 1
        length = [0]
        try:
            tree = literal_tree(draw, 1, window[1], length)
        except Abandoned:
            continue
        if window[0] < length[0] < window[1]:
            kept.append(tree)
    assert chunk.expressions == [closed(tokens(tree)) for tree in kept]
    assert chunk.labels == [value(tree) for tree in kept]
    assert chunk.drawn == drawn


def test_chunk_depends_on_seed_and_index_only():
    first = law.draw_chunk(1, seed=0, window=SHORT, trees=20)
    assert law.draw_chunk(1, seed=0, window=SHORT, trees=20) == first
    assert law.draw_chunk(2, seed=0, window=SHORT, trees=20).expressions != first.expressions
    assert law.draw_chunk(1, seed=1, window=SHORT, trees=20).expressions != first.expressions


def test_the_data_of_a_seed_never_change():
    # Whoever changes the order of the draws changes every prepared data set: this digest is meant to be hard to move.
    chunk = law.draw_chunk(0, seed=0, window=OFFICIAL, trees=100)
    digest = hashlib.sha256(b"".join(chunk.expressions) + bytes(chunk.labels)).hexdigest()
    assert digest[:16] == "b618b725a5edcc0c"


if os.environ.get("LINREC_DATA_SOURCE"):

    def test_published_files_have_the_values_of_their_expressions():
        path = pathlib.Path(os.environ["LINREC_DATA_SOURCE"]) / "listops" / "raw_sample.tsv"
        header, *rows = path.read_text().splitlines()
        assert header.split("\t") == ["Source", "Target"]
        assert rows
        for row in rows:
            source, target = row.split("\t")
            ids = law.tokenize_raw(source)
            assert law.evaluate(ids + bytes([law.EOS])) == [int(target)]
            assert law.raw_form(ids) == source
