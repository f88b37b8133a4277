"""ListOps from the published files of Long Range Arena (Tay et al., arXiv:2011.04006), in place of the expressions that
`data.listops` draws: basic_{train,val,test}.tsv, a header, then an expression and its value in each line.

The files were drawn without a seed, so they can only be read. Nothing in them is believed: every expression is
evaluated, and must be the left-nested form of what it says.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from data.errors import DataError
from data.examples import Example, Generated
from data.lines import numbered_lines, without_line_end
from data.listops_law import EOS, SPECIALS, TOKENS, VOCABULARY, evaluate, raw_form, tokenize_raw
from data.parallel import Progress
from data.sources import SourceFile, Sources
from data.spec import DataRequest
from data.stored import expect_count

VERSION = "1.0.0"
SIZES = {"train": 96_000, "val": 2_000, "test": 2_000}
OFFICIAL_WINDOW = (500, 2000)
HEADER = "Source\tTarget"
LONGEST_LINE = 1 << 20
REPORT_EVERY = 1_000
_FOLDER = "https://storage.cloud.google.com/long-range-arena/lra_release/listops-1000/"

FILES = {
    split: SourceFile(f"basic_{split}.tsv", (f"{_FOLDER}basic_{split}.tsv",)) for split in ("train", "val", "test")
}


def sources(request: DataRequest) -> tuple[SourceFile, ...]:
    """The three files, which lie in listops-1000 of the release."""
    return tuple(FILES.values())


def generate(request: DataRequest, sources: Sources, processes: int, progress: Progress) -> Generated:
    """The three splits, each in the order of its file; one line is in memory.

    Raises DataError, with file and line, for an expression that is none, has an unknown token, a length outside the
    window or another value than its label, and for a file with more or fewer lines than the published one.
    """
    facts = {"version": VERSION, "source": "Long Range Arena release, listops-1000", "vocabulary": VOCABULARY}
    splits: dict[str, Iterable[Example]] = {
        split: itertools.islice(_examples(request, split, sources, progress), request.limit) for split in FILES
    }

    def with_sources() -> dict[str, Any]:
        return {**facts, "sources": sources.facts()}

    return Generated(splits, with_sources)


def _examples(request: DataRequest, split: str, sources: Sources, progress: Progress) -> Iterator[Example]:
    path, number = sources.file(FILES[split]), 0
    with path.open("rb") as file:
        lines = numbered_lines(path.name, file, LONGEST_LINE)
        _, header = next(lines, (1, ""))
        if without_line_end(header) != HEADER:
            raise DataError(f"{path.name} line 1 is {header[:40]!r}, expected {HEADER!r}")
        for number, line in lines:
            yield example(f"{path.name} line {number}", without_line_end(line), request)
            if number % REPORT_EVERY == 0:
                progress(f"read {split}", min(number, SIZES[split]), SIZES[split])
    expect_count(request, f"expressions in {path.name}", max(number - 1, 0), SIZES[split])


def example(where: str, line: str, request: DataRequest) -> Example:
    """The record of one line. Raises DataError, which begins with `where`, as `generate` says."""
    source, *targets = line.split("\t")
    if len(targets) != 1:
        raise DataError(f"{where} has {1 + len(targets)} fields between tabs, expected 2")
    ids = _ids(where, source)
    low, high = request.length_window or OFFICIAL_WINDOW
    if not low < len(ids) < high:
        raise DataError(f"{where} has a length of {len(ids)}, expected {low} < length < {high}")
    (value,) = evaluate(ids + bytes([EOS]))
    if value is None or raw_form(ids).split() != source.split():
        raise DataError(f"{where} is not a ListOps expression in left-nested brackets")
    if targets[0] != str(value):
        raise DataError(f"{where} has label {targets[0][:20]!r}, the value of its expression is {value}")
    return Example(np.frombuffer(ids + bytes([EOS]), np.uint8), value)


def _ids(where: str, source: str) -> bytes:
    known = {*TOKENS[len(SPECIALS) :], "]", "(", ")"} - {"X"}
    if unknown := next((token for token in source.split() if token not in known), None):
        raise DataError(f"{where} has the unknown token {unknown[:20]!r}")
    return tokenize_raw(source)
