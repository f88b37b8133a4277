"""A split of labelled records in which every label has its share, by the law of scikit-learn's `train_test_split` with
`stratify` and an integer `random_state`: the same indices in the same order, without the library.

The law: of n_c records of class c out of n, about n_c k / n go into the first part of k records; the classes of the
largest remainders get one more, equal remainders by lot. The second part is filled in the same way from what is left.
Each class is shuffled, its first records go into the first part, the next into the second; then both are shuffled. All
draws come from one NumPy `RandomState(seed)`, in this order.
Source: scikit-learn, user guide 3.1 (StratifiedShuffleSplit), its `train_test_split`.
"""

import numpy as np

from data.errors import DataError


def stratified_split(labels: np.ndarray, first: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the `first` records of the first part, and those of the second part, which has all others.

    Raises DataError if a class has one record only, or a part would be smaller than the number of classes.
    """
    (present,) = np.nonzero(np.bincount(labels))
    members = [np.flatnonzero(labels == label) for label in present]
    counts = np.array([len(of_class) for of_class in members])
    second = len(labels) - first
    if min(counts, default=0) < 2 or min(first, second) < len(counts):
        raise DataError(
            f"{len(labels)} records of {len(counts)} classes cannot be split into {first} and {second} by label: "
            "each class needs 2 records, each part one record for every class"
        )
    rng = np.random.RandomState(seed)
    taken = _shares(counts, first, rng)
    given = _shares(counts - taken, second, rng)
    parts: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for of_class, head, tail in zip(members, taken, given, strict=True):
        shuffled = of_class[rng.permutation(len(of_class))]
        parts[0].append(shuffled[:head])
        parts[1].append(shuffled[head : head + tail])
    return rng.permutation(np.concatenate(parts[0])), rng.permutation(np.concatenate(parts[1]))


def _shares(counts: np.ndarray, draws: int, rng: np.random.RandomState) -> np.ndarray:
    """How many of `draws` records each class gives: its share rounded down, then one more by largest remainder."""
    # The order of the operations decides which remainders are equal: it belongs to the law.
    exact = counts / counts.sum() * draws
    shares = np.floor(exact)
    remainder = exact - shares
    missing = int(draws - shares.sum())
    for value in np.unique(remainder)[::-1]:
        if missing == 0:
            break
        equal = np.flatnonzero(remainder == value)
        lucky = rng.choice(equal, min(missing, len(equal)), replace=False)
        shares[lucky] += 1
        missing -= len(lucky)
    return shares.astype(int)
