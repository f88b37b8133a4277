"""A small coverage-guided fuzzer: of mutated inputs those are kept, and mutated again, that reach lines which none
before has reached. So it finds its way behind one check after the other.

Fuzzer libraries (atheris, hypofuzz) are not available where the tests run, hence this one, of what Python has:
`sys.settrace`. It knows lines and no values: a check of a whole word or a checksum stops it.
"""

import random
import sys
from collections.abc import Callable, Iterable
from types import FrameType, ModuleType
from typing import Any

from tests.fuzzing import mutated

Line = tuple[str, int]


class Found(AssertionError):
    """An input that a parser does not stand; `content` is that input."""

    def __init__(self, content: bytes, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}, by the input {content!r}")
        self.content = content


def explore(
    parse: Callable[[bytes], Any], modules: Iterable[ModuleType], seeds: Iterable[bytes], tries: int
) -> list[bytes]:
    """Tries `seeds`, then mutations of what was kept; returns the inputs kept, the seeds first.

    Raises Found for an input for which `parse` raises anything: what it may raise is caught in there.
    """
    files = {module.__file__ for module in modules}
    draw, reached, corpus = random.Random(0), set[Line](), []

    def attempt(content: bytes) -> bool:
        lines = _lines(parse, content, files)
        new = not lines <= reached
        reached.update(lines)
        return new

    for content in seeds:
        attempt(content)
        corpus.append(content)
    for _ in range(tries):
        # The newest input stands where nobody has been: half of the tries begin there.
        content = mutated(draw, corpus[-1] if draw.random() < 0.5 else draw.choice(corpus))
        if attempt(content):
            corpus.append(content)
    return corpus


def _lines(parse: Callable[[bytes], Any], content: bytes, files: set[str | None]) -> set[Line]:
    """The lines of these files that run while `content` is parsed."""
    found = set[Line]()

    def of_frame(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            found.add((frame.f_code.co_filename, frame.f_lineno))
        return of_frame

    def of_call(frame: FrameType, event: str, _: Any) -> Any:
        return of_frame if frame.f_code.co_filename in files else None

    before = sys.gettrace()
    sys.settrace(of_call)
    try:
        parse(content)
    except Exception as error:
        raise Found(content, error) from error
    finally:
        sys.settrace(before)
    return found
