"""State-tracking probes: small tasks that tell what a recurrence can hold, trained on short sequences, tested on long
ones. Every step that has an answer has a label, so accuracy is known at every length.

parity, mod3, s3, a5   word problems: tokens are elements of a group (Z2, Z3, S3, A5), the label of step t is their
                       product g_1 g_2 ... g_t. Trained on 40 elements, tested on 160. Element 0 is the identity;
                       permutations are in lexicographic order, and (g h)(i) = g(h(i)).
copy                   five symbols (1 to 8), blanks (0), a sign (9) and four blanks: from the sign on the symbols are
                       asked for in order. Lengths 11 to 40 in training, to 160 in the test.
adding                 digits, two of them marked (10 + digit): one in the first half of the steps and one in the
                       second. At the end their sum is asked for. Lengths 10 to 40, tested to 160. The adding problem
                       with ten values in place of reals, so that an answer is right or wrong.

Sources: Merrill et al., arXiv:2404.08819 (word problems); Hochreiter and Schmidhuber, Neural Computation 9, 1997
(adding); Arjovsky et al., arXiv:1511.06464 (copy). Generated here; knows no files.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from data.errors import DataError
from data.examples import About, Choice, Example, Generated
from data.parallel import Progress
from data.sources import SourceFile, Sources
from data.spec import NO_LABEL, DataRequest, InputKind, TaskKind, TaskSpec
from data.splits import MemorySplit

VERSION = "1.0.0"
SEED = 0
SIZES = {"train": 32_000, "val": 1_000, "test": 1_000}
SMOKE_SIZES = {"train": 256, "val": 64, "test": 64}
TRAINED, TESTED = 40, 160
STANDARD_ERRORS = 6

BLANK, GO, SYMBOLS, COPIED = 0, 9, 8, 5
DIGITS = 10
CHOICES: dict[str, dict[str, Choice]] = {}

Record = tuple[np.ndarray, np.ndarray]
"""Tokens and labels of one sequence."""


class Probe(NamedTuple):
    """draw: a record of at most so many steps, tested ones longer. answer: its labels, found anew from its tokens."""

    tokens: int
    classes: int
    draw: Callable[[np.random.Generator, bool], Record]
    answer: Callable[[np.ndarray], np.ndarray]


# Word problems.


def cyclic(order: int) -> np.ndarray:
    """The multiplication table of Z_n."""
    return np.add.outer(np.arange(order), np.arange(order)) % order


def permutations(size: int, *, even: bool) -> list[tuple[int, ...]]:
    """All permutations of 0..size-1, or the even ones, in lexicographic order."""

    def inversions(p: tuple[int, ...]) -> int:
        return sum(a > b for a, b in itertools.combinations(p, 2))

    return [p for p in itertools.permutations(range(size)) if not even or inversions(p) % 2 == 0]


def table_of(elements: list[tuple[int, ...]]) -> np.ndarray:
    """table[g, h] = g h, the permutation i -> g(h(i))."""
    place = {element: i for i, element in enumerate(elements)}
    return np.array([[place[tuple(g[i] for i in h)] for h in elements] for g in elements])


def prefix_products(table: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """g_1 ... g_t for every t."""
    return np.array(list(itertools.accumulate(tokens.tolist(), lambda state, g: int(table[state, g]))))


def word_problem(table: np.ndarray) -> Probe:
    """The probe of a group, given by its multiplication table."""
    order = len(table)

    def draw(rng: np.random.Generator, tested: bool) -> Record:
        tokens = rng.integers(0, order, TESTED if tested else TRAINED)
        return tokens, prefix_products(table, tokens)

    return Probe(order, order, draw, lambda tokens: prefix_products(table, tokens))


# Memory.


def draw_copy(rng: np.random.Generator, tested: bool) -> Record:
    """Symbols, a delay of at least one step, the sign, blanks."""
    steps = int(rng.integers(2 * COPIED + 1, (TESTED if tested else TRAINED) + 1))
    tokens = np.zeros(steps, np.int64)
    tokens[:COPIED] = rng.integers(1, SYMBOLS + 1, COPIED)
    tokens[-COPIED] = GO
    return tokens, answer_copy(tokens)


def answer_copy(tokens: np.ndarray) -> np.ndarray:
    """The first five tokens from the sign on, as classes 0 to 7."""
    labels = np.full(len(tokens), NO_LABEL)
    (go,) = np.flatnonzero(tokens == GO)
    labels[go : go + COPIED] = tokens[:COPIED] - 1
    return labels


def draw_adding(rng: np.random.Generator, tested: bool) -> Record:
    """One mark in each half."""
    steps = int(rng.integers(10, (TESTED if tested else TRAINED) + 1))
    tokens = rng.integers(0, DIGITS, steps)
    tokens[[rng.integers(0, steps // 2), rng.integers(steps // 2, steps)]] += DIGITS
    return tokens, answer_adding(tokens)


def answer_adding(tokens: np.ndarray) -> np.ndarray:
    """The sum of the marked digits, at the last step."""
    labels = np.full(len(tokens), NO_LABEL)
    labels[-1] = (tokens[tokens >= DIGITS] - DIGITS).sum()
    return labels


PROBES: dict[str, Probe] = {
    "parity": word_problem(cyclic(2)),
    "mod3": word_problem(cyclic(3)),
    "s3": word_problem(table_of(permutations(3, even=False))),
    "a5": word_problem(table_of(permutations(5, even=True))),
    "copy": Probe(SYMBOLS + 2, SYMBOLS, draw_copy, answer_copy),
    "adding": Probe(2 * DIGITS, 2 * DIGITS - 1, draw_adding, answer_adding),
}


# A data set: see `data.registry.DataSet`.


def task_spec(request: DataRequest) -> TaskSpec:
    """40 steps in training, 160 in the test. Raises DataError for a length window: lengths are fixed."""
    if request.length_window is not None:
        raise DataError(f"{request.task} has no length window: its lengths are fixed")
    probe = PROBES[request.task]
    return TaskSpec(
        request.name, TaskKind.TAGGING, InputKind.TOKENS, probe.tokens, TRAINED, probe.classes, test_length=TESTED
    )


def about(request: DataRequest) -> About:
    """Generated here."""
    return About("generated by data/probes.py", "none needed", 0, 5_000_000)


def sources(request: DataRequest) -> tuple[SourceFile, ...]:
    """None."""
    return ()


def generate(request: DataRequest, sources: Sources, processes: int, progress: Progress) -> Generated:
    """All splits, each from a generator of its own, so that a limit keeps the first records."""
    sizes = {split: min(size, request.limit or size) for split, size in SIZES.items()}
    facts = {"version": VERSION, "source": "generated by data/probes.py", "seed": SEED}
    return Generated(_draw(request, sizes), lambda: facts, expected=sum(sizes.values()))


def smoke(request: DataRequest) -> dict[str, Iterable[Example]]:
    """The first records of the same law, made in memory."""
    return _draw(request, SMOKE_SIZES)


def _draw(request: DataRequest, sizes: dict[str, int]) -> dict[str, Iterable[Example]]:
    name = list(PROBES).index(request.task)
    return {
        split: _records(request.task, split == "test", 16 * name + number, size)
        for number, (split, size) in enumerate(sizes.items())
    }


def _records(task: str, tested: bool, stream: int, size: int) -> Iterator[Example]:
    rng = np.random.Generator(np.random.Philox(key=np.array([SEED, stream], np.uint64)))
    for _ in range(size):
        tokens, labels = PROBES[task].draw(rng, tested)
        yield Example(tokens.astype(np.uint8), labels)


def check(
    request: DataRequest, splits: Mapping[str, MemorySplit], facts: dict, processes: int, progress: Progress
) -> dict[str, float]:
    """Asserts that every stored record has the labels that its tokens ask for, and that the tokens are uniform.

    Raises DataError with the split and the record, or the found and the expected share.
    """
    statistics = {}
    for number, (name, split) in enumerate(splits.items()):
        for index in range(len(split)):
            place = slice(split.offsets[index], split.offsets[index + 1])
            if not np.array_equal(PROBES[request.task].answer(split.symbols[place]), split.labels[place]):
                raise DataError(f"{name} record {index} has labels that its tokens do not give")
        statistics |= {f"{name}_{key}": value for key, value in _statistics(request, name, split).items()}
        progress("check", number + 1, len(splits))
    return statistics


def _statistics(request: DataRequest, name: str, split: MemorySplit) -> dict[str, float]:
    """Share of the most frequent label, mean length; every drawn token must be as frequent as the others."""
    drawn = split.symbols.astype(np.int64)
    if request.task == "copy":
        drawn = drawn[(drawn != BLANK) & (drawn != GO)] - 1
        kinds = SYMBOLS
    elif request.task == "adding":
        drawn, kinds = drawn % DIGITS, DIGITS
    else:
        kinds = PROBES[request.task].tokens
    band = STANDARD_ERRORS * math.sqrt((1 - 1 / kinds) / kinds / len(drawn))
    for token, share in enumerate(np.bincount(drawn, minlength=kinds) / len(drawn)):
        if not abs(share - 1 / kinds) <= band:
            raise DataError(
                f"{request.task}: share of token {token} in {name} is {share:.6g}, "
                f"expected {1 / kinds:.6g} ± {band:.2g}"
            )
    labels = np.bincount(split.labels[split.labels != NO_LABEL])
    return {"majority_share": float(labels.max() / labels.sum()), "length_mean": float(np.diff(split.offsets).mean())}
