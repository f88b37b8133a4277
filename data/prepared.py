"""Prepared data: made once, looked at again, opened to train on.

`data.store` is imported where it is used: a smoke sample stays fast and needs no TFDS.
"""

import contextlib
import dataclasses
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data.arrays import parse_npy
from data.errors import DataError, first_line
from data.examples import Example, Generated, Indexed
from data.folders import Journal, create
from data.guesses import majority
from data.manifest import (
    MANIFEST,
    check_hashes,
    code_sha256,
    manifest_of,
    read_manifest,
    save_manifest,
    sha256_of,
)
from data.parallel import Progress, silent
from data.registry import (
    HasBaselines,
    HasNormalisation,
    HasSegments,
    HasTokenBytes,
    HasTokenizer,
    choices,
    data_set,
    folder_of,
    is_partial,
    remedy,
    task_spec,
)
from data.sources import Sources
from data.spec import DataRequest, TaskKind, TaskSpec
from data.splits import MemorySplit, Records, Shortened, Split, content_sha256
from data.tokens import Tokens
from data.windows import Packing, Windows, choice, evaluation_windows, read_records, training_windows

SMOKE_SAMPLES = (np.array([2**-15], np.float32), np.array([0], np.float32))
"""16-bit samples in [-1, 1), for want of statistics."""

Guesses = dict[str, dict[str, float]]
"""Split -> name -> accuracy, or loss of a text."""

Affine = tuple[np.ndarray, np.ndarray]
"""(scale, shift): x = v scale + shift for stored samples v."""


class Opened(NamedTuple):
    """Data to train on and to score.

    content_sha256: of all stored records. baselines: split -> name -> accuracy of a simple guess; of a text, losses in
    nats a token. affine: the normalisation by statistics of the training split, if it is not in `spec`. partial:
    whether it is only a part of the data set, or from a source that is not official. manifest_sha256: of the file that
    says all that is known of the data; "" for a smoke sample. token_bytes: (V,) int32, bytes of text that each id of
    a text stands for; None: ids are characters, or no text.
    """

    spec: TaskSpec
    splits: Mapping[str, Split]
    content_sha256: str
    baselines: Mapping[str, Mapping[str, float]]
    affine: Affine | None = None
    partial: bool = False
    manifest_sha256: str = ""
    token_bytes: np.ndarray | None = None


def prepare(
    request: DataRequest,
    data_dir: Path,
    *,
    data_source: Path | None = None,
    processes: int | None = None,
    progress: Progress = silent,
) -> dict:
    """Makes the data of `request` ready below `data_dir` and returns its manifest; at once if they are ready.

    What is checked are the records read back from the files. Whether this process is killed or another one prepares
    the same data, the folder has its name only when it is complete. `processes` (default: all cores) changes no byte.
    data_source: a folder with files that need not be downloaded. Raises DataError for a bad request, a source that is
    missing or not official, a folder that is foreign or damaged, a failed check, an unwritable place.
    """
    task_spec(request)  # refuse nonsense before anything is touched
    request = _as_stored(request)
    processes = processes or os.cpu_count() or 1

    def write(temporary: Path) -> None:
        sources = Sources(data_source, data_dir / "downloads", partial=is_partial(request), progress=progress)
        generated = data_set(request).generate(request, sources, processes, progress)
        manifest = _write(temporary, request, generated, progress)
        splits = _checked_content(temporary, manifest, request)
        manifest["statistics"] = data_set(request).check(request, splits, manifest, processes, progress)
        manifest["baselines"] = _baselines(request, manifest, splits)
        save_manifest(temporary, manifest)

    if not (folder := data_dir / folder_of(request)).exists():
        create(folder, write, progress)
    return _manifest(request, data_dir)


def _write(folder: Path, request: DataRequest, generated: Generated, progress: Progress) -> dict:
    """Writes the shards and the arrays. Returns the manifest as far as it can be known then."""
    from data import store

    name, asked, spec = folder_of(request), _stored_request(request), task_spec(request)
    lengths: dict[str, list[int]] = {split: [] for split in generated.splits}
    splits = generated.splits
    if spec.kind is TaskKind.LANGUAGE:  # where a window lies cannot be known without them
        splits = {split: _measured(examples, lengths[split]) for split, examples in splits.items()}
    resumable = all(isinstance(examples, Indexed) for examples in splits.values())
    journal = Journal(folder, json.dumps([asked, code_sha256()]), resumable=resumable)
    store.write(folder, name, splits, spec, journal, progress, generated.expected)
    journal.close()
    arrays = generated.arrays() | {f"{split}_lengths": np.array(found) for split, found in lengths.items() if found}
    for array_name, array in arrays.items():
        np.save(folder / f"{array_name}.npy", array, allow_pickle=False)
    facts = {"request": asked, "partial": is_partial(request), "arrays": sorted(arrays)}
    shards = {split: journal.shards(split) for split in generated.splits}
    return manifest_of(folder, name, shards, facts | generated.facts())


def _measured(examples: Iterable[Example], lengths: list[int]) -> Iterator[Example]:
    for example in examples:
        lengths.append(len(example.values))
        yield example


def verify(request: DataRequest, data_dir: Path, *, processes: int | None = None, progress: Progress = silent) -> dict:
    """Looks at prepared data again: the sha256 of every file, of the content, and all that `prepare` asserted.

    Returns the manifest. Raises DataError for the first thing that is not as it should be.
    """
    request = _as_stored(request)
    folder, manifest = data_dir / folder_of(request), _manifest(request, data_dir)
    check_hashes(folder, manifest, progress)
    splits = _checked_content(folder, manifest, request)
    open_task(request, data_dir)  # refuses what no model can be built with
    with _making_sense(request, folder):
        found = {
            "statistics": data_set(request).check(
                request, splits, manifest, processes or os.cpu_count() or 1, progress
            ),
            "baselines": _baselines(request, manifest, splits),
        }
    for what, values in found.items():
        if manifest[what] != json.loads(json.dumps(values)):
            raise DataError(
                f"{folder / MANIFEST}: {what} are not those of the records; delete {folder}, prepare it again"
            )
    return manifest


@contextlib.contextmanager
def _making_sense(request: DataRequest, folder: Path) -> Iterator[None]:
    """Turns what a manifest leads to whose entries of this data set are missing or others into one line.

    What all manifests have was looked at when it was read, and one with a seal is what was written.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise DataError(
            f"{folder / MANIFEST} is damaged ({type(error).__name__}: {first_line(error)}); "
            f"delete {folder}, then {remedy(request, folder.parent)}"
        ) from error


def _checked_content(folder: Path, manifest: dict, request: DataRequest) -> Mapping[str, Records]:
    """The stored splits, read back and compared with the manifest."""
    from data import store

    spec = task_spec(request)
    splits = {
        name: store.read(store.place_of(folder, manifest, [name]), spec, spec.length_of(name))
        for name in manifest["counts"]
    }
    if (found := content_sha256(splits)) != manifest["content_sha256"]:
        raise DataError(f"{folder}: content has sha256 {found} instead of {manifest['content_sha256']}")
    return splits


def open_task(request: DataRequest, data_dir: Path) -> tuple[TaskSpec, Affine | None]:
    """`Opened.spec` and `Opened.affine` of prepared data, before a record is read. Raises DataError as `open_data`."""
    folder, manifest = data_dir / folder_of(request), _manifest(request, data_dir)
    return _spec(request, manifest), _affine(request, folder, manifest)


def fixed_task(request: DataRequest) -> TaskSpec | None:
    """`Opened.spec` if nothing but the request decides it; None if a vocabulary or statistics come with the data."""
    spec = task_spec(request)
    comes_with_data = spec.kind is TaskKind.LANGUAGE or isinstance(data_set(request), HasNormalisation)
    return None if comes_with_data else spec


def open_data(request: DataRequest, data_dir: Path) -> Opened:
    """The prepared splits "train", "val", "test": in memory, or on disk if they are large.

    Raises DataError if they are missing (naming the command that makes them) or damaged.
    """
    folder, manifest = data_dir / folder_of(request), _manifest(request, data_dir)
    spec = _spec(request, manifest)
    return Opened(
        spec,
        _read(folder, manifest, request),
        manifest["content_sha256"],
        _as_read(request, spec, manifest["baselines"]),
        _affine(request, folder, manifest),
        manifest["partial"],
        sha256_of(folder / MANIFEST),
        _array(folder, manifest, "token_bytes") if isinstance(data_set(request), HasTokenBytes) else None,
    )


def open_tokenizer(request: DataRequest, data_dir: Path) -> Tokens:
    """Between text and the ids of prepared data. Raises DataError if they are missing, damaged or no text."""
    folder, manifest = data_dir / folder_of(request), _manifest(request, data_dir)
    return _text(request).tokenizer(request, manifest, _arrays(folder, manifest))


def smoke_tokenizer(request: DataRequest) -> Tokens:
    """Between text and the ids of a smoke sample. Raises DataError for what is no text."""
    return _text(request).smoke_tokenizer(request)


def _text(request: DataRequest) -> HasTokenizer:
    module = data_set(request)
    if not isinstance(module, HasTokenizer):
        raise DataError(f"{request.task} is no text")
    return module


def _spec(request: DataRequest, manifest: dict) -> TaskSpec:
    """The shape of the task; how many ids a text has may be known only now."""
    spec = task_spec(request)
    if spec.kind is TaskKind.LANGUAGE:
        size, most = manifest.get("vocabulary_size"), np.iinfo(spec.dtype).max + 1
        if type(size) is not int or not 1 <= size <= most:
            raise DataError(
                f"the manifest of {folder_of(request)} has no vocabulary_size of 1..{most}; "
                "delete it and prepare it again"
            )
        return dataclasses.replace(spec, input_width=size, classes=size)
    return spec


def _affine(request: DataRequest, folder: Path, manifest: dict) -> Affine | None:
    module = data_set(request)
    if not isinstance(module, HasNormalisation):
        return None
    with _making_sense(request, folder):
        found = module.normalisation_arrays(request, _arrays(folder, manifest))
    scale, shift = (array if array.ndim == 1 else array[: request.steps] for array in found)
    return scale, shift


def _arrays(folder: Path, manifest: dict) -> dict[str, np.ndarray]:
    return {name: _array(folder, manifest, name) for name in manifest["arrays"]}


def _array(folder: Path, manifest: dict, name: str) -> np.ndarray:
    """An array that came with the data; it is small, so that its bytes are compared at every opening."""
    path = folder / f"{name}.npy"
    entry = manifest["files"].get(path.name)
    if entry is None or sha256_of(path) != entry["sha256"]:
        raise DataError(f"{path} is damaged; delete {folder}, then prepare it again")
    return parse_npy(path.read_bytes(), str(path))


def _read(folder: Path, manifest: dict, request: DataRequest) -> dict[str, Split]:
    from data import store

    spec, splits = _spec(request, manifest), {}
    for name, stored in _views(spec.kind, request).items():
        if name == "test" and stored == _views(spec.kind, request)["val"]:
            splits[name] = splits["val"]
            continue
        place = store.place_of(folder, manifest, stored)
        if spec.kind is TaskKind.LANGUAGE:
            lengths = _array(folder, manifest, f"{stored[0]}_lengths")
            splits[name] = _windows(request, spec, store.read(place, spec, spec.length), lengths, name)
        else:
            splits[name] = _cut(request, store.read(place, spec, _full_spec(request).length_of(name)))
    return splits


def _as_stored(request: DataRequest) -> DataRequest:
    """Without what changes only how the data are read."""
    known = choices(request.task)
    made = tuple((name, value) for name, value in request.choices if known[name].stored)
    return dataclasses.replace(request, choices=made, steps=None)


def _full_spec(request: DataRequest) -> TaskSpec:
    """The task as it is stored."""
    return task_spec(_as_stored(request))


def _cut(request: DataRequest, split: Split) -> Split:
    return split if request.steps is None else Shortened(split, request.steps)


def smoke_task(request: DataRequest) -> tuple[TaskSpec, Affine | None]:
    """`Opened.spec` and `Opened.affine` of a smoke sample."""
    return task_spec(request), SMOKE_SAMPLES if isinstance(data_set(request), HasNormalisation) else None


def smoke_data(request: DataRequest) -> Opened:
    """A tiny sample made in memory, of the same task_spec as the real data."""
    (spec, affine), made = smoke_task(request), data_set(request).smoke(request)
    full = _full_spec(request)
    stored = {name: MemorySplit.from_examples(examples, full.length_of(name)) for name, examples in made.items()}
    splits: dict[str, Split] = {}
    for name, (first, *_) in _views(spec.kind, request).items():
        split = stored[first]
        is_text = spec.kind is TaskKind.LANGUAGE
        splits[name] = _windows(request, spec, split, np.diff(split.offsets), name) if is_text else _cut(request, split)
    guesses = _as_read(request, spec, _baselines(request, {}, stored))
    module = data_set(request)
    sizes = module.smoke_token_bytes(request) if isinstance(module, HasTokenBytes) else None
    return Opened(spec, splits, content_sha256(stored), guesses, affine, partial=True, token_bytes=sizes)


def _windows(request: DataRequest, spec: TaskSpec, stored: Records, lengths: np.ndarray, name: str) -> Windows:
    """The windows of a text whose stored records have so many ids."""
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    packing = choice(request, "packing", Packing)
    make = training_windows if name == "train" else evaluation_windows
    module = data_set(request)
    assert isinstance(module, HasSegments)
    segments = module.segments(request, offsets)
    if isinstance(stored, MemorySplit):
        return make(lambda start, stop: stored.symbols[start:stop], segments, spec.length, packing)
    return make(read_records(lambda index: stored.example(index).values, offsets), segments, spec.length, packing)


def _baselines(request: DataRequest, manifest: dict, splits: Mapping[str, Records]) -> Guesses:
    if task_spec(request).kind is TaskKind.LANGUAGE:
        uniform = {"val_uniform_loss": math.log(task_spec(request).classes)}
        found = manifest.get("statistics", uniform).items()
        losses = {name.removeprefix("val_"): value for name, value in found if re.fullmatch("val_.*_loss", name)}
        return {"val": losses, "test": losses}
    if isinstance(module := data_set(request), HasBaselines):
        return module.baselines(request, splits)
    return majority(splits)


def _as_read(request: DataRequest, spec: TaskSpec, baselines: Guesses) -> Guesses:
    """The guesses on what is validated and tested on, from those on the stored splits."""
    views = _views(spec.kind, request)
    return {name: baselines[views[name][0]] for name in ("val", "test")}


def _views(kind: TaskKind, request: DataRequest) -> dict[str, tuple[str, ...]]:
    """The stored splits that train, val and test consist of.

    A text has no test split: what is validated on is also what is reported. `test_selected` is the published policy of
    a task without validation data: all of them are trained on, and the epoch is chosen on the test split.
    """
    if kind is TaskKind.LANGUAGE:
        return {"train": ("train",), "val": ("val",), "test": ("val",)}
    if ("policy", "test_selected") in request.choices:
        return {"train": ("train", "val"), "val": ("test",), "test": ("test",)}
    return {"train": ("train",), "val": ("val",), "test": ("test",)}


def _stored_request(request: DataRequest) -> dict:
    """What decides about the records."""
    known = choices(request.task)
    chosen = {name: choice.values[0] for name, choice in known.items() if choice.stored}
    chosen |= {name: value for name, value in request.choices if known[name].stored}
    window = list(request.length_window) if request.length_window else None
    return {"task": request.task, "length_window": window, "limit": request.limit, "choices": chosen}


def _manifest(request: DataRequest, data_dir: Path) -> dict:
    stored = {name for names in _views(task_spec(request).kind, request).values() for name in names}
    return read_manifest(data_dir / folder_of(request), folder_of(request), stored, remedy(request, data_dir))
