"""The seed-42 split is the published one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.permutation import torch_permutation, training_and_validation


@pytest.mark.parametrize(
    ("seed", "order"),
    [
        (0, [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]),
        (1, [5, 6, 1, 2, 0, 8, 9, 3, 7, 4]),
        (42, [2, 6, 1, 8, 4, 5, 0, 9, 3, 7]),
    ],
)
def test_ten(seed, order):
    assert torch_permutation(10, seed).tolist() == order


@pytest.mark.parametrize(
    ("n", "first", "later"),
    [
        (50_000, [37542, 44491, 216, 43688], {45_000: 17408}),
        (60_000, [37542, 43087, 2992, 25810], {54_000: 33841}),
        (12_500, [42, 12279, 2808, 10543], {11_250: 3499}),
        (200_000, [37542, 143173, 127710, 58234], {160_000: 122036, 180_000: 143170}),
    ],
)
def test_published_splits(n, first, later):
    order = torch_permutation(n, 42)
    assert order[:4].tolist() == first
    assert {position: order[position] for position in later} == later
    np.testing.assert_array_equal(np.sort(order), np.arange(n))


@settings(max_examples=30, deadline=None)
@given(n=st.integers(0, 300), seed=st.integers(0, 2**32 - 1))
def test_every_number_once(n, seed):
    order = torch_permutation(n, seed)
    assert order.dtype == np.int64
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    trained_on, held_out = training_and_validation(n)
    assert len(held_out) == n // 10
    np.testing.assert_array_equal(np.concatenate([trained_on, held_out]), torch_permutation(n, 42))
