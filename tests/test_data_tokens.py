"""Between text and ids: streams of bytes, and the vocabularies that come with prepared data and with smoke samples."""

import json
import re

import numpy as np
import pytest
from language import write_byte_pairs

from data import prepared
from data.errors import DataError
from data.sealed import sealed
from data.spec import DataRequest
from data.tokens import TextStream

TEXT = "“Zoë” saw 3 🙂.\n"
VOCABS = ("top10k", "gpt2", "used")


def stories(vocab, **more):
    return DataRequest("tinystories", choices=(("vocab", vocab),), **more)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("tail", [b"", b"\xff\xf0\x9f", b"\xc3(\xe2\x80"])
def test_a_stream_gives_characters_when_they_are_whole(size, tail):
    whole = TEXT.encode() + tail + b"."
    stream = TextStream()
    parts = [stream(whole[start : start + size]) for start in range(0, len(whole), size)]
    assert "".join(parts) == whole.decode("utf-8", "replace")
    if not tail:
        assert "\N{REPLACEMENT CHARACTER}" not in "".join(parts)


def test_a_stream_goes_on_inside_a_character():
    whole = TEXT.encode()
    for cut in range(len(whole)):
        first = TextStream()
        before = first(whole[:cut])
        second = TextStream(first.pending)
        assert before + second(whole[cut:]) == TEXT
        assert len(first.pending) < 4
        assert before.encode() + first.pending == whole[:cut]


@pytest.mark.parametrize("vocab", VOCABS)
def test_a_smoke_sample_of_stories_is_read(vocab):
    tokens = prepared.smoke_tokenizer(stories(vocab))
    assert len(tokens.token_bytes) == prepared.smoke_data(stories(vocab)).spec.classes
    batch = prepared.smoke_data(stories(vocab)).splits["val"].gather([0, 1])
    ids = batch["inputs"].ravel()
    assert re.match(r"One day, \w+ went to [a-z ]+. There was", tokens.decode(ids))
    assert tokens.end_of_text in ids
    assert tokens.token_bytes[ids].sum() == len(tokens.bytes_of(ids))
    assert tokens.decode(tokens.encode(TEXT)) == TEXT
    assert tokens.bytes_of(np.array([len(tokens.token_bytes) - 2])) == b""  # an id that no smoke sample has


def test_a_smoke_sample_of_characters_is_read():
    tokens = prepared.smoke_tokenizer(DataRequest("shakespeare_char"))
    assert tokens.end_of_text is None
    assert len(tokens.token_bytes) == 65
    assert tokens.decode(np.arange(65)).startswith("\n !$&',-.3:;?ABC")
    assert tokens.decode(tokens.encode("To be, or not?")) == "To be, or not?"
    with pytest.raises(DataError, match="character '1' is not among the 65 of the vocabulary"):
        tokens.encode("In 1599")
    with pytest.raises(DataError, match="character id 65 is outside the vocabulary of 65"):
        tokens.bytes_of(np.array([3, 65]))


def test_prepared_characters_are_read(tmp_path):
    request = DataRequest("shakespeare_char", partial=True)
    (tmp_path / "input.txt").write_text("dog, é cat.\n" * 30, encoding="utf-8")
    prepared.prepare(request, tmp_path / "data", data_source=tmp_path, processes=1)
    tokens = prepared.open_tokenizer(request, tmp_path / "data")
    assert tokens.decode(np.arange(11)) == "\n ,.acdgoté"
    assert tokens.token_bytes.tolist() == [1] * 10 + [2]
    assert tokens.bytes_of(tokens.encode("é.")) == "é.".encode()
    path = tmp_path / "data" / "shakespeare_char_partial" / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    for vocabulary in (None, [], manifest["vocabulary"] | {"a": 7}):
        path.write_text(json.dumps(sealed(manifest | {"vocabulary": vocabulary})))
        with pytest.raises(DataError, match="manifest of shakespeare_char has no vocabulary of ranks"):
            prepared.open_tokenizer(request, tmp_path / "data")


def test_prepared_byte_pairs_are_read(tmp_path):
    request = stories("used", partial=True)
    write_byte_pairs(tmp_path)
    for split in ("train", "valid"):
        file = tmp_path / f"TinyStories-{split}.txt"
        file.write_text("Lily saw the ëthing.\n<|endoftext|>\n" * 40, encoding="utf-8")
    prepared.prepare(request, tmp_path / "data", data_source=tmp_path, processes=1)
    tokens = prepared.open_tokenizer(request, tmp_path / "data")
    ids = tokens.encode("Lily saw the ëthing.")
    assert len(ids) < 15
    assert tokens.decode(ids) == "Lily saw the ëthing."
    assert tokens.end_of_text == len(tokens.token_bytes) - 1
    with pytest.raises(DataError, match="is not in the vocabulary"):
        tokens.encode("Q")
    folder = tmp_path / "data" / "tinystories_used_partial"
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["arrays"].remove("bpe_lengths")
    (folder / "manifest.json").write_text(json.dumps(sealed(manifest)))
    with pytest.raises(DataError, match="the data of tinystories have no array 'bpe_lengths'; delete them"):
        prepared.open_tokenizer(request, tmp_path / "data")


def test_what_is_no_text_has_no_tokenizer(tmp_path):
    with pytest.raises(DataError, match="listops is no text"):
        prepared.smoke_tokenizer(DataRequest("listops"))
