"""The format on disk: one folder per prepared data set, readable by anyone with
`tfds.builder_from_directory(folder).as_data_source("train")`, and a manifest that says what must be in it.

The shards are written here rather than by a `GeneratorBasedBuilder`, which holds a split in memory and gives other
bytes in every run. This is the only module that knows TensorFlow Datasets and array_record; how a folder appears at
once, and what a manifest is, see `data.folders` and `data.manifest`.
"""

import bisect
import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow_datasets as tfds
from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]  a compiled module
from tensorflow_datasets.core import dataset_info, example_serializer
from tensorflow_datasets.core import splits as tfds_splits
from tensorflow_datasets.proto import tf_example_pb2

from data.errors import DataError, first_line
from data.examples import Example, Indexed
from data.folders import Journal, Shard
from data.parallel import Progress
from data.spec import NO_LABEL, InputKind, TaskKind, TaskSpec
from data.splits import BLOCK, Batch, MemorySplit, collate, digest_of

UNLABELLED = 255  # a step without a label, in a byte
GROUP_SIZE = "group_size:1"  # one record a block: what the public readers expect
IN_MEMORY_BYTES = 512 * 2**20
"""Splits of more, before compression, are read record by record, when these are asked for."""

READ_AT_ONCE = 128
"""Records that are decoded in parallel when a split is read in order."""


# Writing.


def write(
    folder: Path,
    name: str,
    splits: Mapping[str, Iterable[Example]],
    spec: TaskSpec,
    journal: Journal,
    progress: Progress,
    expected: int = 0,
) -> None:
    """Writes the shards of all splits and TFDS's description of them. The same records give the same bytes.

    Features: symbols (None,) ids or (None, channels) samples of the task's dtype; second, the same; label, one of the
    classes, or labels (None,) uint8 of the steps, with UNLABELLED where there is none. No shard is ever in memory:
    examples go to the file as they come. Shards that `journal` knows are there already; `Indexed` splits go on behind
    them. Raises DataError if a file cannot be written.
    """
    features = _features(spec)
    serializer = example_serializer.ExampleSerializer(features.get_serialized_info())  # pyright: ignore[reportArgumentType]
    for split_name, examples in splits.items():
        if journal.is_complete(split_name):
            continue
        done = sum(shard.records for shard in journal.shards(split_name))
        found = examples.starting_at(done) if isinstance(examples, Indexed) else iter(examples)
        for first in found:
            block = itertools.chain([first], itertools.islice(found, BLOCK - 1))
            path = folder / _shard_name(name, split_name, len(journal.shards(split_name)))
            counted = _counted(block, journal.records(), expected, progress)
            journal.add(split_name, _write_shard(path, counted, features, serializer, spec))
        journal.complete(split_name)
    for split_name in splits:
        _name_shards(folder, name, split_name, len(journal.shards(split_name)))
    _describe(folder, name, features, {split_name: journal.shards(split_name) for split_name in splits})


def _features(spec: TaskSpec) -> tfds.features.FeaturesDict:
    channels = _channels(spec)
    sequence = {"symbols": _bytes_feature((None, *channels), spec.dtype)}
    match spec.kind:
        case TaskKind.CLASSIFICATION:
            target = {"label": tfds.features.ClassLabel(num_classes=spec.classes)}
        case TaskKind.TAGGING:
            assert spec.classes <= UNLABELLED
            target = {"labels": _bytes_feature((None,), "uint8")}
        case TaskKind.PAIRS:
            sequence["second"] = _bytes_feature((None, *channels), spec.dtype)
            target = {"label": tfds.features.ClassLabel(num_classes=spec.classes)}
        case TaskKind.LANGUAGE:
            target = {}
    return tfds.features.FeaturesDict({**sequence, **target})


def _bytes_feature(shape: tuple[int | None, ...], dtype: str) -> tfds.features.Tensor:
    return tfds.features.Tensor(shape=shape, dtype=np.dtype(dtype), encoding=tfds.features.Encoding.BYTES)


def _counted(examples: Iterable[Example], before: int, expected: int, progress: Progress) -> Iterator[Example]:
    for done, example in enumerate(examples, before + 1):
        yield example
        progress("write", done, expected)


def _shard_name(name: str, split_name: str, number: int, shards: int | None = None) -> str:
    whole = "" if shards is None else f"-of-{shards:05d}"
    return f"{name}-{split_name}.array_record-{number:05d}{whole}"


def _name_shards(folder: Path, name: str, split_name: str, shards: int) -> None:
    """Gives every shard its last name, which says how many there are."""
    for number in range(shards):
        path = folder / _shard_name(name, split_name, number)
        if path.exists():
            path.rename(folder / _shard_name(name, split_name, number, shards))


def _write_shard(
    path: Path,
    examples: Iterable[Example],
    features: tfds.features.FeaturesDict,
    serializer: example_serializer.ExampleSerializer,
    spec: TaskSpec,
) -> Shard:
    count = size = 0
    try:
        writer = array_record_module.ArrayRecordWriter(str(path), GROUP_SIZE)

        def written() -> Iterator[Example]:
            nonlocal count, size
            for example in examples:
                # Protobuf maps have no order of their own: without `deterministic` the bytes differ between runs.
                encoded = serializer.get_tf_example(features.encode_example(_as_features(example, spec)))
                record = encoded.SerializeToString(deterministic=True)
                writer.write(record)
                count, size = count + 1, size + len(record)
                yield example

        sha256 = digest_of(written())
        writer.close()  # a full disk shows here
    except RuntimeError as error:
        raise DataError(f"cannot write {path}: {first_line(error)}") from error
    return Shard(count, size, sha256)


def _as_features(example: Example, spec: TaskSpec) -> dict[str, np.ndarray | int]:
    found: dict[str, np.ndarray | int] = {"symbols": _as_stored(example.values, spec)}
    if example.second is not None:
        found["second"] = _as_stored(example.second, spec)
    if isinstance(example.label, np.ndarray):
        found["labels"] = np.where(example.label == NO_LABEL, UNLABELLED, example.label).astype(np.uint8)
    elif example.label is not None:
        found["label"] = int(example.label)
    return found


def _as_stored(sequence: np.ndarray, spec: TaskSpec) -> np.ndarray:
    return np.ascontiguousarray(sequence, spec.dtype).reshape(-1, *_channels(spec))


def _channels(spec: TaskSpec) -> tuple[int, ...]:
    return () if spec.input_kind is InputKind.TOKENS else (spec.input_width,)


def _describe(
    folder: Path, name: str, features: tfds.features.FeaturesDict, shards: Mapping[str, Sequence[Shard]]
) -> None:
    keys = [("symbols", target) for target in ("label", "labels") if target in features]
    identity = dataset_info.DatasetIdentity(
        name=name, version=tfds.core.Version("1.0.0"), data_dir=str(folder), module_name="data.store"
    )
    info = dataset_info.DatasetInfo(
        builder=identity,
        features=features,
        supervised_keys=keys[0] if keys else None,
        disable_shuffling=True,
    )
    info.set_file_format("array_record")
    infos = [
        tfds_splits.SplitInfo(split_name, [shard.records for shard in found], sum(shard.bytes for shard in found))
        for split_name, found in shards.items()
    ]
    info.set_splits(tfds_splits.SplitDict(infos))
    info.write_to_directory(folder)


# Reading.


class Place(NamedTuple):
    """The shards of one or several stored splits, in order, the number of records in each, and the bytes of all."""

    paths: tuple[Path, ...]
    counts: tuple[int, ...]
    bytes: int


def place_of(folder: Path, manifest: dict, split_names: Sequence[str]) -> Place:
    """Where the records of some stored splits lie."""
    paths, counts = [], []
    for name in split_names:
        prefix, total = f"{manifest['name']}-{name}.", manifest["counts"][name]
        found = sorted(file for file in manifest["files"] if file.startswith(prefix))
        if len(found) != -(-total // BLOCK):
            raise DataError(f"{folder}: split {name} has {len(found)} shards for {total} records: prepare it again")
        paths += [folder / file for file in found]
        counts += [min(BLOCK, total - BLOCK * number) for number in range(len(found))]
    return Place(tuple(paths), tuple(counts), sum(manifest["record_bytes"][name] for name in split_names))


def read(place: Place, spec: TaskSpec, length: int) -> "MemorySplit | StoredSplit":
    """A split, in memory if it is not too large, its records padded to `length` later.

    Raises DataError for records that cannot be read.
    """
    stored = StoredSplit(place, spec, length)
    if place.bytes > IN_MEMORY_BYTES:
        return stored
    return MemorySplit.from_examples(stored.examples(), length)


class StoredSplit:
    """A split that stays on disk: only the records that are asked for are read."""

    def __init__(self, place: Place, spec: TaskSpec, length: int) -> None:
        self.length = length
        self._place, self._spec = place, spec
        self._ends = list(itertools.accumulate(place.counts))
        self._readers: dict[int, array_record_module.ArrayRecordReader] = {}
        self._lock = threading.Lock()  # batches are drawn ahead in a thread

    def __len__(self) -> int:
        return self._ends[-1]

    def gather(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """The records at `indices` as one padded batch."""
        with self._lock:
            return collate([self._read_one(int(index)) for index in indices], self.length)

    def example(self, index: int) -> Example:
        """One record."""
        with self._lock:
            return self._read_one(index)

    def examples(self) -> Iterator[Example]:
        """All records in order. Decodes them itself: `as_data_source` gives the same and takes five times as long."""
        for path, expected in zip(self._place.paths, self._place.counts, strict=True):
            try:
                reader = array_record_module.ArrayRecordReader(str(path))
                if (found := reader.num_records()) != expected:
                    raise DataError(f"{path} has {found} records instead of {expected}")
                for start in range(0, expected, READ_AT_ONCE):
                    for record in reader.read(list(range(start, min(start + READ_AT_ONCE, expected)))):
                        yield _decode(record, self._spec)
                reader.close()
            except RuntimeError as error:
                raise DataError(f"{path} is damaged: {first_line(error)}") from error

    def _read_one(self, index: int) -> Example:
        shard = bisect.bisect_right(self._ends, index)
        path = self._place.paths[shard]
        try:
            if shard not in self._readers:
                self._readers[shard] = array_record_module.ArrayRecordReader(str(path))
            (record,) = self._readers[shard].read([index - self._ends[shard] + self._place.counts[shard]])
        except RuntimeError as error:
            raise DataError(f"{path} is damaged: {first_line(error)}") from error
        return _decode(record, self._spec)


def _decode(record: bytes, spec: TaskSpec) -> Example:
    feature = tf_example_pb2.Example.FromString(record).features.feature  # pyright: ignore[reportAttributeAccessIssue]
    channels = _channels(spec)

    def sequence(key: str) -> np.ndarray:
        return np.frombuffer(feature[key].bytes_list.value[0], spec.dtype).reshape(-1, *channels)

    match spec.kind:
        case TaskKind.CLASSIFICATION:
            return Example(sequence("symbols"), feature["label"].int64_list.value[0])
        case TaskKind.TAGGING:
            labels = np.frombuffer(feature["labels"].bytes_list.value[0], np.uint8).astype(np.int32)
            return Example(sequence("symbols"), np.where(labels == UNLABELLED, np.int32(NO_LABEL), labels))
        case TaskKind.PAIRS:
            return Example(sequence("symbols"), feature["label"].int64_list.value[0], sequence("second"))
        case TaskKind.LANGUAGE:
            return Example(sequence("symbols"), None)
