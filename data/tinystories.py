"""TinyStories (Eldan and Li, arXiv:2305.07759), version 1: short stories by GPT-3.5 and GPT-4 as GPT-2 byte pairs.

tinystories         the official training and validation files
tinystories_small   the validation file alone, the first 90 % of its stories as the training split and the rest as the
                    validation split: for small runs, never to be reported as TinyStories

vocab     see `data.byte_pairs`. packing, see also `data.windows`:
separated   end-of-text after every story; one stream, in the order of the file; stored in records of 4 096 ids
published   nothing between stories; a segment and a record for every 1 000 stories

There is no test split. Every story is encoded for itself. A limit counts stories, and the vocabulary is then that of
these stories.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from data.byte_pairs import (
    BYTES,
    ENCODER_JSON,
    GPT2_SIZE,
    TOP_SIZE,
    VOCAB_BPE,
    Tokenizer,
    Vocab,
    choose,
    read_tokens,
)
from data.errors import DataError
from data.examples import About, Choice, Example, Generated
from data.parallel import Progress, ordered_map
from data.sources import SourceFile, Sources
from data.spec import DataRequest, InputKind, TaskKind, TaskSpec
from data.splits import Records
from data.story_files import Block, blocks, stories, story_starts
from data.windows import Packing, checked_ids, choice, cut

VERSION = "1.0.0"
SOURCE = "roneneldan/TinyStories (Hugging Face), version 1 text files"
_FOLDER = "https://huggingface.co/datasets/roneneldan/TinyStories/resolve/f54c09fd23315a6f9c86f9dc80f725de7d8f9c64/"
TRAIN = SourceFile(
    "TinyStories-train.txt",
    (_FOLDER + "TinyStories-train.txt",),
    sha256="c5cf5e22ff13614e830afbe61a99fbcbe8bcb7dd72252b989fa1117a368d401f",
    bytes=1_924_281_556,
)
VALID = SourceFile(
    "TinyStories-valid.txt",
    (_FOLDER + "TinyStories-valid.txt",),
    sha256="94e431816c4cce81ff71e4408ff8d3bda9a42e8d2663986697c3954288cb38b4",
    bytes=19_447_282,
)
SMALL = "tinystories_small"
TRAINED_SHARE = 0.9
LENGTH = 512
GROUP = 1_000  # stories of a segment in the published runs
# Rows of the published table of the same texts. It may count empty stories, which the files do not tell, hence a band.
STORIES = {"train": 2_119_719, "val": 21_990}
STORIES_BAND = 0.001
DTYPE = np.uint16

_CHOICES = {
    "vocab": Choice(tuple(vocab.value for vocab in Vocab), stored=True),
    "packing": Choice(tuple(packing.value for packing in Packing), stored=True),
}
CHOICES = {"tinystories": _CHOICES, SMALL: _CHOICES}


def sources(request: DataRequest) -> tuple[SourceFile, ...]:
    """The texts and the byte pairs."""
    texts = (VALID,) if request.task == SMALL else (TRAIN, VALID)
    return (*texts, VOCAB_BPE, ENCODER_JSON)


def about(request: DataRequest) -> About:
    """Two bytes a token."""
    download = sum(source.bytes for source in sources(request))
    return About(SOURCE, "CDLA-Sharing-1.0", download, 10_000_000 if request.task == SMALL else 960_000_000)


def task_spec(request: DataRequest) -> TaskSpec:
    """Windows of 512 tokens. How many ids `used` has is known when the data are prepared (`vocabulary_size` in their
    manifest); until then all of GPT-2's count.

    Raises DataError for an unknown vocabulary or packing, or a length window: a text has no records to choose from.
    """
    if request.length_window is not None:
        raise DataError(f"{request.task} has no length window: it is one text")
    choice(request, "packing", Packing)
    size = TOP_SIZE if choice(request, "vocab", Vocab) is Vocab.TOP10K else GPT2_SIZE
    return TaskSpec(request.name, TaskKind.LANGUAGE, InputKind.TOKENS, size, LENGTH, size, dtype=np.dtype(DTYPE).name)


def segments(request: DataRequest, offsets: np.ndarray) -> np.ndarray:
    """Where windows may not cross, from the offsets of the stored records."""
    return offsets if choice(request, "packing", Packing) is Packing.PUBLISHED else offsets[[0, -1]]


def tokenizer(request: DataRequest, manifest: dict, arrays: dict[str, np.ndarray]) -> Tokenizer:
    """The byte pairs that came with prepared data. Raises DataError if they lack an array."""
    try:
        return Tokenizer.from_arrays(arrays)
    except KeyError as error:
        raise DataError(
            f"the data of {request.task} have no array {error}; delete them and prepare them again"
        ) from error


# Generation: find the stories, count their tokens if the vocabulary needs that, encode them.


@dataclass(frozen=True)
class _Encode:
    """What a process needs to encode a block. vocabulary: int32 GPT-2 ids, as bytes."""

    files: tuple[Path, Path]
    vocabulary: bytes
    separated: bool

    def __call__(self, block: Block) -> tuple[np.ndarray, int]:
        """The ids of a block and the bytes of its text. Raises DataError for a token outside the vocabulary."""
        tokenizer = _tokenizer(self.files, self.vocabulary)
        pieces, text_bytes = [], 0
        for story in stories(block):
            pieces.append(tokenizer.gpt2_ids(story))
            text_bytes += len(story.encode())
            if self.separated:
                pieces.append([len(tokenizer.tokens)])
        ids = tokenizer.renumber(np.concatenate(pieces))  # a block at a time: arrays as small as a story take longer
        if (found := int(tokenizer.token_bytes[ids].sum())) != text_bytes:
            raise DataError(f"{block.path}: {text_bytes} bytes from byte {block.start} became ids of {found} bytes")
        return ids, text_bytes


@lru_cache(maxsize=1)
def _tokenizer(files: tuple[Path, Path], vocabulary: bytes) -> Tokenizer:
    return Tokenizer(read_tokens(*files), np.frombuffer(vocabulary, np.int32))


def _count(block: Block, files: tuple[Path, Path]) -> np.ndarray:
    """How often each GPT-2 id occurs in a block."""
    tokens = read_tokens(*files)
    tokenizer = _tokenizer(files, np.arange(len(tokens) + 1, dtype=np.int32).tobytes())
    ids = [tokenizer.gpt2_ids(story) for story in stories(block)]
    return np.bincount(np.concatenate(ids), minlength=len(tokens) + 1)


def generate(request: DataRequest, sources: Sources, processes: int, progress: Progress) -> Generated:
    """Both splits, encoded block by block in the order of the file.

    Raises DataError for a text without stories or not in UTF-8, or damaged files of byte pairs.
    """
    vocab, packing = choice(request, "vocab", Vocab), choice(request, "packing", Packing)
    files = sources.file(VOCAB_BPE), sources.file(ENCODER_JSON)
    jobs = _jobs(request, sources, progress)
    separated = packing is Packing.SEPARATED
    tokenizer = Tokenizer(read_tokens(*files), _vocabulary(vocab, jobs, files, separated, processes, progress))
    encode = _Encode(files, tokenizer.vocabulary.tobytes(), separated)
    met = {"stories": {split: sum(job.count for job in jobs[split]) for split in jobs}, "tokens": {}, "text_bytes": {}}

    def encoded(split: str) -> Iterator[np.ndarray]:
        met["tokens"][split] = met["text_bytes"][split] = 0
        for done, (ids, text_bytes) in enumerate(ordered_map(encode, jobs[split], processes), 1):
            met["tokens"][split] += len(ids)
            met["text_bytes"][split] += text_bytes
            progress(f"encode {split}", done, len(jobs[split]))
            yield ids

    def records(split: str) -> Iterator[Example]:
        for values in cut(encoded(split)) if separated else encoded(split):
            yield Example(values, None)

    def facts() -> dict:
        return {
            "version": VERSION,
            "source": SOURCE,
            "sources": sources.facts(),
            "vocabulary_size": len(tokenizer.vocabulary),
            "end_of_text": tokenizer.end_of_text,
            **met,
        }

    return Generated({split: records(split) for split in jobs}, facts, tokenizer.arrays)


def _jobs(request: DataRequest, sources: Sources, progress: Progress) -> dict[str, list[Block]]:
    if request.task == SMALL:
        path = sources.file(VALID)
        starts = story_starts(path, None, progress)
        count = len(starts) - 1
        ranges = {"train": (0, int(TRAINED_SHARE * count)), "val": (int(TRAINED_SHARE * count), count)}
        if not 1 <= ranges["train"][1] < count:
            raise DataError(f"{path} holds {count} stories: too few for a training and a validation split")
        placed = {split: (path, starts, *bounds) for split, bounds in ranges.items()}
    else:
        placed = {}
        for split, source in {"train": TRAIN, "val": VALID}.items():
            path = sources.file(source)
            starts = story_starts(path, request.limit, progress)
            placed[split] = path, starts, 0, len(starts) - 1
    return {
        split: blocks(path, starts, first, min(stop, first + (request.limit or stop)), GROUP)
        for split, (path, starts, first, stop) in placed.items()
    }


def _vocabulary(
    vocab: Vocab,
    jobs: dict[str, list[Block]],
    files: tuple[Path, Path],
    separated: bool,
    processes: int,
    progress: Progress,
) -> np.ndarray:
    """The GPT-2 id of each id; the training split is counted where that matters, validation only for `used`."""
    counted = {Vocab.GPT2: (), Vocab.TOP10K: ("train",), Vocab.USED: ("train", "val")}[vocab]
    size = len(read_tokens(*files)) + 1
    counts = {split: np.zeros(size, np.int64) for split in jobs}
    for split in counted:
        for done, found in enumerate(ordered_map(partial(_count, files=files), jobs[split], processes), 1):
            counts[split] += found
            progress(f"count {split}", done, len(jobs[split]))
        if separated:
            counts[split][-1] = sum(job.count for job in jobs[split])
    return choose(vocab, counts["train"], counts["val"])


# A sample without any file.

SMOKE_STORIES = {"train": 400, "val": 100}
_NAMES = ("Lily", "Tom", "Mia", "Ben", "Zoë")
_PLACES = ("the park", "the river", "a big tree", "the old house")
_THINGS = ("a red ball", "a small dog", "a shiny stone", "a lost shoe")


def smoke(request: DataRequest) -> dict[str, list[Example]]:
    """Small stories, byte by byte in ids of the vocabulary: a text that needs no merges, for a model of full width."""
    separated = choice(request, "packing", Packing) is Packing.SEPARATED
    # The 256 bytes have the same places with all 50 000 merges as with none.
    end_of_text = _smoke_end_of_text(request)
    first = 1 if end_of_text == 0 else 0
    ids_of_bytes = (np.argsort(np.frombuffer(BYTES, np.uint8)) + first).astype(DTYPE)
    rng = np.random.Generator(np.random.Philox(key=0))
    splits = {}
    for split, count in SMOKE_STORIES.items():
        texts = [ids_of_bytes[np.frombuffer(_story(rng).encode(), np.uint8)] for _ in range(count)]
        if separated:
            texts = [np.append(text, DTYPE(end_of_text)) for text in texts]
            records = cut(texts)
        else:
            records = (np.concatenate(texts[half::2]) for half in range(2))
        splits[split] = [Example(values, None) for values in records]
    return splits


def smoke_token_bytes(request: DataRequest) -> np.ndarray:
    """(V,) int32: one byte for every id that occurs in the sample but end-of-text, which has none."""
    spec = task_spec(request)
    return np.where(np.arange(spec.classes) == _smoke_end_of_text(request), 0, 1).astype(np.int32)


def _smoke_end_of_text(request: DataRequest) -> int:
    return 0 if choice(request, "vocab", Vocab) is Vocab.TOP10K else GPT2_SIZE - 1


def _story(rng: np.random.Generator) -> str:
    name, place, thing = (words[rng.integers(len(words))] for words in (_NAMES, _PLACES, _THINGS))
    return f"One day, {name} went to {place}. There was {thing}.\n\n“I like {thing},” said {name}."


def smoke_tokenizer(request: DataRequest) -> Tokenizer:
    """Bytes in ids of the vocabulary. The other ids, which do not occur in a smoke sample, stand for no text."""
    vocab = choice(request, "vocab", Vocab)
    unknown = np.zeros(GPT2_SIZE, np.int64)
    chosen = choose(Vocab.TOP10K if vocab is Vocab.TOP10K else Vocab.GPT2, unknown, unknown)
    return Tokenizer((*(bytes([byte]) for byte in BYTES), *[b""] * (GPT2_SIZE - 1 - len(BYTES))), chosen)


# What must hold of the stored records.


def check(
    request: DataRequest, splits: Mapping[str, Records], facts: dict, processes: int, progress: Progress
) -> dict[str, float]:
    """Asserts that the stored ids are those of the vocabulary, as many as were encoded, with one end-of-text for each
    story at its place or none; of the official files also the number of stories.

    Returns, for both splits, stories, tokens and bytes of text, and on val the nats per token of two guesses: all ids
    alike, and their shares in train with each count plus one. Raises DataError with the found and the expected value.
    """
    size, separated = facts["vocabulary_size"], choice(request, "packing", Packing) is Packing.SEPARATED
    counts = {}
    for done, (name, split) in enumerate(splits.items(), 1):
        counts[name] = np.zeros(size, np.int64)
        last = None
        for last in checked_ids(name, split, np.dtype(DTYPE).name, size):
            counts[name] += np.bincount(last, minlength=size)
        _check_split(name, split, counts[name], last, facts, separated=separated)
        progress("check", done, len(splits))
    if request.task != SMALL and request.limit is None and not request.partial:
        _check_stories(facts["stories"])
    shares = (counts["train"] + 1) / (counts["train"] + 1).sum()
    statistics = {
        f"{name}_{what}": float(facts[what][name]) for what in ("stories", "tokens", "text_bytes") for name in STORIES
    }
    statistics["val_uniform_loss"] = math.log(size)
    statistics["val_unigram_loss"] = float(-(counts["val"] @ np.log(shares)) / counts["val"].sum())
    return statistics


def _check_split(
    name: str, split: Records, counts: np.ndarray, last: np.ndarray | None, facts: dict, *, separated: bool
) -> None:
    tokens, told = facts["tokens"][name], facts["stories"][name]
    if counts.sum() != tokens:
        raise DataError(f"{name}: {counts.sum()} stored tokens, expected {tokens}")
    ends = 0 if facts["end_of_text"] is None else int(counts[facts["end_of_text"]])
    if ends != (told if separated else 0):
        raise DataError(f"{name}: {ends} ends of text for {told} stories")
    if separated and (last is None or last[-1] != facts["end_of_text"]):
        raise DataError(f"{name}: the last story has no end")
    if not separated and len(split) != math.ceil(told / GROUP):
        raise DataError(f"{name}: {len(split)} groups, expected {math.ceil(told / GROUP)} of {told} stories")


def _check_stories(found: dict[str, int]) -> None:
    for name, expected in STORIES.items():
        if abs(found[name] - expected) > STORIES_BAND * expected:
            raise DataError(f"tinystories: {found[name]} stories in {name}, expected {expected} ± {STORIES_BAND:.1%}")
