"""Characters as ids: the order of the vocabulary, truncation, and the way back."""

import collections

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data.vocabulary import EOS, SPECIALS, UNK, character_encoder, character_vocabulary, random_document

LENGTH = 12
documents = st.lists(st.text(max_size=2 * LENGTH), max_size=8)


def decode(ids, vocabulary):
    tokens = list(vocabulary)
    return "".join(tokens[number] for number in ids)


def test_specials_then_falling_frequency_then_ascending():
    vocabulary = character_vocabulary(["zbbb", "aazé", "é"], LENGTH, 1)
    assert vocabulary == {"<pad>": 0, "<unk>": 1, "<eos>": 2, "b": 3, "a": 4, "z": 5, "é": 6}
    assert list(vocabulary.values()) == list(range(7))
    assert list(character_vocabulary(["zbbb", "aazé", "é"], LENGTH, 3)) == [*SPECIALS, "b"]


def test_what_is_cut_off_does_not_count():
    assert list(character_vocabulary(["aaab", "ac"], 4, 1)) == [*SPECIALS, "a", "c"]
    encode = character_encoder(character_vocabulary(["aaab"], 5, 1), 4)
    assert encode("aaab").tolist() == [3, 3, 3, EOS]
    assert encode("aaa").tolist() == [3, 3, 3, EOS]
    assert encode("a").tolist() == [3, EOS]


def test_unknown_characters_and_the_names_of_specials():
    encode = character_encoder(character_vocabulary(["<eos>x" * 2], 20, 1), 20)
    ids = encode("x€😀").tolist()
    assert ids[1:] == [UNK, UNK, EOS]
    assert EOS not in encode("<eos>")[:-1]
    assert encode("").tolist() == [EOS]
    assert encode("x").dtype == np.uint8


@settings(max_examples=60, deadline=None)
@given(texts=documents, min_freq=st.integers(1, 4))
def test_the_rule_on_any_text(texts, min_freq):
    vocabulary = character_vocabulary(iter(texts), LENGTH, min_freq)
    counts = collections.Counter("".join(text[: LENGTH - 1] for text in texts))
    kept = sorted((c for c in counts if counts[c] >= min_freq), key=lambda c: (-counts[c], c))
    assert list(vocabulary) == [*SPECIALS, *kept]


@settings(max_examples=60, deadline=None)
@given(texts=documents)
def test_what_is_encoded_can_be_read_again(texts):
    vocabulary = character_vocabulary(texts, LENGTH, 1)
    encode = character_encoder(vocabulary, LENGTH)
    for text in texts:
        ids = encode(text)
        assert 1 <= len(ids) <= LENGTH
        assert decode(ids, vocabulary) == text[: LENGTH - 1] + "<eos>"


def test_random_documents_fill_the_lengths():
    rng = np.random.default_rng(0)
    drawn = [random_document(rng, range(3, 9), 5) for _ in range(200)]
    assert {len(ids) for ids in drawn} == {1, 2, 3, 4, 5}
    assert {int(ids[-1]) for ids in drawn} == {EOS}
    assert {int(i) for ids in drawn for i in ids[:-1]} == set(range(3, 9))
