"""The door to the data: one line per data set, and what a training run or a preparation asks of any of them.

A data set is a module with the functions of `DataSet`; to add one, write it and add its line to `DATA_SETS`.
`data.store` is imported where it is used: asking for a task_spec or a smoke sample stays fast and needs no TFDS.
"""

import difflib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from data import listops, probes
from data.errors import DataError
from data.examples import About, Choice, Example, Generated, Indexed
from data.folders import Journal, create
from data.manifest import check_hashes, code_sha256, manifest_of, read_manifest, save_manifest
from data.parallel import Progress, silent
from data.sources import SourceFile, Sources
from data.spec import DataRequest, TaskKind, TaskSpec
from data.splits import MemorySplit, Split, content_sha256

Baselines = dict[str, dict[str, float]]


class DataSet(Protocol):
    """What the module of a data set offers. All raise DataError for a request that makes no sense.

    Splits are `data.splits.Split`s; those of a set that always fits into memory are `MemorySplit`s.
    """

    @property
    def CHOICES(self) -> Mapping[str, Mapping[str, Choice]]:
        """Task -> name -> the ways in which it can be made or read."""
        ...

    def about(self, request: DataRequest, /) -> About:
        """Source, licence and sizes."""
        ...

    def task_spec(self, request: DataRequest, /) -> TaskSpec:
        """The shape of the task; needs no data."""
        ...

    def sources(self, request: DataRequest, /) -> tuple[SourceFile, ...]:
        """What is downloaded or looked for; none for what is generated."""
        ...

    def generate(self, request: DataRequest, sources: Sources, processes: int, progress: Progress, /) -> Generated:
        """The examples of all stored splits, and facts; the same whatever the number of processes."""
        ...

    def check(
        self, request: DataRequest, splits: Mapping[str, Any], facts: dict, processes: int, progress: Progress, /
    ) -> dict[str, float]:
        """Asserts what must hold of the stored records; returns statistics for the manifest."""
        ...

    def smoke(self, request: DataRequest, /) -> Mapping[str, Iterable[Example]]:
        """A tiny sample of the same form, made in memory: the stored splits."""
        ...

    def baselines(self, request: DataRequest, splits: Mapping[str, Any], /) -> Baselines:
        """Accuracy (or loss, see `data.guesses`) of simple guesses learned on train, for val and test."""
        ...


DATA_SETS: dict[str, DataSet] = {
    "listops": listops,
    **dict.fromkeys(probes.PROBES, probes),
}


class Opened(NamedTuple):
    """Data to train on and to score.

    content_sha256: of all stored records. baselines: accuracies of simple guesses for val and test. arrays: statistics
    of the training split. partial: whether it is only a part of the data set, or from a source that is not official.
    """

    spec: TaskSpec
    splits: Mapping[str, Split]
    content_sha256: str
    baselines: Baselines
    arrays: dict[str, np.ndarray]
    partial: bool


def task_spec(request: DataRequest) -> TaskSpec:
    """The shape of the task; needs no data. Raises DataError for a request that makes no sense."""
    return _data_set(request).task_spec(request)


def about(request: DataRequest) -> About:
    """Source, licence and sizes of a data set."""
    return _data_set(request).about(request)


def folder_of(request: DataRequest) -> str:
    """The folder of the prepared data below the data directory: "listops_24_96_limit6000".

    It names whatever decides about the records: what was chosen, unless it is the default, and what is partial.
    """
    known = choices(request.task)
    chosen = [value for name, value in sorted(request.choices) if known[name].stored and value != known[name].values[0]]
    part = [] if request.limit is None else [f"limit{request.limit}"]
    return "_".join([request.name, *chosen, *(["partial"] if request.partial else []), *part])


def is_partial(request: DataRequest) -> bool:
    """Whether what comes out is not the whole data set from its official source."""
    return request.partial or request.limit is not None


def choices(task: str) -> Mapping[str, Choice]:
    """The ways in which a task can be made or read. Raises DataError for an unknown one."""
    return _data_set(DataRequest(task)).CHOICES.get(task, {})


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
    processes = processes or os.cpu_count() or 1

    def write(temporary: Path) -> None:
        sources = Sources(data_source, data_dir / "downloads", partial=is_partial(request), progress=progress)
        generated = _data_set(request).generate(request, sources, processes, progress)
        manifest = _write(temporary, request, generated, progress)
        splits = _checked_content(temporary, manifest, request)
        manifest["statistics"] = _data_set(request).check(request, splits, manifest, processes, progress)
        manifest["baselines"] = _data_set(request).baselines(request, _read(temporary, manifest, request))
        save_manifest(temporary, manifest)

    if not (folder := data_dir / folder_of(request)).exists():
        create(folder, write, progress)
    return _manifest(request, data_dir)


def _write(folder: Path, request: DataRequest, generated: Generated, progress: Progress) -> dict:
    """Writes the shards and the arrays. Returns the manifest as far as it can be known then."""
    from data import store

    name, asked = folder_of(request), _stored_request(request)
    resumable = all(isinstance(examples, Indexed) for examples in generated.splits.values())
    journal = Journal(folder, json.dumps([asked, code_sha256()]), resumable=resumable)
    store.write(folder, name, generated.splits, task_spec(request), journal, progress, generated.expected)
    journal.close()
    arrays = generated.arrays()
    for array_name, array in arrays.items():
        np.save(folder / f"{array_name}.npy", array, allow_pickle=False)
    facts = {"request": asked, "partial": is_partial(request), "arrays": sorted(arrays)}
    shards = {split: journal.shards(split) for split in generated.splits}
    return manifest_of(folder, name, shards, facts | generated.facts())


def verify(request: DataRequest, data_dir: Path, *, processes: int | None = None, progress: Progress = silent) -> dict:
    """Looks at prepared data again: the sha256 of every file, of the content, and all that `prepare` asserted.

    Returns the manifest. Raises DataError for the first thing that is not as it should be.
    """
    folder, manifest = data_dir / folder_of(request), _manifest(request, data_dir)
    check_hashes(folder, manifest, progress)
    splits = _checked_content(folder, manifest, request)
    _data_set(request).check(request, splits, manifest, processes or os.cpu_count() or 1, progress)
    return manifest


def _checked_content(folder: Path, manifest: dict, request: DataRequest) -> dict[str, Split]:
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


def open_data(request: DataRequest, data_dir: Path) -> Opened:
    """The prepared splits "train", "val", "test": in memory, or on disk if they are large.

    Raises DataError if they are missing (naming the command that makes them) or damaged.
    """
    folder, manifest = data_dir / folder_of(request), _manifest(request, data_dir)
    arrays = {name: np.load(folder / f"{name}.npy", allow_pickle=False) for name in manifest["arrays"]}
    return Opened(
        task_spec(request),
        _read(folder, manifest, request),
        manifest["content_sha256"],
        manifest["baselines"],
        arrays,
        manifest["partial"],
    )


def _read(folder: Path, manifest: dict, request: DataRequest) -> dict[str, Split]:
    from data import store

    spec = task_spec(request)
    return {
        name: store.read(store.place_of(folder, manifest, stored), spec, spec.length_of(name))
        for name, stored in _views(request).items()
    }


def smoke_data(request: DataRequest) -> Opened:
    """A tiny sample made in memory, of the same task_spec as the real data."""
    spec, made = task_spec(request), _data_set(request).smoke(request)
    stored = {name: MemorySplit.from_examples(examples, spec.length_of(name)) for name, examples in made.items()}
    splits = {name: stored[first] for name, (first, *_) in _views(request).items()}
    return Opened(spec, splits, content_sha256(stored), _data_set(request).baselines(request, splits), {}, partial=True)


def _views(request: DataRequest) -> dict[str, tuple[str, ...]]:
    """The stored splits that train, val and test consist of.

    A text has no test split: what is validated on is also what is reported. `test_selected` is the published policy of
    a task without validation data: all of them are trained on, and the epoch is chosen on the test split.
    """
    if task_spec(request).kind is TaskKind.LANGUAGE:
        return {"train": ("train",), "val": ("val",), "test": ("val",)}
    if ("policy", "test_selected") in request.choices:
        return {"train": ("train", "val"), "val": ("test",), "test": ("test",)}
    return {"train": ("train",), "val": ("val",), "test": ("test",)}


def _data_set(request: DataRequest) -> DataSet:
    if request.task not in DATA_SETS:
        near = difflib.get_close_matches(request.task, DATA_SETS, n=1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        raise DataError(f"unknown data set {request.task!r}{hint} (known: {', '.join(DATA_SETS)})")
    known = DATA_SETS[request.task].CHOICES.get(request.task, {})
    for name, value in request.choices:
        if name not in known:
            raise DataError(f"{request.task} has no choice {name!r} (it has: {', '.join(known) or 'none'})")
        if value not in known[name].values:
            raise DataError(f"{name}={value!r}: expected one of {', '.join(known[name].values)}")
    return DATA_SETS[request.task]


def _stored_request(request: DataRequest) -> dict:
    """What decides about the records."""
    known = choices(request.task)
    chosen = {name: choice.values[0] for name, choice in known.items() if choice.stored}
    chosen |= {name: value for name, value in request.choices if known[name].stored}
    window = list(request.length_window) if request.length_window else None
    return {"task": request.task, "length_window": window, "limit": request.limit, "choices": chosen}


def _manifest(request: DataRequest, data_dir: Path) -> dict:
    stored = {name for names in _views(request).values() for name in names}
    return read_manifest(data_dir / folder_of(request), folder_of(request), stored, _remedy(request, data_dir))


def _remedy(request: DataRequest, data_dir: Path) -> str:
    """The command that prepares the request."""
    known = choices(request.task)
    parts = [f"run: python -m scripts.prepare_data {request.task} --data_dir={data_dir}"]
    if request.length_window is not None:
        low, high = request.length_window
        parts.append(f"--length_window={low}:{high}")
    parts += [f"--{name}={value}" for name, value in request.choices if known[name].stored]
    if request.partial:
        parts.append("--partial")
    if request.limit is not None:
        parts.append(f"--limit={request.limit}")
    return " ".join(parts)
