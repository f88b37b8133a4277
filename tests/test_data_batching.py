"""Batches are pure functions of (seed, step); epochs cover the split; evaluation sees every record once."""

import dataclasses
import itertools

import numpy as np
import pytest

from data import batching
from data.batching import evaluation_batches, seed_batches, training_batch
from data.errors import DataError
from data.splits import MemorySplit, content_sha256


@pytest.fixture
def split() -> MemorySplit:
    """23 records; record i has i % 5 + 1 ids, all equal to i + 1, and label i: a row names its record."""
    return MemorySplit.from_records([bytes([i + 1] * (i % 5 + 1)) for i in range(23)], list(range(23)), 7)


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for key in first:
        np.testing.assert_array_equal(first[key], second[key])
        assert first[key].dtype == second[key].dtype


def test_gather_pads_on_the_right(split):
    batch = split.gather([2, 0, 13])
    np.testing.assert_array_equal(
        batch["inputs"], [[3, 3, 3, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0], [14, 14, 14, 14, 0, 0, 0]]
    )
    np.testing.assert_array_equal(batch["lengths"], [3, 1, 4])
    np.testing.assert_array_equal(batch["labels"], [2, 0, 13])
    assert [batch[key].dtype for key in ("inputs", "lengths", "labels")] == [np.uint8, np.int32, np.int32]


def test_slice_holds_the_same_records(split):
    assert_equal(split.slice(5, 9).gather([0, 3]), split.gather([5, 8]))
    assert len(split.slice(5, 9)) == 4


def test_content_hash_sees_offsets_ids_and_labels(split):
    known = {content_sha256({"train": split})}
    for name in ("symbols", "offsets", "labels"):
        changed = getattr(split, name).copy()
        changed[1] += 1
        known.add(content_sha256({"train": dataclasses.replace(split, **{name: changed})}))
    assert len(known) == 4


def test_training_batch_is_a_function_of_seed_and_step(split):
    in_order = [training_batch(split, 3, step, 4) for step in range(12)]
    batching._epoch_order.cache_clear()
    for step in reversed(range(12)):
        training_batch(split, 8, step, 4)  # what else was asked for in between changes nothing
        assert_equal(training_batch(split, 3, step, 4), in_order[step])


def test_every_epoch_covers_the_split_in_an_order_of_its_own(split):
    epochs = []
    for epoch in range(3):
        labels = [training_batch(split, 0, epoch * 5 + position, 4)["labels"] for position in range(5)]
        epochs.append(np.concatenate(labels).tolist())
        assert len(set(epochs[-1])) == 20  # five batches of four; the incomplete rest of three is dropped
    assert epochs[0] != epochs[1] != epochs[2]
    assert len(set(itertools.chain(*epochs))) == 23  # another rest each time


def test_order_is_the_documented_permutation(split):
    order = np.random.Generator(np.random.Philox(key=np.array([6, 2], np.uint64))).permutation(23)
    np.testing.assert_array_equal(training_batch(split, 6, 2 * 5 + 1, 4)["labels"], order[4:8])


def test_seeds_have_different_orders(split):
    first, second = (training_batch(split, seed, 0, 23)["labels"].tolist() for seed in (0, 1))
    assert first != second
    assert sorted(first) == sorted(second) == list(range(23))


@pytest.mark.parametrize("batch_size", [0, -1, 24])
def test_impossible_batch_sizes_are_refused(split, batch_size):
    with pytest.raises(DataError, match=rf"batch size {batch_size} with 23 training records: it must be in 1..23"):
        training_batch(split, 0, 0, batch_size)
    with pytest.raises(DataError, match="batch size"):
        seed_batches(split, (0,), batch_size, 0, 1)


@pytest.mark.parametrize("batch_size", [1, 4, 23, 50])
def test_evaluation_sees_every_record_once(split, batch_size):
    batches = list(evaluation_batches(split, batch_size))
    assert {batch["inputs"].shape for batch in batches} == {(batch_size, 7)}
    weight = np.concatenate([batch["weight"] for batch in batches])
    assert weight.dtype == np.float32
    assert set(weight.tolist()) <= {0.0, 1.0}
    labels = np.concatenate([batch["labels"] for batch in batches])
    assert labels[weight == 1].tolist() == list(range(23))
    assert np.all(np.concatenate([batch["lengths"] for batch in batches]) >= 1)  # fillers are real inputs too


def expected_batches(split, seeds, batch_size, start, stop):
    for step in range(start, stop):
        batches = [training_batch(split, seed, step, batch_size) for seed in seeds]
        yield {key: np.stack([batch[key] for batch in batches]) for key in batches[0]}


@pytest.mark.parametrize(("start", "stop"), [(0, 9), (7, 13)])
def test_prefetched_batches_are_the_pure_ones_from_any_step(split, start, stop):
    found = list(seed_batches(split, (4, 1), 4, start, stop))
    assert len(found) == stop - start
    assert found[0]["inputs"].shape == (2, 4, 7)
    for batch, expected in zip(found, expected_batches(split, (4, 1), 4, start, stop), strict=True):
        assert_equal(batch, expected)


def test_no_steps_no_batches(split):
    assert list(seed_batches(split, (0,), 4, 5, 5)) == []


def test_prefetch_stays_a_few_batches_ahead(split, monkeypatch):
    asked = []
    monkeypatch.setattr(batching, "training_batch", lambda s, seed, step, *_: asked.append(step) or s.gather([0]))
    batches = seed_batches(split, (0,), 1, 0, 1000)
    next(batches)
    next(batches)
    assert len(asked) <= 2 + batching.PREFETCHED_BATCHES + 1
