"""The format on disk: one folder per prepared data set, readable by anyone with
`tfds.builder_from_directory(folder).as_data_source("train")`, and a manifest that says what must be in it.

The shards are written here rather than by a `GeneratorBasedBuilder`, which holds a split in memory and gives other
bytes in every run. A folder is written under a hidden name beside its place and renamed when all is in it: what has
its name is complete. This is the only module that knows TensorFlow Datasets and array_record.
"""

import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]  a compiled module
from tensorflow_datasets.core import dataset_info, example_serializer
from tensorflow_datasets.core import splits as tfds_splits
from tensorflow_datasets.proto import tf_example_pb2

from data.batching import Split, content_sha256
from data.errors import DataError
from data.parallel import Progress
from data.spec import NO_LABEL, TaskKind, TaskSpec

MANIFEST = "manifest.json"
SHARD_RECORDS = 16_384
UNLABELLED = 255  # a step without a label, in a byte
LIBRARIES = ("numpy", "tensorflow-datasets", "array_record")
GROUP_SIZE = "group_size:1"  # one record a block: what the public readers expect


def default_data_dir() -> Path:
    """$LINREC_DATA, or ~/.cache/linrec."""
    return Path(os.environ.get("LINREC_DATA") or "~/.cache/linrec").expanduser()


# A folder appears at once or not at all.


def create(folder: Path, write: Callable[[Path], None], progress: Progress) -> None:
    """Makes `folder` by write(temporary folder) and a rename, unless another process has made it meanwhile.

    Preparations of one folder wait for one another at a lock that ends with its process; what a killed one left behind
    is removed by the next. Raises DataError if the place cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_name(f".{folder.name}.lock"), progress):
            if folder.exists():
                return
            for left_behind in folder.parent.glob(f".{folder.name}.preparing-*"):
                shutil.rmtree(left_behind)
            temporary = folder.with_name(f".{folder.name}.preparing-{os.getpid()}")
            temporary.mkdir()
            try:
                write(temporary)
                temporary.rename(folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise DataError(f"cannot write {folder}: {error.strerror or error}") from error


@contextlib.contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("wait for another process that prepares the same data", 0, 1)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


# Writing.


def write(folder: Path, name: str, splits: dict[str, Split], classes: int, progress: Progress) -> None:
    """Writes the shards of all splits and TFDS's description of them. The same records give the same bytes.

    Features: symbols (None,) uint8, and label, one of `classes`, or labels (None,) uint8 of the steps, with UNLABELLED
    where there is none. Raises DataError if a file cannot be written.
    """
    per_step = next(iter(splits.values())).per_step
    assert classes <= UNLABELLED
    target = {"labels": _bytes_feature()} if per_step else {"label": tfds.features.ClassLabel(num_classes=classes)}
    features = tfds.features.FeaturesDict({"symbols": _bytes_feature(), **target})
    total, done, infos = sum(map(len, splits.values())), 0, []
    for split_name, split in splits.items():
        starts = range(0, len(split), SHARD_RECORDS)
        shards = [split.slice(start, min(start + SHARD_RECORDS, len(split))) for start in starts]
        written = 0
        for number, shard in enumerate(shards):
            written += _write_shard(folder / _shard_name(name, split_name, number, len(shards)), shard, features)
            done += len(shard)
            progress("write", done, total)
        infos.append(tfds_splits.SplitInfo(split_name, [len(shard) for shard in shards], written))
    _describe(folder, name, features, infos)


def _bytes_feature() -> tfds.features.Tensor:
    return tfds.features.Tensor(shape=(None,), dtype=np.dtype(np.uint8), encoding=tfds.features.Encoding.BYTES)


def _shard_name(name: str, split_name: str, number: int, shards: int) -> str:
    return f"{name}-{split_name}.array_record-{number:05d}-of-{shards:05d}"


def _write_shard(path: Path, shard: Split, features: tfds.features.FeaturesDict) -> int:
    """Returns the number of bytes of all records before compression."""
    serializer = example_serializer.ExampleSerializer(features.get_serialized_info())  # pyright: ignore[reportArgumentType]
    written = 0
    try:
        writer = array_record_module.ArrayRecordWriter(str(path), GROUP_SIZE)
        for index in range(len(shard)):
            place = slice(shard.offsets[index], shard.offsets[index + 1])
            if shard.per_step:
                labels = np.where(shard.labels[place] == NO_LABEL, UNLABELLED, shard.labels[place])
                target = {"labels": labels.astype(np.uint8)}
            else:
                target = {"label": int(shard.labels[index])}
            example = features.encode_example({"symbols": shard.symbols[place], **target})
            # Protobuf maps have no order of their own: without `deterministic` the bytes differ between runs.
            record = serializer.get_tf_example(example).SerializeToString(deterministic=True)
            writer.write(record)
            written += len(record)
        writer.close()  # a full disk shows here
    except RuntimeError as error:
        raise DataError(f"cannot write {path}: {_first_line(error)}") from error
    return written


def _describe(folder: Path, name: str, features: tfds.features.FeaturesDict, infos: list) -> None:
    target = "labels" if "labels" in features else "label"
    identity = dataset_info.DatasetIdentity(
        name=name, version=tfds.core.Version("1.0.0"), data_dir=str(folder), module_name="data.store"
    )
    info = dataset_info.DatasetInfo(
        builder=identity, features=features, supervised_keys=("symbols", target), disable_shuffling=True
    )
    info.set_file_format("array_record")
    info.set_splits(tfds_splits.SplitDict(infos))
    info.write_to_directory(folder)


def manifest_of(folder: Path, name: str, splits: dict[str, Split], facts: dict) -> dict:
    """What must be in a written folder: name, counts, `facts` of the data set, sha256 of the content, size and sha256
    of each file, versions of the libraries and of the code. No time and no path: equal data have equal manifests."""
    files = {path.name: {"bytes": path.stat().st_size, "sha256": _sha256(path)} for path in sorted(folder.iterdir())}
    versions = {library: importlib.metadata.version(library) for library in LIBRARIES}
    return {
        "name": name,
        "counts": {split_name: len(split) for split_name, split in splits.items()},
        **facts,
        "content_sha256": content_sha256(splits),
        "files": files,
        "versions": {"python": platform.python_version(), **versions},
        "code_sha256": {path.name: _sha256(path) for path in sorted(Path(__file__).parent.glob("*.py"))},
    }


def save_manifest(folder: Path, manifest: dict) -> None:
    """Written last of all files."""
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


# Reading.


def read_manifest(folder: Path, name: str, remedy: str) -> dict:
    """The manifest of an intact folder: every file is there and has its size; `check_hashes` looks inside.

    Raises DataError, ending with `remedy`, if the folder is missing, damaged, or not the data set `name`.
    """
    if not folder.exists():
        raise DataError(f"no data in {folder}; {remedy}")
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(f"{folder} has no {MANIFEST}, so it is no prepared data set; move it away, then {remedy}")
    redo = f"delete {folder}, then {remedy}"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        found_name = manifest["name"]
        sizes = {file: entry["bytes"] for file, entry in manifest["files"].items()}
        _require_shape(manifest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is damaged ({_first_line(error)}); {redo}") from error
    if found_name != name:
        raise DataError(f"{folder} holds {found_name!r} and not {name!r}; move it away, then {remedy}")
    for file, size in sizes.items():
        if not (folder / file).is_file():
            raise DataError(f"{folder / file} is missing; {redo}")
        if (found := (folder / file).stat().st_size) != size:
            raise DataError(f"{folder / file} has {found} bytes instead of {size}; {redo}")
    return manifest


def _require_shape(manifest: dict) -> None:
    """Raises KeyError or TypeError unless all is there that others read."""
    counts = [manifest["counts"][split] for split in ("train", "val", "test")]
    texts = [manifest["request"]["task"], manifest["content_sha256"]]
    texts += [entry["sha256"] for entry in manifest["files"].values()]
    if not all(isinstance(count, int) for count in counts) or not all(isinstance(text, str) for text in texts):
        raise TypeError("an entry of a wrong type")


def check_hashes(folder: Path, manifest: dict, progress: Progress) -> None:
    """Compares the sha256 of every file with the manifest. Raises DataError for the first that differs."""
    for done, (file, entry) in enumerate(manifest["files"].items(), 1):
        if (found := _sha256(folder / file)) != entry["sha256"]:
            raise DataError(f"{folder / file} has sha256 {found} instead of {entry['sha256']}: it is damaged")
        progress("hash", done, len(manifest["files"]))


def read(folder: Path, manifest: dict, spec: TaskSpec) -> dict[str, Split]:
    """All splits into memory, padded to the lengths of `spec` later. Raises DataError for records that cannot be read.

    Decodes the records itself: `as_data_source` gives the same arrays and takes five times as long.
    """
    return {name: _read_split(folder, manifest, name, spec) for name in manifest["counts"]}


def _read_split(folder: Path, manifest: dict, name: str, spec: TaskSpec) -> Split:
    per_step = spec.kind is TaskKind.TAGGING
    records: list[bytes] = []
    labels: list[Any] = []
    prefix = f"{manifest['name']}-{name}."
    for path in sorted(folder / file for file in manifest["files"] if file.startswith(prefix)):
        for feature in _read_shard(path):
            records.append(feature["symbols"].bytes_list.value[0])
            if per_step:
                labels.append(np.frombuffer(feature["labels"].bytes_list.value[0], np.uint8))
            else:
                labels.append(feature["label"].int64_list.value[0])
    if len(records) != manifest["counts"][name]:
        raise DataError(f"{folder}: split {name} has {len(records)} records instead of {manifest['counts'][name]}")
    if per_step:
        joined = np.concatenate(labels).astype(np.int32)
        return Split.from_records(
            records, np.where(joined == UNLABELLED, NO_LABEL, joined), spec.length_of(name), per_step=True
        )
    return Split.from_records(records, labels, spec.length_of(name))


def _read_shard(path: Path) -> Iterator:
    try:
        reader = array_record_module.ArrayRecordReader(str(path))
        for record in reader.read_all():
            example = tf_example_pb2.Example.FromString(record)  # pyright: ignore[reportAttributeAccessIssue]
            yield example.features.feature
        reader.close()
    except RuntimeError as error:
        raise DataError(f"{path} is damaged: {_first_line(error)}") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
