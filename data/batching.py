"""In-memory splits, and batches as pure functions of (seed, step): a run resumes by counting steps."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from data.errors import DataError
from data.spec import NO_LABEL

Batch = dict[str, np.ndarray]
"""inputs (B, T) uint8 ids, right-padded with 0; lengths (B,) int32 valid steps; labels (B,) int32, or (B, T) with
NO_LABEL where there is none.

Evaluation batches add weight (B,) float32: 1 for a record, 0 for a filler. A batch over seeds has S in front of B.
"""

PREFETCHED_BATCHES = 2


@dataclass(frozen=True)
class Split:
    """Records of different lengths, end to end: record i is symbols[offsets[i]:offsets[i + 1]].

    symbols (sum of lengths,) uint8; offsets (n + 1,) int64; labels int32, (n,) or, with `per_step`, one for each symbol
    or NO_LABEL; length: steps T of a padded record.
    """

    symbols: np.ndarray
    offsets: np.ndarray
    labels: np.ndarray
    length: int
    per_step: bool = False

    @classmethod
    def from_records(
        cls, records: Sequence[bytes], labels: Sequence[int] | np.ndarray, length: int, *, per_step: bool = False
    ) -> "Split":
        """Joins records, each given as its ids, one byte an id. `labels` are those of `Split`."""
        offsets = np.zeros(len(records) + 1, np.int64)
        np.cumsum([len(record) for record in records], out=offsets[1:])
        return cls(np.frombuffer(b"".join(records), np.uint8), offsets, np.array(labels, np.int32), length, per_step)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def slice(self, start: int, stop: int) -> "Split":
        """Records start..stop-1, as views."""
        offsets = self.offsets[start : stop + 1]
        symbols = self.symbols[offsets[0] : offsets[-1]]
        labels = self.labels[offsets[0] : offsets[-1]] if self.per_step else self.labels[start:stop]
        return Split(symbols, offsets - offsets[0], labels, self.length, self.per_step)

    def gather(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """The records at `indices` as one padded batch."""
        inputs = np.zeros((len(indices), self.length), np.uint8)
        lengths = np.zeros(len(indices), np.int32)
        labels = np.full(inputs.shape, NO_LABEL, np.int32) if self.per_step else self.labels[np.asarray(indices)]
        for row, index in enumerate(indices):
            place = slice(self.offsets[index], self.offsets[index + 1])
            lengths[row] = place.stop - place.start
            inputs[row, : lengths[row]] = self.symbols[place]
            if self.per_step:
                labels[row, : lengths[row]] = self.labels[place]
        return {"inputs": inputs, "lengths": lengths, "labels": labels}


def content_sha256(splits: dict[str, Split]) -> str:
    """sha256 over the records in order, whatever the files that hold them: for each split its offsets (int64), ids
    (uint8) and labels (int32), little-endian."""
    digest = hashlib.sha256()
    for split in splits.values():
        for array, dtype in ((split.offsets, "<i8"), (split.symbols, "u1"), (split.labels, "<i4")):
            digest.update(np.ascontiguousarray(array, dtype).data)
    return digest.hexdigest()


def steps_per_epoch(split: Split, batch_size: int) -> int:
    """Full batches in one pass over the split.

    Raises DataError if there is none.
    """
    if not 1 <= batch_size <= len(split):
        raise DataError(f"batch size {batch_size} with {len(split)} training records: it must be in 1..{len(split)}")
    return len(split) // batch_size


def training_batch(split: Split, seed: int, step: int, batch_size: int) -> Batch:
    """Batch number `step` of the data order of `seed`; a pure function of its arguments.

    Every epoch is a permutation of its own, Generator(Philox(key=[seed, epoch])).permutation(n); its last incomplete
    batch is dropped. Raises DataError for a batch size outside 1..n.
    """
    epoch, position = divmod(step, steps_per_epoch(split, batch_size))
    order = _epoch_order(seed, epoch, len(split))
    return split.gather(order[position * batch_size : (position + 1) * batch_size])


@lru_cache(maxsize=64)  # one permutation for each of the seeds that train together
def _epoch_order(seed: int, epoch: int, records: int) -> np.ndarray:
    key = np.array([seed, epoch], np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).permutation(records)


def evaluation_batches(split: Split, batch_size: int) -> Iterator[Batch]:
    """Every record once, in order. The last batch is filled up with copies of weight 0, so that shapes stay fixed."""
    for start in range(0, len(split), batch_size):
        indices = np.arange(start, start + batch_size)
        valid = indices < len(split)
        yield {**split.gather(np.where(valid, indices, 0)), "weight": valid.astype(np.float32)}


@dataclass(frozen=True)
class _SeedBatches:
    """The batches of steps start..stop-1 as a random-access source: item i holds step start + i of every seed."""

    split: Split
    seeds: tuple[int, ...]
    batch_size: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, index: int) -> Batch:
        step = self.start + index
        batches = [training_batch(self.split, seed, step, self.batch_size) for seed in self.seeds]
        return {key: np.stack([batch[key] for batch in batches]) for key in batches[0]}


def seed_batches(split: Split, seeds: tuple[int, ...], batch_size: int, start: int, stop: int) -> Iterator[Batch]:
    """The training batches of steps start..stop-1, stacked over seeds (S, B, ...); grain prefetches whole batches.

    Raises DataError for a batch size outside 1..n.
    """
    steps_per_epoch(split, batch_size)  # refuse here rather than inside grain's thread
    if start >= stop:
        return iter(())
    import grain  # it imports JAX, which listing and preparing data do not need

    source = _SeedBatches(split, seeds, batch_size, start, stop)
    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=PREFETCHED_BATCHES)
    return iter(grain.MapDataset.source(source).to_iter_dataset(options))
