"""shakespeare-char: one text of 1 115 394 characters (karpathy/char-rnn, `tinyshakespeare`), predicted character by
character. Ids are the ranks of the 65 characters in order; the first int(0.9 N) are the training split and the rest the
validation split, and there is no test split. It has no documents and nothing that separates them.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from data.errors import DataError
from data.examples import About, Choice, Example, Generated
from data.parallel import Progress
from data.sources import SourceFile, Sources
from data.spec import DataRequest, InputKind, TaskKind, TaskSpec
from data.splits import Records
from data.windows import Packing, checked_ids, cut

VERSION = "1.0.0"
SOURCE = "karpathy/char-rnn, data/tinyshakespeare/input.txt"
INPUT = SourceFile(
    "input.txt",
    (
        "https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/"
        "data/tinyshakespeare/input.txt",
    ),
    sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    bytes=1_115_394,
)
SYMBOLS = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
CHARACTERS = len(SYMBOLS)
LENGTH = 256
TRAINED_SHARE = 0.9
SIZES = {"train": 1_003_854, "val": 111_540}
SMOKE_SIZES = {"train": 65_536, "val": 16_384}

CHOICES = {"shakespeare_char": {"packing": Choice(tuple(packing.value for packing in Packing), stored=False)}}


def sources(request: DataRequest) -> tuple[SourceFile, ...]:
    """The text."""
    return (INPUT,)


def about(request: DataRequest) -> About:
    """One small file."""
    return About(SOURCE, "public domain", INPUT.bytes, 1_200_000)


def task_spec(request: DataRequest) -> TaskSpec:
    """65 characters, windows of 256. Raises DataError for a length window: a text has no records to choose from."""
    if request.length_window is not None:
        raise DataError(f"{request.task} has no length window: it is one text")
    return TaskSpec(request.name, TaskKind.LANGUAGE, InputKind.TOKENS, CHARACTERS, LENGTH, CHARACTERS)


def segments(request: DataRequest, offsets: np.ndarray) -> np.ndarray:
    """Where windows may not cross, from the offsets of the stored records: nowhere."""
    return offsets[[0, -1]]


def encode(text: str, vocabulary: dict[str, int]) -> np.ndarray:
    """(n,) uint8 ids. Raises DataError for a character outside the vocabulary."""
    unknown = sorted(set(text) - vocabulary.keys())
    if unknown:
        raise DataError(f"character {unknown[0]!r} is not among the {len(vocabulary)} of the vocabulary")
    return np.array([vocabulary[character] for character in text], np.uint8)


def decode(ids: np.ndarray, vocabulary: dict[str, int]) -> str:
    """The text of ids. Raises DataError for an id outside the vocabulary."""
    characters = list(vocabulary)
    if len(outside := ids[ids >= len(characters)]):
        raise DataError(f"character id {outside[0]} is outside the vocabulary of {len(characters)}")
    return "".join(characters[identity] for identity in ids)


@dataclass(frozen=True)
class Characters:
    """One id for each character; a `data.tokens.Tokens`. vocabulary: character -> id, in the order of the ids."""

    vocabulary: dict[str, int]
    end_of_text: None = None

    @cached_property
    def token_bytes(self) -> np.ndarray:
        """(V,) int32: bytes of each character in UTF-8."""
        return np.array([len(character.encode()) for character in self.vocabulary], np.int32)

    def encode(self, text: str) -> np.ndarray:
        """(n,) uint8 ids. Raises DataError for a character outside the vocabulary."""
        return encode(text, self.vocabulary)

    def decode(self, ids: np.ndarray) -> str:
        """The text of ids. Raises DataError for an id outside the vocabulary."""
        return decode(ids, self.vocabulary)

    def bytes_of(self, ids: np.ndarray) -> bytes:
        """The same in UTF-8."""
        return self.decode(ids).encode()


def tokenizer(request: DataRequest, manifest: dict, arrays: dict[str, np.ndarray]) -> Characters:
    """The characters of prepared data. Raises DataError if their manifest does not give each its rank."""
    found = manifest.get("vocabulary")
    if not isinstance(found, dict) or not all(map(_is_character, found)) or found != (ranked := _ranked(found)):
        raise DataError(f"the manifest of {request.task} has no vocabulary of ranks; delete it and prepare it again")
    return Characters(ranked)


def smoke_tokenizer(request: DataRequest) -> Characters:
    """The characters of the text; the ids of a smoke sample follow no law of language."""
    return Characters(_ranked(SYMBOLS))


def _is_character(text: str) -> bool:
    """One, and no half of a pair, which has no form in UTF-8."""
    return len(text) == 1 and not "\ud800" <= text <= "\udfff"


def _ranked(characters: Iterable[str]) -> dict[str, int]:
    return {character: rank for rank, character in enumerate(sorted(set(characters)))}


def generate(request: DataRequest, sources: Sources, processes: int, progress: Progress) -> Generated:
    """Both splits in records of 4 096 characters; `limit` counts these.

    Raises DataError for a text that is not UTF-8, has more than 65 different characters, or too few to split.
    """
    path = sources.file(INPUT)
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 at byte {error.start}") from error
    vocabulary = _ranked(text)
    if len(vocabulary) > CHARACTERS:
        raise DataError(f"{path} has {len(vocabulary)} different characters, at most {CHARACTERS} are expected")
    if not 2 <= (cut_at := int(TRAINED_SHARE * len(text))) <= len(text) - 2:
        raise DataError(f"{path} has {len(text)} characters: too few for a training and a validation split")
    ids = encode(text, vocabulary)
    records = {"train": _records(ids[:cut_at]), "val": _records(ids[cut_at:])}
    progress("generate", 1, 1)

    def facts() -> dict:
        return {
            "version": VERSION,
            "source": SOURCE,
            "sources": sources.facts(),
            "vocabulary": vocabulary,
            "vocabulary_size": len(vocabulary),
            "text_sha256": hashlib.sha256(text.encode()).hexdigest(),
        }

    return Generated({split: examples[: request.limit] for split, examples in records.items()}, facts)


def _records(ids: np.ndarray) -> list[Example]:
    return [Example(chunk, None) for chunk in cut([ids])]


def smoke(request: DataRequest) -> dict[str, list[Example]]:
    """Characters that follow each other by a simple law, which a model can learn: the next id is up to three larger,
    uniformly, modulo 65; ln 4 nats a character."""
    rng = np.random.Generator(np.random.Philox(key=0))
    return {
        split: _records((np.cumsum(rng.integers(0, 4, size)) % CHARACTERS).astype(np.uint8))
        for split, size in SMOKE_SIZES.items()
    }


# What must hold of the stored records, and what a model has to beat.


def check(
    request: DataRequest, splits: Mapping[str, Records], facts: dict, processes: int, progress: Progress
) -> dict[str, float]:
    """Asserts that the stored ids are characters, and together the text itself where none were left out; returns, for
    both splits, characters and bytes of text, and the losses of `losses`.

    Raises DataError with the found and the expected value.
    """
    ids = {}
    for done, (name, split) in enumerate(splits.items(), 1):
        ids[name] = np.concatenate(list(checked_ids(name, split, task_spec(request).dtype, facts["vocabulary_size"])))
        progress("check", done, len(splits))
    texts = {name: decode(split_ids, facts["vocabulary"]) for name, split_ids in ids.items()}
    if request.limit is None:
        found = hashlib.sha256("".join(texts[name] for name in SIZES).encode()).hexdigest()
        if found != facts["text_sha256"]:
            raise DataError(f"{request.task}: the stored text has sha256 {found} instead of {facts['text_sha256']}")
        if not request.partial:
            _expect("characters", {name: len(ids[name]) for name in SIZES}, SIZES)
            _expect("size of the vocabulary", facts["vocabulary_size"], CHARACTERS)
    statistics = {f"{name}_tokens": float(len(ids[name])) for name in SIZES}
    statistics |= {f"{name}_text_bytes": float(len(texts[name].encode())) for name in SIZES}
    return statistics | losses(ids["train"], ids["val"], facts["vocabulary_size"])


def _expect(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise DataError(f"shakespeare_char: {what} is {found}, expected {expected}")


def losses(train: np.ndarray, val: np.ndarray, size: int) -> dict[str, float]:
    """Nats per character of guesses that were counted on `train`, each count plus one; every character but the first
    is a target once, as in the evaluation of a model.

    A model that sees one character can do no better than the bigram (2.455 nats on train, 2.482 on val).
    """
    pairs = np.ones((size, size))
    np.add.at(pairs, (train[:-1], train[1:]), 1)
    bigram = np.log(pairs / pairs.sum(axis=1, keepdims=True))
    counts = np.bincount(train, minlength=size) + 1
    unigram = np.log(counts / counts.sum())
    return {
        "val_uniform_loss": math.log(size),
        "val_unigram_loss": float(-unigram[val[1:]].mean()),
        "train_bigram_loss": float(-bigram[train[:-1], train[1:]].mean()),
        "val_bigram_loss": float(-bigram[val[:-1], val[1:]].mean()),
    }
