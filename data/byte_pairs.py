"""GPT-2's byte pairs (Radford et al. 2019): text to ids and back, in the whole vocabulary or in a part of it.

A vocabulary is a list of GPT-2 ids; the place in it is the id that a model sees. Text is always split by all of GPT-2's
merges, and a token that the vocabulary lacks is then replaced by the tokens of its single bytes, so no text is lost.

top10k   10 000 ids: end-of-text (0), the 256 single bytes in GPT-2's order (1 to 256), then the ids that are most
         frequent in the training split, ties by the smaller id
gpt2     all 50 257 ids, end-of-text the last
used     the ids that occur in the training or validation split, in GPT-2's order (the published MRU runs)

Losses per token in different vocabularies do not compare: use nats per byte of text.
"""

import enum
import itertools
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import tiktoken

from data import strict_json
from data.errors import DataError
from data.sources import SourceFile

_FOLDER = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/"
VOCAB_BPE = SourceFile(
    "vocab.bpe",
    (_FOLDER + "vocab.bpe",),
    sha256="1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    bytes=456_318,
)
ENCODER_JSON = SourceFile(
    "encoder.json",
    (_FOLDER + "encoder.json",),
    sha256="196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    bytes=1_042_301,
)
END_OF_TEXT = "<|endoftext|>"
GPT2_SIZE = 50_257
TOP_SIZE = 10_000
# Contractions; letters, digits or other signs with a space before them; white space, whose last one belongs to a word.
PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""

MOST_WHITE = 900_000
"""Characters in a row: the regular expressions of tiktoken go a million steps back for the last one, and then end the
program."""


class Vocab(enum.Enum):
    """The vocabularies of the table above, the default first."""

    TOP10K = "top10k"
    GPT2 = "gpt2"
    USED = "used"


def _byte_characters() -> dict[str, int]:
    """The character that stands for each byte in GPT-2's files, in the order of the ids of single bytes: itself where
    it can be seen, else the next character from U+0100 on."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    unseen = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + place): byte for place, byte in enumerate(unseen)}


BYTES = bytes(_byte_characters().values())
"""BYTES[i] is the byte whose GPT-2 id is i."""


@lru_cache(maxsize=1)  # half a second, once in a process
def read_tokens(vocab_bpe: Path, encoder_json: Path) -> tuple[bytes, ...]:
    """The bytes of every id but end-of-text, which is the last; the order of the ids is that of the merges.

    Raises DataError if the files are not of this form or do not agree.
    """
    characters = _byte_characters()
    try:
        ids = strict_json.parse(encoder_json.read_bytes())
        if ids.pop(END_OF_TEXT) != len(ids) or sorted(ids.values()) != list(range(len(ids))):
            raise DataError(f"{encoder_json}: ids are not 0, 1, ... with {END_OF_TEXT} the last")
        spelt = sorted(ids, key=ids.__getitem__)
        version, *merges = vocab_bpe.read_text(encoding="utf-8").splitlines()
        tokens = tuple(bytes(characters[character] for character in token) for token in spelt)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DataError(f"{encoder_json} or {vocab_bpe.name} beside it is damaged: {error!r}") from error
    expected = [*characters, *(merge.replace(" ", "", 1) for merge in merges)]
    if not version.startswith("#version") or spelt != expected:
        raise DataError(f"{encoder_json} does not hold the 256 bytes and the {len(merges)} merges of {vocab_bpe}")
    return tokens


@dataclass(frozen=True)
class Tokenizer:
    """Text to ids of a vocabulary and back.

    tokens: bytes of each GPT-2 id but end-of-text, see `read_tokens`. vocabulary: (V,) int32, the GPT-2 id of each id.
    """

    tokens: tuple[bytes, ...]
    vocabulary: np.ndarray

    @cached_property
    def end_of_text(self) -> int | None:
        """Its id; None if the vocabulary lacks it."""
        place = int(self._places[len(self.tokens)])
        return None if place < 0 else place

    @cached_property
    def token_bytes(self) -> np.ndarray:
        """(V,) int32: bytes of text that each id stands for; none for end-of-text."""
        return np.array([len(self._bytes_of(gpt2_id)) for gpt2_id in self.vocabulary], np.int32)

    def encode(self, text: str) -> np.ndarray:
        """(n,) uint16 ids. Text that looks like end-of-text is text.

        Raises DataError for a token that the vocabulary has neither whole nor in bytes (`used` only).
        """
        return self.renumber(self.gpt2_ids(text))

    def gpt2_ids(self, text: str) -> np.ndarray:
        """(n,) int64 ids in the whole vocabulary. Raises DataError for more white space than can be split."""
        if len(text) > MOST_WHITE and any(len(run[0]) > MOST_WHITE for run in re.finditer(r"\s+", text)):
            raise DataError(f"more than {MOST_WHITE:,} characters of white space in a row: they cannot be split")
        return np.array(self._encoding.encode_ordinary(text), np.int64)

    def renumber(self, gpt2_ids: np.ndarray) -> np.ndarray:
        """The same text in ids of the vocabulary, (m,) uint16 with m >= n; raises what `encode` raises."""
        flat, starts, counts = self._replacements
        count = counts[gpt2_ids]
        stops = np.cumsum(count)
        within = np.arange(stops[-1] if len(stops) else 0) - np.repeat(stops - count, count)
        ids = flat[np.repeat(starts[gpt2_ids], count) + within]
        if (ids < 0).any():
            lacking = self._bytes_of(np.repeat(gpt2_ids, count)[ids < 0][0])
            raise DataError(f"token {lacking!r} is not in the vocabulary of {len(self.vocabulary)} ids")
        return ids.astype(np.uint16)

    def decode(self, ids: np.ndarray) -> str:
        """The text of ids; bytes that are no UTF-8 (a character begun and not ended) become U+FFFD.

        Raises DataError for an id outside the vocabulary.
        """
        return self.bytes_of(ids).decode("utf-8", "replace")

    def bytes_of(self, ids: np.ndarray) -> bytes:
        """The bytes of ids, which need not be UTF-8. Raises DataError for an id outside the vocabulary."""
        ids = np.asarray(ids, np.int64)
        outside = ids[(ids < 0) | (ids >= len(self.vocabulary))]
        if len(outside):
            raise DataError(f"token id {outside[0]} is outside the vocabulary of {len(self.vocabulary)} ids")
        return b"".join(map(self._bytes_of, self.vocabulary[ids]))

    def arrays(self) -> dict[str, np.ndarray]:
        """What `from_arrays` needs, so that prepared data can encode a prompt and decode a sample alone."""
        lengths = np.array([len(token) for token in self.tokens], np.uint8)
        return {
            "bpe_bytes": np.frombuffer(b"".join(self.tokens), np.uint8),
            "bpe_lengths": lengths,
            "vocabulary": self.vocabulary,
            "token_bytes": self.token_bytes,
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> "Tokenizer":
        """The tokenizer that gave `arrays`. Raises DataError for others, KeyError for one that is missing."""
        lengths, joined, vocabulary = arrays["bpe_lengths"], arrays["bpe_bytes"], arrays["vocabulary"]
        for array, dtype in ((lengths, np.uint8), (joined, np.uint8), (vocabulary, np.int32)):
            if array.dtype != dtype or array.ndim != 1:
                raise DataError(f"byte pairs: an array is {array.dtype}{array.shape}, expected {np.dtype(dtype)} (n,)")
        stops = np.cumsum(lengths, dtype=np.int64).tolist()
        tokens = tuple(joined[start:stop].tobytes() for start, stop in itertools.pairwise([0, *stops]))
        single = tuple(bytes([byte]) for byte in BYTES)
        if len(joined) != sum(map(len, tokens)) or tokens[: len(single)] != single or len({*tokens}) != len(tokens):
            raise DataError("byte pairs: the tokens are not the 256 bytes and then others, each once")
        known = np.unique(vocabulary)
        if not len(vocabulary) or len(known) != len(vocabulary) or not 0 <= known[0] <= known[-1] <= len(tokens):
            raise DataError(f"byte pairs: the vocabulary is none of ids 0..{len(tokens)}, each once")
        return cls(tokens, vocabulary)

    def _bytes_of(self, gpt2_id: int) -> bytes:
        return self.tokens[gpt2_id] if gpt2_id < len(self.tokens) else b""

    @cached_property
    def _encoding(self) -> tiktoken.Encoding:
        ranks = {token: rank for rank, token in enumerate(self.tokens)}
        return tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})

    @cached_property
    def _places(self) -> np.ndarray:
        """(GPT-2 ids,) int32: the id of each, -1 where the vocabulary lacks it."""
        places = np.full(len(self.tokens) + 1, -1, np.int32)
        places[self.vocabulary] = np.arange(len(self.vocabulary))
        return places

    @cached_property
    def _replacements(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """GPT-2 id i becomes the counts[i] ids flat[starts[i]:]: itself, or its bytes."""
        of_byte = self._places[np.argsort(np.frombuffer(BYTES, np.uint8))]
        single = [
            self._places[[gpt2_id]] if place >= 0 else of_byte[np.frombuffer(self._bytes_of(gpt2_id), np.uint8)]
            for gpt2_id, place in enumerate(self._places)
        ]
        counts = np.array([len(ids) for ids in single])
        return np.concatenate(single), np.cumsum(counts) - counts, counts


def choose(vocab: Vocab, train: np.ndarray, val: np.ndarray) -> np.ndarray:
    """The vocabulary, (V,) int32 GPT-2 ids, from how often each GPT-2 id occurs in the two splits."""
    end_of_text = len(train) - 1
    match vocab:
        case Vocab.GPT2:
            chosen = np.arange(len(train))
        case Vocab.USED:
            chosen = np.flatnonzero(train + val)
        case Vocab.TOP10K:
            merged = train[len(BYTES) : end_of_text]
            frequent = len(BYTES) + np.argsort(-merged, kind="stable")  # stable: ties by the smaller id
            chosen = np.concatenate([[end_of_text], np.arange(len(BYTES)), frequent])[:TOP_SIZE]
    return chosen.astype(np.int32)
