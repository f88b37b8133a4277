"""Parsers that are wholly ours, under the coverage-guided fuzzer of `guided`; and that it is one."""

import io
import json
import random
import sys

import guided
import pytest
from fake_speech import format_chunk, riff
from fuzzing import FAULTS, mutated, refusing
from intact_files import IDX, LIMITS, LINES, LISTED, NAMES, PAIRS, REQUEST, ROWS, TARS, TREE, npy, npz

from configs import argument
from data import (
    archives,
    arrays,
    lines,
    listops_law,
    listops_release,
    mnist,
    pathfinder_release,
    retrieval,
    strict_json,
    wav,
)
from data.errors import DataError
from scripts import sweep_plan
from training import writers
from training.errors import ConfigError

TRIES = 5_000 if FAULTS else 150


def read_tar(content):
    stream = archives.Unpacked.__new__(archives.Unpacked)
    stream.name, stream.last, stream._file = "a.tar", b"", io.BytesIO(content)  # pyright: ignore[reportAttributeAccessIssue]
    stream._total_bytes, stream._position, stream._header_left = LIMITS.total_bytes, 0, archives.HEADER_BYTES
    for info in archives._headers(stream):
        archives._checked(info, NAMES, LIMITS, "a.tar")


def read_pairs(reader):
    def parse(content):
        found = lines.numbered_lines("a.tsv", io.BytesIO(content), 10_000)
        for where, fields in reader((str(number), line) for number, line in found):
            retrieval._pair(where, fields)

    return parse


def text(content):
    return content.decode("utf-8", "surrogateescape")


PARSERS = {
    "wav": (lambda content: wav.read_wav(content, "a.wav"), [wav], [riff(format_chunk(), (b"data", b"\1\0"))]),
    "idx": (lambda content: mnist._parse_idx("a", io.BytesIO(content), mnist.LABELS_MAGIC, ()), [mnist], [IDX]),
    "npy": (lambda content: arrays.parse_npy(content, "a.npy"), [arrays], [npy(LISTED)]),
    "npz": (lambda content: arrays.parse_npz(content, "a.npz"), [arrays], [npz()]),
    "list of images": (lambda content: pathfinder_release.parse_list("a", content), [pathfinder_release], [b"a b 0 1"]),
    "tar": (read_tar, [archives], TARS),
    "expression": (
        lambda content: listops_release.example("a", text(content), REQUEST),
        [listops_release, listops_law],
        [TREE.encode()],
    ),
    "pairs, plain": (read_pairs(retrieval.read_plain), [retrieval, lines], [PAIRS]),
    "pairs, csv": (read_pairs(retrieval.read_csv), [retrieval, lines], [PAIRS]),
    "row": (writers._row, [writers, strict_json], [json.dumps(row).encode() for row in ROWS]),
    "rows": (lambda content: writers._intact_lines(content, "a"), [writers, strict_json], [LINES]),
    "json": (strict_json.parse, [strict_json], [b'{"a": [1, "x"]}']),
    "grid": (lambda content: sweep_plan.parse_grid(text(content)), [sweep_plan], [b"a=1,2; config.b.c=(1,2),(3,4)"]),
    "ranges": (lambda content: sweep_plan.draw(text(content), 2, 0), [sweep_plan], [b"a=0:0.3; b=log:1:9; c=2:6"]),
    "argument": (
        lambda content: argument.parse_argument(text(content), {"a": int, "b": tuple, "c": bool, "d": float, "e": str}),
        [argument],
        [b"a=1,b=0:3,c,d=0.5,e=x", b"b=1+2,c=true"],
    ),
}
ALSO = {"json": ValueError, "argument": ValueError}
"""Of those that are called where it is caught."""


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("name", PARSERS)
def test_no_input_breaks_a_parser(name):
    parse, modules, seeds = PARSERS[name]

    def harmless(content):
        with refusing(DataError, ConfigError, *([ALSO[name]] if name in ALSO else [])):
            parse(content)

    assert len(guided.explore(harmless, modules, seeds, TRIES)) > len(seeds)


# The fuzzer itself.


def planted(content):
    """A bug behind three checks of a byte each, which one value in sixteen passes."""
    first, second, third, *_ = (*content, 0, 0, 0)
    if first >> 4 != 0xC:
        return
    if second >> 4 != 0x1:
        return
    if third >> 4 == 0xA:
        raise LookupError("the bug")


TRIED = 15_000


def test_a_bug_behind_checks_is_found_step_by_step():
    with pytest.raises(guided.Found, match="LookupError: the bug, by the input b'") as found:
        guided.explore(planted, [sys.modules[__name__]], [b"abcd"], TRIED)
    assert [byte >> 4 for byte in found.value.content[:3]] == [0xC, 0x1, 0xA]


def test_mutation_alone_does_not_find_it():
    draw = random.Random(0)
    for _ in range(TRIED):
        planted(mutated(draw, b"abcd"))


def test_what_reaches_a_new_line_is_kept_and_nothing_else():
    kept = guided.explore(lambda content: planted(content[:2]), [sys.modules[__name__]], [b"abcd"], TRIED)
    assert [content[0] >> 4 == 0xC for content in kept] == [False, True, True]
    assert [content[1] >> 4 == 0x1 for content in kept[1:]] == [False, True]
