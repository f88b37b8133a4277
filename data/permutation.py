"""The order that `torch.utils.data.random_split` gives for a seed, without PyTorch."""

import numpy as np

SPLIT_SEED = 42
"""The seed of the published splits of Image, Pathfinder and MNIST."""


def torch_permutation(n: int, seed: int) -> np.ndarray:
    """(n,) int64, the permutation of 0..n-1 that `torch.randperm` gives on a CPU after `manual_seed(seed)`.

    From r = 0..n-1, for i = 0..n-2: swap r[i] and r[i + u_i mod (n - i)], where u_0, u_1, ... are the raw 32-bit
    outputs of MT19937 seeded with `seed`, the stream of NumPy's legacy RandomState. A random split of torch takes
    consecutive slices of it.
    """
    raw = np.frombuffer(np.random.RandomState(seed).bytes(4 * max(n - 1, 0)), "<u4")
    order = list(range(n))
    for i, jump in enumerate((raw % np.arange(n, 1, -1)).tolist()):
        order[i], order[i + jump] = order[i + jump], order[i]
    return np.array(order, np.int64)


def training_and_validation(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the n training images that stay (90 %), and of those that become validation, in the published order
    of seed 42: 45,000 and 5,000 of 50,000."""
    order = torch_permutation(n, SPLIT_SEED)
    return order[: n - n // 10], order[n - n // 10 :]
