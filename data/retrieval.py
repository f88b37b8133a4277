"""Pairs of papers from the ACL Anthology Network: does one cite the other (1) or not (0)? (Radev et al., Language
Resources and Evaluation 47, 2013; a task of Long Range Arena, Tay et al., arXiv:2011.04006.)

Two documents of at most 4000 characters each, <eos> included, read with one vocabulary: all characters of both columns
of the training pairs, 98 entries. The files have five columns between tabs and no header: label (a float), two numbers
of papers, two texts. Two ways to read them:

plain  a quotation mark is a character like any other, as Long Range Arena's own code reads them
csv    quotation marks around a field are taken off, and may hold tabs and line feeds, as S4 and S5 read them
"""

import csv
import io
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from data.errors import DataError
from data.examples import About, Choice, Example, Generated
from data.lines import numbered_lines, without_line_end
from data.parallel import Progress
from data.sources import Limits, SourceFile, Sources
from data.spec import DataRequest, InputKind, TaskKind, TaskSpec
from data.splits import Records
from data.stored import check_document, check_examples, check_vocabulary, expect_count, refuse_window
from data.vocabulary import SPECIALS, character_encoder, character_vocabulary, random_document

VERSION = "1.0.0"
RELEASE = SourceFile(
    "lra_release.gz",
    ("https://storage.googleapis.com/long-range-arena/lra_release.gz",),
    root="lra_release",
    aliases=("lra_release.tar.gz",),
)
LIMITS = Limits(member_bytes=1 << 34, count=1, total_bytes=1 << 36)
FILES = {"train": "train", "val": "eval", "test": "test"}
SIZES = {"train": 147_086, "val": 18_090, "test": 17_437}
SMOKE_SIZES = {"train": 256, "val": 64, "test": 64}
LENGTH = 4000
MIN_FREQ = 1
OFFICIAL_VOCABULARY = INPUT_WIDTH = 98
CLASSES = 2
LONGEST_LINE = 1 << 26
"""Bytes; whole papers are far below."""
COLUMNS = 5
REPORT_EVERY = 1_000

CHOICES = {"retrieval": {"quoting": Choice(("plain", "csv"), stored=True)}}


class Pair(NamedTuple):
    """Two documents, and whether they belong together."""

    first: str
    second: str
    label: int


def sources(request: DataRequest) -> tuple[SourceFile, ...]:
    """The release of Long Range Arena; of it only tsv_data/new_aan_pairs.{train,eval,test}.tsv is read."""
    return (RELEASE,)


def about(request: DataRequest) -> About:
    """Sizes are estimates: the release has no published size."""
    licence = (
        "full texts of papers: the release allows redistribution of their numbers only; do not pass prepared files on"
    )
    return About("ACL Anthology Network, in the release of Long Range Arena", licence, 8_200_000_000, 1_500_000_000)


def task_spec(request: DataRequest) -> TaskSpec:
    """Two documents of 4000 steps. Raises DataError for a length window."""
    refuse_window(request)
    return TaskSpec(request.name, TaskKind.PAIRS, InputKind.TOKENS, INPUT_WIDTH, LENGTH, CLASSES)


def generate(request: DataRequest, sources: Sources, processes: int, progress: Progress) -> Generated:
    """One pass over the training pairs for the vocabulary, then one over each split; one pair is in memory.

    The vocabulary is that of all training pairs, whatever the limit. Raises DataError for a line that is not a pair
    (with file and line), and for another number of pairs or of characters.
    """
    documents = itertools.chain.from_iterable(pair[:2] for pair in _pairs(request, sources, "train", progress))
    vocabulary = character_vocabulary(documents, LENGTH, MIN_FREQ)
    check_vocabulary(request, vocabulary, OFFICIAL_VOCABULARY, INPUT_WIDTH)
    encode = character_encoder(vocabulary, LENGTH)

    def examples(split: str) -> Iterator[Example]:
        for pair in itertools.islice(_pairs(request, sources, split, progress), request.limit):
            yield Example(encode(pair.first), pair.label, encode(pair.second))

    def facts() -> dict[str, Any]:
        named = {"version": VERSION, "source": RELEASE.name, "vocabulary": vocabulary}
        return {**named, "quoting": _quoting(request), "sources": sources.facts()}

    return Generated({split: examples(split) for split in SIZES}, facts)


def _quoting(request: DataRequest) -> str:
    return dict(request.choices).get("quoting", CHOICES["retrieval"]["quoting"].values[0])


def _pairs(request: DataRequest, sources: Sources, split: str, progress: Progress) -> Iterator[Pair]:
    """The pairs of one file. Raises DataError if there are none or, of the official file, more or fewer than known."""
    quoting, number = _quoting(request), 0
    for number, (where, fields) in enumerate(READERS[quoting](_lines(sources, split)), 1):
        yield _pair(where, fields)
        if number % REPORT_EVERY == 0:
            progress(f"read {split}", min(number, SIZES[split]), SIZES[split])
    other = next(way for way in READERS if way != quoting)
    what = f"pairs in {split}, read with quoting={quoting} (the other way: quoting={other})"
    expect_count(request, what, number, SIZES[split])


def _lines(sources: Sources, split: str) -> Iterator[tuple[str, str]]:
    """Yields ("file line number", line with its end)."""
    pattern = re.compile(rf"(?:[^/]+/)*tsv_data/new_aan_pairs\.{FILES[split]}\.tsv")
    for name, file in sources.streams(RELEASE, pattern, LIMITS):
        for number, line in numbered_lines(name, file, LONGEST_LINE):
            yield f"{name} line {number}", line


Rows = Iterator[tuple[str, list[str]]]
"""Where a row stands, and its fields."""


def read_plain(lines: Iterator[tuple[str, str]]) -> Rows:
    """A row is a line, a field ends at a tab."""
    for where, line in lines:
        yield where, without_line_end(line).split("\t")


def read_csv(lines: Iterator[tuple[str, str]]) -> Rows:
    """A field that begins with a quotation mark ends at the next one that is not doubled. A row is named by its last
    line. Raises DataError for a field that does not end."""
    where, ended = "", False

    def parts() -> Iterator[str]:
        nonlocal where, ended
        for where, line in lines:  # noqa: B007  the row's place, for its consumer
            yield from io.StringIO(line, newline="")  # a lone CR ends a line here, as it does for the published reader
        ended = True

    csv.field_size_limit(LONGEST_LINE)  # there is but one limit for the process; the default, 2^17, would cut papers
    rows = csv.reader(parts(), delimiter="\t")
    try:
        for row in rows:
            if ended:  # a row that ends with its line does not look for another
                raise DataError(f"{where} ends the file within quotation marks")
            yield where, row
    except csv.Error as error:
        raise DataError(f"{where} cannot be read with quoting=csv: {error}") from error


READERS: dict[str, Callable[[Iterator[tuple[str, str]]], Rows]] = {"plain": read_plain, "csv": read_csv}


def _pair(where: str, fields: list[str]) -> Pair:
    if len(fields) != COLUMNS:
        raise DataError(f"{where} has {len(fields)} fields between tabs, expected {COLUMNS}")
    label, _, _, first, second = fields
    try:
        value = float(label)
    except ValueError:
        value = -1.0
    if value not in (0.0, 1.0):
        raise DataError(f"{where} has label {label[:20]!r}, expected 0.0 or 1.0")
    return Pair(first, second, int(value))


def check(
    request: DataRequest,
    splits: Mapping[str, Records],
    facts: dict[str, Any],
    processes: int,
    progress: Progress,
) -> dict[str, float]:
    """Asserts the ids of both documents of every record and, of the official files, the counts and the 98 entries.

    Raises DataError with the record, or the found and the expected number.
    """
    spec, entries = task_spec(request), len(facts["vocabulary"])
    check_vocabulary(request, facts["vocabulary"], OFFICIAL_VOCABULARY, INPUT_WIDTH)
    check_values = partial(check_document, spec=spec, entries=entries)
    statistics, _ = check_examples(request, spec, SIZES, splits, check_values, progress)
    return {"vocabulary_size": float(entries), **statistics}


def smoke(request: DataRequest) -> dict[str, list[Example]]:
    """Pairs of random characters, random labels."""
    rng = np.random.Generator(np.random.Philox(0))
    characters = range(len(SPECIALS), INPUT_WIDTH)

    def draw() -> Example:
        first, second = (random_document(rng, characters, LENGTH) for _ in range(2))
        return Example(first, int(rng.integers(CLASSES)), second)

    return {split: [draw() for _ in range(size)] for split, size in SMOKE_SIZES.items()}
