"""Batches as pure functions of (seed, step): a run resumes by counting steps."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from data.errors import DataError
from data.splits import Batch, Split

PREFETCHED_BATCHES = 2


def steps_per_epoch(split: Split, batch_size: int) -> int:
    """Full batches in one pass over the split.

    Raises DataError if there is none.
    """
    if not 1 <= batch_size <= len(split):
        raise DataError(f"batch size {batch_size} with {len(split)} training records: it must be in 1..{len(split)}")
    return len(split) // batch_size


WHOLE = slice(None)
"""All records of a batch."""


def training_batch(split: Split, seed: int, step: int, batch_size: int, rows: slice = WHOLE) -> Batch:
    """Batch number `step` of the data order of `seed`, or only its `rows`. Raises as `records_of_batch`."""
    return split.gather(records_of_batch(split, seed, step, batch_size)[rows])


def records_of_batch(split: Split, seed: int, step: int, batch_size: int) -> np.ndarray:
    """The places of the records of a batch; a pure function of its arguments.

    Every epoch is a permutation of its own, Generator(Philox(key=[seed, epoch])).permutation(n); its last incomplete
    batch is dropped. Raises DataError for a batch size outside 1..n.
    """
    epoch, position = divmod(step, steps_per_epoch(split, batch_size))
    return _epoch_order(seed, epoch, len(split))[position * batch_size : (position + 1) * batch_size]


@lru_cache(maxsize=64)  # one permutation for each of the seeds that train together
def _epoch_order(seed: int, epoch: int, records: int) -> np.ndarray:
    key = np.array([seed, epoch], np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).permutation(records)


def evaluation_batches(split: Split, batch_size: int, rows: slice = WHOLE) -> Iterator[Batch]:
    """Every record once, in order, or those that are `rows` of a batch. The last batch is filled up with copies of
    weight 0, so that shapes stay fixed."""
    for start in range(0, len(split), batch_size):
        indices = np.arange(start, start + batch_size)[rows]
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
    rows: slice

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, index: int) -> Batch:
        step = self.start + index
        batches = [training_batch(self.split, seed, step, self.batch_size, self.rows) for seed in self.seeds]
        return {key: np.stack([batch[key] for batch in batches]) for key in batches[0]}


def seed_batches(
    split: Split, seeds: tuple[int, ...], batch_size: int, start: int, stop: int, rows: slice = WHOLE
) -> Iterator[Batch]:
    """The training batches of steps start..stop-1, or their `rows`, stacked over seeds (S, B, ...); grain prefetches
    them.

    Raises DataError for a batch size outside 1..n.
    """
    steps_per_epoch(split, batch_size)  # refuse here rather than inside grain's thread
    if start >= stop:
        return iter(())
    import grain  # it imports JAX, which listing and preparing data do not need

    source = _SeedBatches(split, seeds, batch_size, start, stop, rows)
    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=PREFETCHED_BATCHES)
    return iter(grain.MapDataset.source(source).to_iter_dataset(options))
