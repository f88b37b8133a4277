"""Splits: records by number, batches of them, and a hash of what they hold; in memory, or behind any other reader."""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from data.examples import Example
from data.spec import NO_LABEL

Batch = dict[str, np.ndarray]
"""inputs (B, T) ids or (B, T, channels) samples as they are stored, right-padded with 0; lengths (B,) int32 valid
steps; labels (B,) int32, or (B, T) with NO_LABEL where there is none. Of pairs: inputs (B, 2, T) and lengths (B, 2).

Evaluation batches add weight (B,) float32: 1 for a record, 0 for a filler. A batch over seeds has S in front of B.
"""

BLOCK = 16_384
"""Records that are hashed together, and lie together in a file."""


class Records(Protocol):
    """Stored records, wherever they lie."""

    def __len__(self) -> int: ...

    def example(self, index: int) -> Example:
        """One of them."""
        ...

    def examples(self) -> Iterator[Example]:
        """All of them, in order."""
        ...


class Split(Protocol):
    """What batches are drawn from: records, or windows of a text. length: steps T of a padded input."""

    @property
    def length(self) -> int: ...

    def __len__(self) -> int: ...

    def gather(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """Those at `indices` as one padded batch."""
        ...


def collate(examples: Sequence[Example], length: int) -> Batch:
    """The examples, all of one kind, as one batch; sequences longer than `length` are not cut but refused by NumPy."""
    firsts, lengths = _padded([example.values for example in examples], length)
    if examples[0].second is not None:
        seconds, others = _padded([example.second for example in examples if example.second is not None], length)
        firsts, lengths = np.stack([firsts, seconds], 1), np.stack([lengths, others], 1)
    if isinstance(examples[0].label, np.ndarray):
        labels = np.full((len(examples), length), NO_LABEL, np.int32)
        for row, example in zip(labels, examples, strict=True):
            row[: len(example.values)] = _number(example.label)
    else:
        labels = np.array([example.label for example in examples], np.int32)
    return {"inputs": firsts, "lengths": lengths, "labels": labels}


def _padded(sequences: Sequence[np.ndarray], length: int) -> tuple[np.ndarray, np.ndarray]:
    padded = np.zeros((len(sequences), length, *sequences[0].shape[1:]), sequences[0].dtype)
    lengths = np.array([len(sequence) for sequence in sequences], np.int32)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = sequence
    return padded, lengths


@dataclass(frozen=True)
class MemorySplit:
    """Records of different lengths, end to end: record i is symbols[offsets[i]:offsets[i + 1]].

    symbols (sum of lengths,) or (sum of lengths, channels); offsets (n + 1,) int64; labels int32, (n,) or, with
    `per_step`, one for each symbol, NO_LABEL where there is none; cuts (n,) int64: of pairs, where the second begins.
    """

    symbols: np.ndarray
    offsets: np.ndarray
    labels: np.ndarray
    length: int
    per_step: bool = False
    cuts: np.ndarray | None = None

    @classmethod
    def from_records(
        cls, records: Sequence[bytes], labels: Sequence[int] | np.ndarray, length: int, *, per_step: bool = False
    ) -> "MemorySplit":
        """Joins records, each given as its ids, one byte an id. `labels` are those of the class."""
        symbols = np.frombuffer(b"".join(records), np.uint8)
        return cls(symbols, _offsets(map(len, records)), np.array(labels, np.int32), length, per_step)

    @classmethod
    def from_examples(cls, examples: Iterable[Example], length: int) -> "MemorySplit":
        """Joins examples, at least one."""
        found = list(examples)
        parts = [part for e in found for part in ([e.values] if e.second is None else [e.values, e.second])]
        offsets = _offsets(len(e.values) + (0 if e.second is None else len(e.second)) for e in found)
        cuts = None if found[0].second is None else np.array([len(e.values) for e in found], np.int64)
        per_step = isinstance(found[0].label, np.ndarray)
        numbers = [_number(e.label) for e in found]
        labels = np.concatenate([np.asarray(n) for n in numbers]) if per_step else np.array(numbers)
        return cls(np.concatenate(parts), offsets, labels.astype(np.int32), length, per_step, cuts)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def slice(self, start: int, stop: int) -> "MemorySplit":
        """Records start..stop-1, as views."""
        offsets = self.offsets[start : stop + 1]
        symbols = self.symbols[offsets[0] : offsets[-1]]
        labels = self.labels[offsets[0] : offsets[-1]] if self.per_step else self.labels[start:stop]
        cuts = None if self.cuts is None else self.cuts[start:stop]
        return MemorySplit(symbols, offsets - offsets[0], labels, self.length, self.per_step, cuts)

    def gather(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """The records at `indices` as one padded batch."""
        return collate([self.example(int(index)) for index in indices], self.length)

    def examples(self) -> Iterator[Example]:
        """All records in order, as views."""
        return map(self.example, range(len(self)))

    def example(self, index: int) -> Example:
        """A record, as views."""
        place = slice(self.offsets[index], self.offsets[index + 1])
        label = self.labels[place] if self.per_step else int(self.labels[index])
        if not self.per_step and label == NO_LABEL:
            label = None
        values = self.symbols[place]
        if self.cuts is None:
            return Example(values, label)
        cut = self.cuts[index]
        return Example(values[:cut], label, values[cut:])


def _number(label: int | np.ndarray | None) -> int | np.ndarray:
    return NO_LABEL if label is None else label


def _offsets(lengths: Iterable[int]) -> np.ndarray:
    return np.fromiter(itertools.accumulate(lengths, initial=0), np.int64)


@dataclass(frozen=True)
class Shortened:
    """A split whose inputs are cut to their first `length` steps, and so are the labels of steps."""

    whole: Split
    length: int

    def __len__(self) -> int:
        return len(self.whole)

    def gather(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """The records at `indices` as one padded batch."""
        batch = self.whole.gather(indices)
        axis = batch["lengths"].ndim  # behind the batch, and behind the two of a pair
        inputs = batch["inputs"][(slice(None),) * axis + (slice(self.length),)]
        labels = batch["labels"][:, : self.length] if batch["labels"].ndim == 2 else batch["labels"]
        return {"inputs": inputs, "lengths": np.minimum(batch["lengths"], self.length), "labels": labels}


def digest_of(examples: Iterable[Example]) -> str:
    """sha256 over what a block of records holds, whatever the file: of each its length (int64), values (their dtype),
    the same of its second sequence, and its labels (int32; NO_LABEL if none), little-endian."""
    digest = hashlib.sha256()
    for values, label, second in examples:
        for sequence in (values,) if second is None else (values, second):
            digest.update(len(sequence).to_bytes(8, "little"))
            digest.update(np.ascontiguousarray(sequence, sequence.dtype.newbyteorder("<")).data)
        digest.update(np.ascontiguousarray(_number(label), "<i4").data)
    return digest.hexdigest()


def content_sha256(splits: Mapping[str, Records]) -> str:
    """sha256 over the splits' names and the digests of their blocks, in order."""
    return combined({name: list(_block_digests(split.examples())) for name, split in splits.items()})


def combined(digests: Mapping[str, Sequence[str]]) -> str:
    """sha256 of the digests of all blocks, under the names of their splits."""
    lines = [f"{name} {digest}\n" for name, blocks in digests.items() for digest in blocks]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _block_digests(examples: Iterator[Example]) -> Iterator[str]:
    for first in examples:
        yield digest_of(itertools.chain([first], itertools.islice(examples, BLOCK - 1)))
