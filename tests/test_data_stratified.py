"""The split by label against what scikit-learn gives: its documented example, and values of version 1.9.1."""

import hashlib
import math

import numpy as np
import pytest

from data.errors import DataError
from data.stratified import stratified_split


def test_the_documented_example():
    """The first split of StratifiedShuffleSplit(test_size=0.5, random_state=0) in its reference page."""
    train, test = stratified_split(np.array([0, 0, 0, 1, 1, 1]), 3, seed=0)
    assert (train.tolist(), test.tolist()) == ([5, 2, 3], [4, 1, 0])


def test_uneven_classes():
    """train_test_split(range(20), train_size=0.7, random_state=0, stratify=labels)."""
    labels = np.repeat([0, 2, 3, 7], [7, 5, 5, 3])
    train, test = stratified_split(labels, 14, seed=0)
    assert train.tolist() == [1, 10, 18, 14, 6, 4, 3, 16, 17, 13, 8, 2, 15, 11]
    assert test.tolist() == [12, 5, 19, 9, 7, 0]


def test_both_steps_at_the_size_of_sc10():
    """34,975 records: train_test_split with random_state 0, then 1 on the second part as it came."""
    labels = np.repeat(np.arange(10), [3600, 3500, 3300, 3400, 3350, 3380, 3420, 3290, 3535, 4200])
    train, rest = stratified_split(labels, math.floor(0.7 * len(labels)), seed=0)
    val, test = (rest[part] for part in stratified_split(labels[rest], len(rest) // 2, seed=1))
    assert [len(part) for part in (train, val, test)] == [24_482, 5_246, 5_247]
    assert train[:4].tolist() == [14337, 24635, 29520, 6692]
    found = [hashlib.sha256(part.astype("<i8").tobytes()).hexdigest()[:16] for part in (train, val, test)]
    assert found == ["1f844d84d03fb2c2", "d846001ecdb26652", "6eb9f36fc8ccd722"]
    np.testing.assert_array_equal(np.sort(np.concatenate([train, val, test])), np.arange(len(labels)))


@pytest.mark.parametrize(
    ("labels", "first"), [([], 0), ([0, 0, 1], 1), ([0, 0, 1, 1], 1), ([0, 0, 1, 1], 3), ([0, 0], 0)]
)
def test_what_is_refused(labels, first):
    with pytest.raises(DataError, match=f"{len(labels)} records of .* classes cannot be split into {first} and "):
        stratified_split(np.array(labels, np.int64), first, seed=0)
