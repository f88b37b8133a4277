"""Fuzzing of parsers: how many inputs, how they are made of valid ones, and what must hold whatever they are.

`make test` tries a few inputs of each parser, LINREC_FAULTS=1 thousands; both the same ones in every run.
"""

import copy
import json
import os
import random
import re
import signal
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from data.errors import LONGEST, DataError
from training.errors import ConfigError

FAULTS = os.environ.get("LINREC_FAULTS") == "1"
INPUTS = 2_000 if FAULTS else 25
SECONDS, BYTES = 20, 2**26
"""Of this process, by the clock of its processor, and of memory, that one input may take."""

_SETTINGS = settings(
    max_examples=INPUTS,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[*HealthCheck],  # pyright: ignore[reportArgumentType]  it iterates over its members
)


def fuzzed(test: Callable) -> Callable:
    """A test of one parser, which is `given` its inputs."""
    return pytest.mark.timeout(3_600 if FAULTS else 300)(_SETTINGS(test))


class Endless(BaseException):
    """A parser has not ended; nothing in it catches this."""


@contextmanager
def refusing(*expected: type[Exception]) -> Iterator[None]:
    """What a user must be able to rely on: the block ends well, or in one of the `expected` errors, ours on one line;
    it takes neither long nor much memory. Whatever else happens fails the test."""

    def ring(*_: object) -> None:
        raise Endless

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    tracemalloc.start()
    try:
        yield
    except expected as error:
        if isinstance(error, DataError | ConfigError):
            said = str(error)
            assert said.isprintable()
            assert 0 < len(said) < LONGEST + 10
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert peak < BYTES, f"{peak:,} bytes were taken"


# Inputs made of valid ones.

TOKENS = (
    *(
        b"\0",
        b"\n",
        b"\r\n",
        b"\t",
        b" ",
        b'"',
        b"'",
        b",",
        b";",
        b":",
        b"=",
        b"(",
        b")",
        b"[",
        b"{",
        b"}",
        b"/",
        b"\\",
    ),
    *(b"\xff", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0", b"\xed\xa0\x80", b"\xc2\x85"),
    *(b"-1", b"0", b"1e999", b"-1e308", b"NaN", b"Infinity", b"null", b"true", b"9" * 30, b"9" * 400, b"9" * 5_000),
    *(b"../", b"/etc/passwd", b"[" * 2_000, b"\\ud800", "\u2028٣".encode(), b"%s", b"<|endoftext|>", b"#"),
)
"""What parsers stumble over: ends, numbers out of range, quotation, names that lead elsewhere."""

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 10**400, 0.5, -0.0, 1e308, float("inf"), float("nan")),
    *("", "x", "\n", "../x", "/etc/passwd", "\0", "\ud800", "9" * 400, "a" * 5_000, [], [[]], {}, [0], {"": 0}),
)
"""What stands in JSON in place of something else."""


def mutated(draw: random.Random, content: bytes) -> bytes:
    """`content` with one to five edits: bits, bytes, slices and numbers that are other ones, gone, or there twice."""
    found = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 1, 2, 5))):
        size = len(found)
        start = draw.randrange(size + 1)
        stop = min(size, start + draw.choice((1, 1, 2, 4, 8, 64, 512, size)))
        piece = bytes(found[start:stop])
        match draw.randrange(9):
            case 0 if start < size:
                found[start] ^= 1 << draw.randrange(8)
            case 1 if start < size:
                found[start] = draw.randrange(256)
            case 2:
                del found[start:]
            case 3:
                del found[start:stop]
            case 4:
                found[start:start] = piece
            case 5:
                place = draw.randrange(size + 1)
                found[place : place + len(piece)] = piece
            case 6:
                found[start:start] = draw.choice(TOKENS)
            case 7:
                found[start:stop] = draw.choice(TOKENS)
            case 8 if numbers := list(re.finditer(rb"[0-9]+", found)):
                number = draw.choice(numbers)
                found[number.start() : number.end()] = draw.choice((b"-1", b"0", b"9" * 10, b"9" * 30, b"9" * 5_000))
            case _:
                found += piece
    return bytes(found)


def altered(draw: random.Random, value: Any) -> Any:
    """A JSON value with one to three of its parts exchanged, gone, twice there, or of another kind."""
    root = [copy.deepcopy(value)]
    for _ in range(draw.choice((1, 1, 2, 3))):
        places = list(_places(root))
        group, key = draw.choice(places)
        other_group, other_key = draw.choice(places)
        match draw.randrange(5):
            case 0 if group is not root:
                del group[key]
            case 1:
                group[key] = copy.deepcopy(other_group[other_key])
            case 2 if isinstance(group, dict):
                group[draw.choice(("", "\n", "../x", "\ud800", "unknown", str(other_key)))] = group.pop(key)
            case 3 if isinstance(group[key], list | str):
                group[key] = group[key] * draw.choice((0, 2, 40))
            case _:
                group[key] = copy.deepcopy(draw.choice(VALUES))
    return root[0]


def _places(group: Any) -> Iterator[tuple[Any, Any]]:
    """Every (dict, key) and (list, place) below."""
    for key in list(group) if isinstance(group, dict) else range(len(group)):
        yield group, key
        if isinstance(group[key], dict | list):
            yield from _places(group[key])


_DRAWS = st.integers(0, 2**32 - 1).map(random.Random)


def bytes_like(*valid: bytes) -> st.SearchStrategy[bytes]:
    """Any bytes, and valid contents that were mutated."""
    return st.one_of(st.builds(mutated, _DRAWS, st.sampled_from(valid)), st.binary(max_size=300))


def json_like(*valid: Any) -> st.SearchStrategy[bytes]:
    """JSON texts whose values were altered, and others that were mutated."""
    texts = [json.dumps(value).encode() for value in valid]
    return st.one_of(
        st.builds(lambda draw, value: json.dumps(altered(draw, value)).encode(), _DRAWS, st.sampled_from(valid)),
        bytes_like(*texts),
    )


def text_like(*valid: str) -> st.SearchStrategy[str]:
    """Texts that were mutated; whatever is no UTF-8 stands as the command line would give it."""
    contents = bytes_like(*(text.encode() for text in valid))
    return st.one_of(contents.map(lambda content: content.decode("utf-8", "surrogateescape")), st.text(max_size=100))
