"""The ListOps language: nested list operations over digits (Nangia and Bowman, arXiv:1804.06028; the long version of
Long Range Arena, Tay et al., arXiv:2011.04006).

The law, from the root at depth 1: below depth 10 a node is an operator with probability 1/4, else a digit (uniform);
at depth 10 it is a digit. An operator node has k children, uniform on 2..10, then its operator, uniform on MIN, MAX,
MED, SM. A tree is kept if low < length < high, counting digits, operators and closing brackets. MED is the median
(even k: mean of the two middle values, truncated), SM the sum modulo 10.

Three descriptions check one another: the generator computes the label while it draws the tree, `evaluate` rewrites
the stored ids, `raw_form` and `tokenize_raw` speak the published text format.
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

CHUNK_TREES = 1_010
MAX_DEPTH = 10
MIN_CHILDREN, MAX_CHILDREN = 2, 10
OPERATOR_PROBABILITY = 0.25

# Ids as in the S4 pipeline: specials, then tokens by falling frequency, ties in ascending order. The expected
# frequencies decide (a tree has 147 closing brackets, 74 of each digit, 37 of each operator), so that the numbers are
# fixed and do not hang on the chance order of one draw.
SPECIALS = ("<pad>", "<unk>", "<eos>")
TOKENS = (*SPECIALS, "X", *"0123456789", "[MAX", "[MED", "[MIN", "[SM")
VOCABULARY = {token: number for number, token in enumerate(TOKENS)}
UNK, EOS, CLOSE, ZERO = (VOCABULARY[token] for token in ("<unk>", "<eos>", "X", "0"))
MAX, MED, MIN, SM = OPERATORS = tuple(VOCABULARY[token] for token in ("[MAX", "[MED", "[MIN", "[SM"))


# The generator.


class _TooLong(Exception):
    """The expression has reached the upper end of the window."""


@dataclass(frozen=True)
class Chunk:
    """Kept expressions (ids, closed by <eos>) with their labels, and what was drawn for them."""

    expressions: list[bytes]
    labels: list[int]
    drawn: int
    root_leaves: int
    too_long: int


def draw_chunk(index: int, *, seed: int, window: tuple[int, int], trees: int = CHUNK_TREES) -> Chunk:
    """Draws until `trees` trees are kept. A pure function: its only source is Random((seed << 32) | index).random().

    A tree is given up when a node opens at a length of `high` or more.
    """
    low, high = window
    draw = random.Random((seed << 32) | index).random
    expressions, labels = [], []
    drawn = root_leaves = too_long = 0
    while len(expressions) < trees:
        drawn += 1
        if draw() > OPERATOR_PROBABILITY:
            draw()  # the digit; a tree of length 1 is never kept
            root_leaves += 1
            continue
        ids = bytearray()
        try:
            value = _grow(draw, 1, high, ids)
        except _TooLong:
            too_long += 1
            continue
        if low < len(ids) < high:
            ids.append(EOS)
            expressions.append(bytes(ids))
            labels.append(value)
        elif len(ids) >= high:
            too_long += 1
    return Chunk(expressions, labels, drawn, root_leaves, too_long)


def _grow(draw: Callable[[], float], depth: int, high: int, ids: bytearray) -> int:
    """Appends an operator node at `depth` to `ids`; returns its value. The hot loop: leaves are drawn in place."""
    slot = len(ids)
    if slot >= high:
        raise _TooLong
    ids.append(UNK)  # the operator is drawn after its children
    values = []
    only_leaves = depth + 1 == MAX_DEPTH
    for _ in range(MIN_CHILDREN + int((MAX_CHILDREN - MIN_CHILDREN + 1) * draw())):
        if only_leaves or draw() > OPERATOR_PROBABILITY:
            digit = int(10 * draw())
            ids.append(ZERO + digit)
            values.append(digit)
        else:
            values.append(_grow(draw, depth + 1, high, ids))
    ids.append(CLOSE)
    match int(4 * draw()):
        case 0:
            ids[slot] = MIN
            return min(values)
        case 1:
            ids[slot] = MAX
            return max(values)
        case 2:
            ids[slot] = MED
            values.sort()
            return (values[(len(values) - 1) // 2] + values[len(values) // 2]) // 2
        case _:
            ids[slot] = SM
            return sum(values) % 10


# The evaluator: works on stored ids, shares nothing with the generator but the numbers of the tokens.

_INNERMOST = re.compile(
    b"([%c-%c])([%c-%c]{%d,%d})%c" % (OPERATORS[0], OPERATORS[-1], ZERO, ZERO + 9, MIN_CHILDREN, MAX_CHILDREN, CLOSE)
)


def evaluate(symbols: bytes) -> list[int | None]:
    """The values of expressions laid end to end, each closed by <eos>; None where the ids are not an expression.

    Replaces every innermost bracket by its digit until one digit is left of each expression.
    """
    rewritten = 1
    while rewritten:
        symbols, rewritten = _INNERMOST.subn(_bracket_digit, symbols)
    *expressions, rest = symbols.split(bytes([EOS]))
    if rest:
        expressions.append(b"")
    digits = {bytes([ZERO + digit]): digit for digit in range(10)}
    return [digits.get(expression) for expression in expressions]


def _bracket_digit(match: re.Match[bytes]) -> bytes:
    operator, digits = match[1][0], match[2]  # the digits are consecutive ids: order and middle survive the offset
    if operator == MIN:
        return bytes([min(digits)])
    if operator == MAX:
        return bytes([max(digits)])
    if operator == SM:
        return bytes([ZERO + (sum(digits) - ZERO * len(digits)) % 10])
    ordered, half = sorted(digits), len(digits) // 2
    return bytes([int((ordered[half] + ordered[~half]) / 2)])


# The published text format.


def tokenize_raw(source: str) -> bytes:
    """Ids of an expression in the published text format, without <eos>: "( ( ( [MAX 1 ) 2 ) ] )" -> [MAX 1 2 X.

    The left-nested parentheses carry nothing and are dropped, "]" is the token X; unknown tokens map to <unk>.
    """
    tokens = source.replace("]", "X").replace("(", "").replace(")", "").split()
    return bytes(VOCABULARY.get(token, UNK) for token in tokens)


def raw_form(ids: bytes) -> str:
    """The published text of one expression (ids without <eos>); 3L - 2 blank-separated parts for L ids."""
    parts: list[str] = []
    open_brackets: list[list[int]] = []  # position of the operator in parts, elements after it
    for number in ids:
        if number in OPERATORS:
            open_brackets.append([len(parts), 0])
            parts.append(TOKENS[number])
            continue
        if number == CLOSE:
            position, elements = open_brackets.pop()
            parts[position] = "( " * (elements + 1) + parts[position]
            parts.append("] )")
        else:
            parts.append(TOKENS[number])
        if open_brackets:
            open_brackets[-1][1] += 1
            parts.append(")")
    return " ".join(parts)
