"""A text as windows: what language models are trained on and evaluated by. Pure functions of a stream of tokens; knows
no files. A window of T + 1 tokens x_0 ... x_T has the inputs x_0 ... x_{T-1} and the labels x_1 ... x_T.

packing      windows                                                           training        evaluation
separated    of the whole stream, one every T tokens, so that every token      last partial    last partial
             but the first is a label exactly once                             window dropped  window kept
published    disjoint blocks of T + 1 tokens within each segment, so that      what is left of a segment is dropped
             every (T + 1)th token is never a label                            in both

"published" is the packing of the published MRU runs (mikayahlevi/transformer-train-script).
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from data.errors import DataError
from data.spec import NO_LABEL, DataRequest
from data.splits import Batch, Records

CHUNK = 4096
"""Ids in a stored record of a stream without segments; where it is cut means nothing."""

Read = Callable[[int, int], np.ndarray]
"""read(start, stop): the ids start..stop-1 of a stream."""

Named = TypeVar("Named", bound=enum.Enum)


class Packing(enum.Enum):
    """How windows lie in a text, see the table above; the default first."""

    SEPARATED = "separated"
    PUBLISHED = "published"


def choice(request: DataRequest, name: str, kind: type[Named]) -> Named:
    """The member of `kind` that the request chooses under `name`; the first one if it says nothing.

    Raises DataError for a value that is none of them.
    """
    known = [member.value for member in kind]
    value = dict(request.choices).get(name, known[0])
    if value not in known:
        raise DataError(f"{request.task}: unknown {name} {value!r} (known: {', '.join(known)})")
    return kind(value)


@dataclass(frozen=True)
class Windows:
    """The windows of a stream, by number; a `data.splits.Split`.

    read: the stream. offsets: (S + 1,) int64, segment s is its ids offsets[s]..offsets[s + 1]-1; no window crosses the
    end of a segment. length: T. stride: from the start of a window to that of the next. keep_last: also the partial
    window at the end of a segment. context: inputs at the start of a window, but for the first of its segment, that
    are read only: they have no labels.
    """

    read: Read
    offsets: np.ndarray
    length: int
    stride: int
    keep_last: bool
    context: int = 0

    @cached_property
    def _first(self) -> np.ndarray:
        """(S + 1,): number of the first window of each segment, and of all."""
        tokens = np.diff(self.offsets)
        counts = np.maximum((tokens - 1 - self.length) // self.stride + 1, 0)
        if self.keep_last:
            counts += tokens - 1 > np.where(counts > 0, counts * self.stride + self.context, 0)
        return np.concatenate([[0], np.cumsum(counts)])

    def __len__(self) -> int:
        return int(self._first[-1])

    @property
    def targets(self) -> int:
        """Labels in all windows together."""
        if self.keep_last:
            return int(np.maximum(np.diff(self.offsets) - 1, 0).sum())
        return len(self) * self.length

    def starts_segment(self, index: int) -> bool:
        """Whether window `index` is the first of its segment."""
        return index in self._first[:-1]

    def bounds(self, index: int) -> tuple[int, int]:
        """Window `index` is the ids start..stop-1 of the stream."""
        segment = int(np.searchsorted(self._first, index, "right")) - 1
        start = int(self.offsets[segment] + self.stride * (index - self._first[segment]))
        return start, min(start + self.length + 1, int(self.offsets[segment + 1]))

    def gather(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """The windows at `indices`: inputs (B, T) of the stream's dtype, right-padded with 0; lengths (B,) int32 of
        them; labels (B, T) int32, NO_LABEL in the padding and in the context."""
        windows = [self.read(*self.bounds(int(index))) for index in indices]
        lengths = np.array([len(window) - 1 for window in windows], np.int32)
        inputs = np.zeros((len(windows), self.length), windows[0].dtype)
        labels = np.full(inputs.shape, NO_LABEL, np.int32)
        for row, (window, length) in enumerate(zip(windows, lengths, strict=True)):
            inputs[row, :length] = window[:-1]
            labels[row, :length] = window[1:]
            if self.context and not self.starts_segment(int(indices[row])):
                labels[row, : self.context] = NO_LABEL
        return {"inputs": inputs, "lengths": lengths, "labels": labels}

    def consecutive(self) -> "Windows":
        """The same text as windows of which each begins with the last label of the one before, the last ones partial:
        every token but the first of a segment is a label once."""
        return replace(self, stride=self.length, keep_last=True)

    def sliding(self) -> "Windows":
        """The same text as windows that overlap by half and are labelled in their second half, the first of a segment
        everywhere: every token but the first of a segment is a label once, behind T/2 others or all there are."""
        context = self.length // 2
        return replace(self, stride=self.length - context, keep_last=True, context=context)


def training_windows(read: Read, offsets: np.ndarray, length: int, packing: Packing) -> Windows:
    """The full windows of T = length inputs. Raises DataError if there is none."""
    return _windows(read, offsets, length, packing, keep_last=False)


def evaluation_windows(read: Read, offsets: np.ndarray, length: int, packing: Packing) -> Windows:
    """The windows a loss is reported on: with `separated` every token but the first of a segment is a label once.

    Raises DataError if there is no full window.
    """
    return _windows(read, offsets, length, packing, keep_last=packing is Packing.SEPARATED)


def _windows(read: Read, offsets: np.ndarray, length: int, packing: Packing, *, keep_last: bool) -> Windows:
    if length < 1:
        raise DataError(f"windows of {length} tokens: at least 1 is needed")
    longest = int(np.max(np.diff(offsets), initial=0))
    if length + 1 > longest:
        raise DataError(f"windows of {length} + 1 tokens in a text of {longest}: take a shorter length or more data")
    match packing:
        case Packing.SEPARATED:
            stride = length
        case Packing.PUBLISHED:
            stride = length + 1
    return Windows(read, offsets, length, stride, keep_last)


# Between a stream and the records that are stored of it.


def checked_ids(name: str, split: Records, dtype: str, size: int) -> Iterator[np.ndarray]:
    """The ids of each record. Raises DataError for a record that is no piece of a text of `size` different ids."""
    for index, example in enumerate(split.examples()):
        values = example.values
        if example.label is not None or values.ndim != 1 or values.dtype != np.dtype(dtype) or not len(values):
            raise DataError(f"{name} record {index} is not a piece of text in {dtype} ids")
        if (largest := int(values.max())) >= size:
            raise DataError(f"{name} record {index} has id {largest}, expected less than {size}")
        yield values


def cut(pieces: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """The stream of all pieces, cut anew into pieces of CHUNK ids, the last one shorter."""
    held: list[np.ndarray] = []
    count = 0
    for piece in pieces:
        held.append(piece)
        count += len(piece)
        if count >= CHUNK:
            stream = np.concatenate(held)
            whole = count - count % CHUNK
            yield from stream[:whole].reshape(-1, CHUNK)
            held, count = [stream[whole:]], count - whole
    if count:
        yield np.concatenate(held)


def read_records(record: Callable[[int], np.ndarray], offsets: np.ndarray) -> Read:
    """Reads from a stream of which record(i) gives the ids offsets[i]..offsets[i + 1]-1: for splits that are not held
    in memory."""

    def read(start: int, stop: int) -> np.ndarray:
        first, last = np.searchsorted(offsets, [start, stop - 1], "right") - 1
        joined = np.concatenate([record(index) for index in range(first, last + 1)])
        return joined[start - offsets[first] : stop - offsets[first]]

    return read
