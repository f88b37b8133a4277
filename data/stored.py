"""What is asked of the stored records of every data set that is made of somebody's files."""

import hashlib
from collections.abc import Callable, Mapping

import numpy as np

from data.errors import DataError
from data.examples import Example
from data.parallel import Progress
from data.spec import DataRequest, TaskSpec
from data.splits import Records
from data.vocabulary import EOS, PAD

REPORT_EVERY = 1_000


def refuse_window(request: DataRequest) -> None:
    """Raises DataError if a length window was asked for: it belongs to ListOps."""
    if request.length_window is not None:
        raise DataError(f"{request.task} has no length window: its lengths are those of the documents or images")


def is_complete(request: DataRequest) -> bool:
    """Whether all of the official records are asked for, so that what is known of them must hold."""
    return not request.partial and request.limit is None


def expect_count(request: DataRequest, what: str, found: int, expected: int) -> None:
    """Raises DataError with both numbers if a complete set has another number of `what`."""
    if is_complete(request) and found != expected:
        raise DataError(f"{request.task}: {found} {what}, expected {expected}")


def check_vocabulary(request: DataRequest, vocabulary: dict[str, int], official: int, width: int) -> None:
    """Asserts the number of entries of the official documents, and that those of any others fit the table of `width`.

    Raises DataError with both numbers.
    """
    expect_count(request, "entries in the vocabulary", len(vocabulary), official)
    if len(vocabulary) > width:
        raise DataError(f"{request.task}: {len(vocabulary)} entries in the vocabulary, the table has {width} rows")


def check_examples(
    request: DataRequest,
    spec: TaskSpec,
    sizes: dict[str, int],
    splits: Mapping[str, Records],
    check_values: Callable[[str, np.ndarray], None],
    progress: Progress,
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Reads every record once: `check_values(where, values)` for each sequence, the range of the labels, the counts.

    Returns statistics and, for each split, how many records each label has. The statistics are, of each split: records,
    share of the most frequent label, mean length (of both sequences of a pair), and the share of validation and test
    records that are equal to a training record. Raises DataError with the split and the record, or the count.
    """
    statistics: dict[str, float] = {}
    labels = {name: np.zeros(spec.classes, np.int64) for name in splits}
    trained_on: set[bytes] = set()
    for name, split in splits.items():
        expect_count(request, f"records in {name}", len(split), sizes[name])
        steps = seen = 0
        for index, example in enumerate(split.examples()):
            where = f"{spec.name}: {name} record {index}"
            sequences = [example.values] if example.second is None else [example.values, example.second]
            for values in sequences:
                check_values(where, values)
                steps += len(values)
            labels[name][_checked_label(where, example, spec.classes)] += 1
            digest = _digest(sequences)
            if name == "train":
                trained_on.add(digest)
            else:
                seen += digest in trained_on
            if index % REPORT_EVERY == 0 or index == len(split) - 1:
                progress(f"check {name}", index + 1, len(split))
        records = max(len(split), 1)
        statistics[f"{name}_records"] = float(len(split))
        statistics[f"{name}_majority_share"] = float(labels[name].max() / records)
        statistics[f"{name}_length_mean"] = steps / records
        if name != "train":
            statistics[f"{name}_seen_in_train"] = seen / records
    return statistics, labels


def _checked_label(where: str, example: Example, classes: int) -> int:
    if not isinstance(example.label, int | np.integer) or not 0 <= example.label < classes:
        raise DataError(f"{where} has label {example.label}, expected 0..{classes - 1}")
    return int(example.label)


def _digest(sequences: list[np.ndarray]) -> bytes:
    """Of sequences that show where they end: documents by <eos>, images by their one size."""
    digest = hashlib.sha256()
    for values in sequences:
        digest.update(np.ascontiguousarray(values).data)
    return digest.digest()


def check_document(where: str, ids: np.ndarray, spec: TaskSpec, entries: int) -> None:
    """Asserts uint8 ids below the number of `entries` of the vocabulary, one <eos>, at the end, no padding, and a
    length that fits the task."""
    if ids.dtype != np.uint8 or ids.ndim != 1:
        raise DataError(f"{where} is {ids.dtype} of shape {ids.shape}, expected uint8 ids")
    if not 1 <= len(ids) <= spec.length:
        raise DataError(f"{where} has {len(ids)} ids, expected 1..{spec.length}")
    if ids[-1] != EOS or (ids[:-1] == EOS).any():
        raise DataError(f"{where} does not have its one <eos> at the end")
    if (ids == PAD).any():
        raise DataError(f"{where} has the id of the padding among its {len(ids)} ids")
    if ids.max() >= entries:
        raise DataError(f"{where} has id {ids.max()}, the vocabulary has {entries} entries")


def check_pixels(where: str, values: np.ndarray, spec: TaskSpec) -> None:
    """Asserts uint8 of the task's shape."""
    if values.dtype != np.uint8 or values.shape != (spec.length, spec.input_width):
        raise DataError(
            f"{where} is {values.dtype} of shape {values.shape}, expected uint8 ({spec.length}, {spec.input_width})"
        )
