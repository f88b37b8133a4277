"""GPT-2's byte pairs: the ids are GPT-2's, any text comes back, in every vocabulary."""

import functools
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from language import MERGES, order_of_bytes, spell, write_byte_pairs

from data import byte_pairs
from data.byte_pairs import BYTES, Tokenizer, Vocab, choose, read_tokens
from data.errors import DataError

TOKENS = tuple(bytes([byte]) for byte in order_of_bytes()) + tuple(first + second for first, second in MERGES)
END = len(TOKENS)
WHOLE = Tokenizer(TOKENS, np.arange(END + 1, dtype=np.int32))
PART = np.array([END, *range(256), *(TOKENS.index(token) for token in (b" the", b"th", b"\xc3\xab"))], np.int32)


def ids_of(*tokens):
    return [TOKENS.index(token) for token in tokens]


def test_files_give_the_tokens_in_the_order_of_their_merges(tmp_path):
    assert read_tokens(*write_byte_pairs(tmp_path)) == TOKENS
    assert tuple(BYTES) == tuple(order_of_bytes())


def test_merges_are_made_in_their_order_and_not_across_words():
    expected = ids_of(b" the", b" ", b"th", b"ing", b" Lily", b"'", b"s", b"\n", b"\n", b"ly")
    assert WHOLE.encode(" the thing Lily's\n\nly").tolist() == expected
    assert WHOLE.encode("").tolist() == []
    assert WHOLE.encode("ë").tolist() == ids_of(b"\xc3\xab")
    assert WHOLE.encode("<|endoftext|>").max() < 256  # text, and no end of text


def test_a_token_outside_the_vocabulary_becomes_its_bytes():
    tokenizer = Tokenizer(TOKENS, PART)
    assert tokenizer.end_of_text == 0
    in_bytes = [1 + order_of_bytes().index(byte) for byte in b" Lily"]
    assert tokenizer.encode("the Lily thë the").tolist() == [
        *(1 + order_of_bytes().index(byte) for byte in b"the"),
        *in_bytes,
        1 + order_of_bytes().index(ord(" ")),
        258,
        259,
        257,
    ]
    np.testing.assert_array_equal(tokenizer.token_bytes, [0, *(256 * [1]), 4, 2, 2])


@given(st.text())
@settings(deadline=None)
def test_no_text_is_lost(text):
    for tokenizer in (Tokenizer(TOKENS, PART), WHOLE):
        ids = tokenizer.encode(text)
        assert ids.dtype == np.uint16
        assert tokenizer.decode(ids) == text
        assert tokenizer.token_bytes[ids].sum() == len(text.encode())


def test_ends_of_text_decode_to_nothing_and_broken_characters_to_a_sign():
    tokenizer = Tokenizer(TOKENS, PART)
    ids = tokenizer.encode("a€")
    assert tokenizer.decode(np.array([*ids, 0, *ids])) == "a€a€"
    assert tokenizer.decode(ids[:-1]) == "a\ufffd"
    assert tokenizer.decode(np.array([])) == ""
    for outside in (260, -1):
        with pytest.raises(DataError, match=f"token id {outside} is outside the vocabulary of 260 ids"):
            tokenizer.decode(np.array([1, outside]))


def test_a_tokenizer_comes_back_from_its_arrays():
    tokenizer = Tokenizer.from_arrays(Tokenizer(TOKENS, PART).arrays())
    assert tokenizer.tokens == TOKENS
    np.testing.assert_array_equal(tokenizer.vocabulary, PART)
    assert tokenizer.decode(tokenizer.encode(" the Lily")) == " the Lily"


def test_the_used_ids_are_those_of_both_splits_in_their_order():
    train, val = np.zeros((2, END + 1), np.int64)
    train[[70, 3]], val[[3, 258]] = 1, 2
    used = choose(Vocab.USED, train, val)
    assert used.tolist() == [3, 70, 258]
    tokenizer = Tokenizer(TOKENS, used)
    assert tokenizer.end_of_text is None
    assert tokenizer.encode(" the").tolist() == [2]
    with pytest.raises(DataError, match="token b'Lily' is not in the vocabulary of 3 ids"):
        tokenizer.encode("Lily")


def test_the_top_ids_are_the_most_frequent_of_the_training_split(monkeypatch):
    monkeypatch.setattr(byte_pairs, "TOP_SIZE", 260)
    train, val = np.zeros((2, END + 1), np.int64)
    train[[256, 258, 261, 264]] = 5, 7, 7, 6
    train[[END, 40]] = 100, 100
    val[265] = 1000
    assert choose(Vocab.TOP10K, train, val).tolist() == [END, *range(256), 258, 261, 264]
    monkeypatch.setattr(byte_pairs, "TOP_SIZE", 10_000)
    assert choose(Vocab.TOP10K, train, val).tolist() == [
        END,
        *range(256),
        258,
        261,
        264,
        256,
        257,
        259,
        260,
        262,
        263,
        265,
    ]
    assert choose(Vocab.GPT2, train, val).tolist() == list(range(END + 1))


def damaged(files, name):
    vocab_bpe, encoder_json = files
    ids = json.loads(encoder_json.read_text())
    match name:
        case "not json":
            encoder_json.write_text("{")
        case "a list":
            encoder_json.write_text("[]")
        case "no end":
            encoder_json.write_text(json.dumps({token: number for token, number in ids.items() if token[0] != "<"}))
        case "a hole":
            encoder_json.write_text(json.dumps(ids | {"Li": 9_999}))
        case "a character of no byte":
            encoder_json.write_text(json.dumps({token.replace("L", "€"): number for token, number in ids.items()}))
        case "another order":
            encoder_json.write_text(json.dumps(ids | {"th": 257, "the": 256}))
        case "a merge short":
            vocab_bpe.write_text(vocab_bpe.read_text().rsplit("\n", 2)[0] + "\n")
        case "empty":
            vocab_bpe.write_text("")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("not json", "is damaged"),
        ("a list", "is damaged"),
        ("no end", "is damaged"),
        ("a hole", r"ids are not 0, 1, \.\.\."),
        ("a character of no byte", "is damaged"),
        ("another order", "does not hold the 256 bytes and the 10 merges"),
        ("a merge short", "does not hold the 256 bytes and the 9 merges"),
        ("empty", "is damaged"),
    ],
)
def test_damaged_files_are_refused(tmp_path, name, line):
    files = write_byte_pairs(tmp_path)
    damaged(files, name)
    with pytest.raises(DataError, match=line) as caught:
        read_tokens(*files)
    assert str(files[1]) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_spelling():
    assert spell(b" a\n") == "ĠaĊ"  # as the published files write it


if os.environ.get("LINREC_DATA_SOURCE"):
    FOLDER = Path(os.environ["LINREC_DATA_SOURCE"]) / "gpt2_bpe"

    def gpt2_tokens():
        return read_tokens(FOLDER / "vocab.bpe", FOLDER / "encoder.json")

    @pytest.mark.parametrize(
        ("text", "ids"),
        [
            ("Hello world", [15496, 995]),
            ("hello world", [31373, 995]),
            (" once upon a time", [1752, 2402, 257, 640]),
            ("<|endoftext|>", [27, 91, 437, 1659, 5239, 91, 29]),
        ],
    )
    def test_ids_are_those_of_gpt2(text, ids):
        tokenizer = Tokenizer(gpt2_tokens(), np.arange(byte_pairs.GPT2_SIZE, dtype=np.int32))
        assert tokenizer.end_of_text == 50256
        assert tokenizer.encode(text).tolist() == ids

    @given(st.text())
    @settings(deadline=None)
    def test_no_text_is_lost_by_ten_thousand_ids(text):
        tokenizer = gpt2_top_tokenizer()
        assert len(tokenizer.vocabulary) == 10_000
        ids = tokenizer.encode(text)
        assert ids.max(initial=0) < 10_000
        assert tokenizer.decode(ids) == text

    @functools.cache
    def gpt2_top_tokenizer():
        counts = np.arange(byte_pairs.GPT2_SIZE)
        return Tokenizer(gpt2_tokens(), choose(Vocab.TOP10K, counts, counts))
