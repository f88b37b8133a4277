"""IMDB reviews, negative (0) or positive (1), one review a sequence (Maas et al., ACL 2011; a task of Long Range Arena,
Tay et al., arXiv:2011.04006).

text        characters, as S4 and S5 read them: a vocabulary of 135 entries learned from all 25,000 training reviews
            (characters met at least 15 times), <eos>, at most 4096 steps.
text_bytes  UTF-8 bytes, as Long Range Arena's own code reads them: id = byte + 1, no <eos>, at most 4096 steps.

The archive has no validation split. Stored is `val_from_train`: the reviews of a class in the order of their numbers,
permuted by `torch_permutation(n, 42)`; the last tenth (1,250) is validation, the rest is trained on. The stored order
is that of the permutation, negative and positive by turns; the test reviews follow their numbers in the same way.
`test_selected`, the published way, is another reading of the same records: trained on train and val, the epoch chosen
on the test split. HTML stays; the unlabelled reviews are not read.
"""

import itertools
import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from data.errors import DataError
from data.examples import About, Choice, Example, Generated
from data.parallel import Progress
from data.permutation import SPLIT_SEED, training_and_validation
from data.sources import Limits, Member, SourceFile, Sources
from data.spec import DataRequest, InputKind, TaskKind, TaskSpec
from data.splits import Records
from data.stored import check_document, check_examples, check_vocabulary, expect_count, refuse_window
from data.vocabulary import SPECIALS, character_encoder, character_vocabulary, random_document

VERSION = "1.0.0"
ARCHIVE = SourceFile(
    "aclImdb_v1.tar.gz",
    ("https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",),
    sha256="c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
    md5="7c2ac02c03563afcf9b574c7e56c153a",
    bytes=84_125_825,
    root="aclImdb",
    aliases=("aclImdb_labelled.tar.gz",),
)
LIMITS = Limits(member_bytes=1 << 20, count=50_000, total_bytes=1 << 30)
SIZES = {"train": 22_500, "val": 2_500, "test": 25_000}
SMOKE_SIZES = {"train": 256, "val": 64, "test": 64}
CLASSES = ("neg", "pos")
LENGTH = 4096
MIN_FREQ = 15
OFFICIAL_VOCABULARY = INPUT_WIDTH = 135
BYTES_WIDTH = 257

_POLICY = {"policy": Choice(("val_from_train", "test_selected"), stored=False)}
CHOICES = {"text": _POLICY, "text_bytes": _POLICY}

_REVIEW = re.compile(r"(train|test)/(neg|pos)/([0-9]{1,9})_[0-9]{1,9}\.txt")

Reviews = list[list[str]]
"""The texts of each class, in the order of their numbers."""


def sources(request: DataRequest) -> tuple[SourceFile, ...]:
    """The one archive."""
    return (ARCHIVE,)


def about(request: DataRequest) -> About:
    """Prepared is the number of ids, stored in one byte each or, for bytes, in two."""
    licence = "none stated; the authors ask to cite Maas et al. 2011"
    prepared = 64_300_000 if request.task == "text" else 128_500_000
    return About("Large Movie Review Dataset v1.0", licence, ARCHIVE.bytes, prepared)


def task_spec(request: DataRequest) -> TaskSpec:
    """4096 steps. Raises DataError for a length window."""
    refuse_window(request)
    width, dtype = (BYTES_WIDTH, "uint16") if request.task == "text_bytes" else (INPUT_WIDTH, "uint8")
    return TaskSpec(request.name, TaskKind.CLASSIFICATION, InputKind.TOKENS, width, LENGTH, len(CLASSES), dtype=dtype)


def generate(request: DataRequest, sources: Sources, processes: int, progress: Progress) -> Generated:
    """The three splits; the texts of all reviews (65 MB) are in memory, because every one of the training reviews
    counts for the vocabulary, whatever the limit.

    Raises DataError for a review that is empty, not UTF-8 or there twice, for a class without reviews, and for a
    vocabulary of another size.
    """
    reviews = _read(sources, progress)
    facts: dict[str, Any] = {"version": VERSION, "source": ARCHIVE.name, "seed": SPLIT_SEED}
    if request.task == "text_bytes":
        encode = encode_bytes
    else:
        documents = itertools.chain.from_iterable(reviews["train"])
        vocabulary = facts["vocabulary"] = character_vocabulary(documents, LENGTH, MIN_FREQ)
        check_vocabulary(request, vocabulary, OFFICIAL_VOCABULARY, INPUT_WIDTH)
        encode = character_encoder(vocabulary, LENGTH)
    splits: dict[str, Iterable[Example]] = {
        name: (Example(encode(text), label) for text, label in itertools.islice(by_turns(classes), request.limit))
        for name, classes in _with_validation(reviews).items()
    }
    return Generated(splits, lambda: {**facts, "sources": sources.facts()})


def _read(sources: Sources, progress: Progress) -> dict[str, Reviews]:
    found = {f"{split}/{name}": dict[int, str]() for split in ("train", "test") for name in CLASSES}
    for done, member in enumerate(sources.members(ARCHIVE, _REVIEW, LIMITS), 1):
        match = _REVIEW.fullmatch(member.name)
        assert match is not None
        texts, number = found[f"{match[1]}/{match[2]}"], int(match[3])
        if number in texts:
            raise DataError(f"{ARCHIVE.name}: {member.name} is the second review with the number {number}")
        texts[number] = _text(member)
        progress("read", min(done, sum(SIZES.values())), sum(SIZES.values()))
    for folder, texts in found.items():
        if not texts:
            raise DataError(f"{ARCHIVE.name}: no review <number>_<rating>.txt in {folder}")
    ordered = {folder: [texts[number] for number in sorted(texts)] for folder, texts in found.items()}
    return {split: [ordered[f"{split}/{name}"] for name in CLASSES] for split in ("train", "test")}


def _text(member: Member) -> str:
    if not member.data:
        raise DataError(f"{ARCHIVE.name}: {member.name} is empty")
    try:
        return member.data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{ARCHIVE.name}: {member.name} is not UTF-8 at byte {error.start}") from error


def _with_validation(reviews: dict[str, Reviews]) -> dict[str, Reviews]:
    """The policy `val_from_train`: each class by itself."""
    train, val = [], []
    for texts in reviews["train"]:
        trained_on, held_out = training_and_validation(len(texts))
        train.append([texts[position] for position in trained_on])
        val.append([texts[position] for position in held_out])
    return {"train": train, "val": val, "test": reviews["test"]}


def by_turns(classes: Reviews) -> Iterable[tuple[str, int]]:
    """(text, label): the first of each class, the second of each, ...; the rest of a larger class at the end."""
    for row in itertools.zip_longest(*classes):
        yield from ((text, label) for label, text in enumerate(row) if text is not None)


def encode_bytes(text: str) -> np.ndarray:
    """(n,) uint16: byte + 1 of the first 4096 bytes."""
    return np.frombuffer(text.encode("utf-8")[:LENGTH], np.uint8).astype(np.uint16) + 1


def check(
    request: DataRequest,
    splits: Mapping[str, Records],
    facts: dict[str, Any],
    processes: int,
    progress: Progress,
) -> dict[str, float]:
    """Asserts the ids of every record and, of the official archive, the reviews of each class and the 135 entries.

    Raises DataError with the record, or the found and the expected number.
    """
    spec, statistics = task_spec(request), {}
    if request.task == "text_bytes":
        check_values = _check_bytes
    else:
        entries = len(facts["vocabulary"])
        check_vocabulary(request, facts["vocabulary"], OFFICIAL_VOCABULARY, INPUT_WIDTH)
        statistics["vocabulary_size"] = float(entries)
        check_values = partial(check_document, spec=spec, entries=entries)
    met, labels = check_examples(request, spec, SIZES, splits, check_values, progress)
    for split, counts in labels.items():
        for name, count in zip(CLASSES, counts.tolist(), strict=True):
            expect_count(request, f"{name} reviews in {split}", count, SIZES[split] // len(CLASSES))
    return statistics | met


def _check_bytes(where: str, values: np.ndarray) -> None:
    if values.dtype != np.uint16 or values.ndim != 1 or not 1 <= len(values) <= LENGTH:
        raise DataError(f"{where} is {values.dtype} of shape {values.shape}, expected 1..{LENGTH} of uint16")
    if values.min() < 1 or values.max() >= BYTES_WIDTH:
        raise DataError(f"{where} has ids {values.min()}..{values.max()}, expected 1..{BYTES_WIDTH - 1}")


def smoke(request: DataRequest) -> dict[str, list[Example]]:
    """Random characters or bytes, random labels."""
    rng = np.random.Generator(np.random.Philox(SPLIT_SEED))

    def draw() -> Example:
        if request.task == "text_bytes":
            values = rng.integers(1, BYTES_WIDTH, rng.integers(1, LENGTH + 1), np.uint16)
        else:
            values = random_document(rng, range(len(SPECIALS), INPUT_WIDTH), LENGTH)
        return Example(values, int(rng.integers(len(CLASSES))))

    return {split: [draw() for _ in range(size)] for split, size in SMOKE_SIZES.items()}
