"""Characters as token ids: the vocabulary rule of the S4 pipeline (torchtext's), which fixes the published widths.

Ids: <pad> 0, <unk> 1, <eos> 2, then the characters (Unicode code points) of the training documents by falling
frequency, ties in ascending order, without those met fewer than `min_freq` times. Only what a document keeps after
truncation is counted.
"""

from collections.abc import Callable, Iterable

import numpy as np

SPECIALS = ("<pad>", "<unk>", "<eos>")
PAD, UNK, EOS = range(3)

_CODE_POINTS = 0x110000


def truncate(document: str, length: int) -> str:
    """The characters that leave room for <eos> in `length` steps."""
    return document[: length - 1]


def character_vocabulary(documents: Iterable[str], length: int, min_freq: int) -> dict[str, int]:
    """Token -> id, in the order of the ids, of documents truncated to `length` steps; min_freq is at least 1.

    The documents are taken one by one.
    """
    counts = np.zeros(_CODE_POINTS, np.int64)
    for document in documents:
        found = np.bincount(_code_points(truncate(document, length)))
        counts[: len(found)] += found
    kept = np.flatnonzero(counts >= min_freq)
    order = kept[np.argsort(-counts[kept], kind="stable")]  # stable: ties stay in ascending order
    return {token: number for number, token in enumerate((*SPECIALS, *map(chr, order.tolist())))}


def character_encoder(vocabulary: dict[str, int], length: int) -> Callable[[str], np.ndarray]:
    """document -> (n,) uint8 ids, 1 <= n <= length: truncated, unknown characters as <unk>, closed by <eos>."""
    ids = np.full(_CODE_POINTS, UNK, np.uint8)
    for token, number in vocabulary.items():
        if token not in SPECIALS:
            ids[ord(token)] = number

    def encode(document: str) -> np.ndarray:
        return np.append(ids[_code_points(truncate(document, length))], np.uint8(EOS))

    return encode


def random_document(rng: np.random.Generator, ids: range, length: int) -> np.ndarray:
    """Any of `ids` closed by <eos>, 1 to `length` in all: a record of a smoke sample."""
    return np.append(rng.integers(ids.start, ids.stop, rng.integers(length), np.uint8), np.uint8(EOS))


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), "<u4")
