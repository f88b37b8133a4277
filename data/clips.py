"""What data sets of recorded words share: clips by key on disk, splits of them, what must hold of the records."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from data.errors import DataError
from data.examples import Example, Generated
from data.moments import Moments
from data.parallel import Progress
from data.spec import DataRequest, TaskSpec
from data.splits import Records
from data.spool import Spool
from data.stored import is_complete

REPORT_EVERY = 500

Key = tuple[Any, ...]
"""Names a clip: its label first, then what sorts the clips of one label."""


class ClipStore:
    """The clips of a source: their keys in memory, their samples on disk until the store is gone."""

    def __init__(self):
        self._numbers: dict[Key, int] = {}
        self._spool = Spool()

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, key: Key, values: np.ndarray, where: str) -> None:
        """Takes one clip, int16 (n,). Raises DataError if there is one of that key."""
        if key in self._numbers:
            raise DataError(f"{where}: comes twice in the source")
        self._numbers[key] = self._spool.append(values)

    def keys(self) -> list[Key]:
        """All keys, sorted."""
        return sorted(self._numbers)

    def examples(self, keys: Iterable[Key]) -> Iterator[Example]:
        """The clips of these keys, one at a time."""
        for key in keys:
            yield Example(self._spool.read(self._numbers[key])[:, None], key[0])


def generated(
    request: DataRequest,
    clips: ClipStore,
    keys: dict[str, list[Key]],
    sizes: dict[str, int],
    length: int,
    facts: Callable[[], dict[str, Any]],
) -> Generated:
    """The splits with these keys, sorted; under a limit of each as many, evenly
    spaced, so that no word is left out while there is room. Statistics of what is kept of training.

    Raises DataError if a split is empty, or a complete one has not its size.
    """
    for split, of_split in keys.items():
        if is_complete(request) and len(of_split) != sizes[split]:
            raise DataError(f"{request.task}: {split} has {len(of_split)} clips, expected {sizes[split]}")
        if not of_split:
            raise DataError(f"{request.task}: no clip of the source belongs to {split}")
    moments = Moments(length)
    splits = {split: clips.examples(_spaced(sorted(of_split), request.limit)) for split, of_split in keys.items()}
    return Generated({**splits, "train": _counted(splits["train"], moments)}, facts, moments.arrays)


def _spaced(keys: list[Key], limit: int | None) -> list[Key]:
    kept = min(limit or len(keys), len(keys))
    return [keys[number * len(keys) // kept] for number in range(kept)]


def _counted(examples: Iterator[Example], moments: Moments) -> Iterator[Example]:
    for example in examples:
        moments.add(example.values[:, 0])
        yield example


# What must hold of the stored records.


def check_clips(
    request: DataRequest,
    spec: TaskSpec,
    sizes: dict[str, int],
    splits: Mapping[str, Records],
    progress: Progress,
    *,
    shortest: int = 1,
) -> dict[str, float]:
    """Asserts type, length and label of every clip, the order of the labels and, where all of the official clips are
    asked for, the number of clips of each split and that every label is in it.

    Returns of each split `clips`, `shorter` (than the task is long), `labels` (that occur) and `majority`; and
    `repeated`: clips of another split that has the same samples before it. These are other files; none is dropped.
    Raises DataError with the split and the record.
    """
    done, total = 0, sum(len(split) for split in splits.values())
    statistics: dict[str, float] = {}
    first_seen: dict[bytes, str] = {}
    repeated = 0
    for name, split in splits.items():
        counts, shorter, before = np.zeros(spec.classes, np.int64), 0, 0
        for number, example in enumerate(split.examples()):
            before = _check_clip(example, f"{name} record {number}", spec, shortest, before)
            counts[before] += 1
            shorter += len(example.values) < spec.length
            digest = hashlib.blake2b(example.values.tobytes(), digest_size=16).digest()
            repeated += first_seen.setdefault(digest, name) != name
            done += 1
            if done % REPORT_EVERY == 0 or done == total:
                progress("check", done, total)
        if is_complete(request):
            _check_counts(name, counts, sizes[name])
        found = {"clips": counts.sum(), "shorter": shorter, "labels": np.count_nonzero(counts)}
        found["majority"] = counts.max() / max(counts.sum(), 1)
        statistics |= {f"{name}_{what}": float(value) for what, value in found.items()}
    return statistics | {"repeated": float(repeated)}


def _check_clip(example: Example, where: str, spec: TaskSpec, shortest: int, before: int) -> int:
    """Returns the label."""
    values, label = example.values, example.label
    if values.dtype != np.int16 or values.shape[1:] != (1,):
        raise DataError(f"{where}: is {values.dtype} of shape {values.shape}, expected int16 (n, 1)")
    if not shortest <= len(values) <= spec.length:
        raise DataError(f"{where}: has {len(values)} samples, expected {shortest} to {spec.length}")
    if not (isinstance(label, int | np.integer) and 0 <= label < spec.classes):
        raise DataError(f"{where}: has label {label}, expected 0 to {spec.classes - 1}")
    if label < before:
        raise DataError(f"{where}: has label {label} after label {before}: clips are sorted by label")
    return int(label)


def _check_counts(name: str, counts: np.ndarray, expected: int) -> None:
    if counts.sum() != expected:
        raise DataError(f"{name} has {counts.sum()} records, expected {expected}")
    if not counts.all():
        raise DataError(f"{name} has no record of label {counts.argmin()}")


# A sample.


def smoke_clips(spec: TaskSpec, rate: int, sizes: dict[str, int], *, shorter: bool) -> dict[str, list[Example]]:
    """`sizes[split]` clips of every label, sorted by label: a tone of 100 Hz and 25 more for each label, in noise.

    rate: samples a second. shorter: every third clip is shorter than the task is long.
    """
    rng = np.random.Generator(np.random.Philox(key=0))
    splits: dict[str, list[Example]] = {}
    for split, per_label in sizes.items():
        splits[split] = []
        for number in range(spec.classes * per_label):
            label, steps = number // per_label, spec.length
            if shorter and number % 3 == 0:
                steps -= int(rng.integers(1, steps // 2))
            phase = 2 * np.pi * (rng.random() + (100 + 25 * label) * np.arange(steps) / rate)
            sound = 3_000 * np.sin(phase) + 300 * rng.standard_normal(steps)
            splits[split].append(Example(sound.astype(np.int16)[:, None], label))
    return splits
