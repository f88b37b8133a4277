"""The door to the data: one line per data set, and what a training run or a preparation asks of any of them.

A data set is a module with the functions of `DataSet`; to add one, write it and add its line to `DATA_SETS`.
`data.store` is imported where it is used: asking for a task_spec or a smoke sample stays fast and needs no TFDS.
"""

import dataclasses
import difflib
import os
from pathlib import Path
from typing import Protocol

from data import listops, probes
from data.batching import Split, content_sha256
from data.errors import DataError
from data.parallel import Progress, silent
from data.spec import DataRequest, TaskSpec


class DataSet(Protocol):
    """What the module of a data set offers. All raise DataError for a request that makes no sense."""

    def task_spec(self, request: DataRequest, /) -> TaskSpec:
        """The shape of the task; needs no data."""
        ...

    def generate(self, request: DataRequest, processes: int, progress: Progress, /) -> tuple[dict[str, Split], dict]:
        """The splits train, val, test, and facts for the manifest; the same whatever the number of processes."""
        ...

    def check(
        self, request: DataRequest, splits: dict[str, Split], facts: dict, processes: int, progress: Progress, /
    ) -> dict[str, float]:
        """Asserts what must hold of the stored records; returns statistics for the manifest."""
        ...

    def smoke(self, request: DataRequest, /) -> dict[str, Split]:
        """A tiny sample of the same shape, made in memory."""
        ...

    def baselines(self, splits: dict[str, Split], /) -> dict[str, dict[str, float]]:
        """Accuracy of simple guesses learned on train, for val and test."""
        ...


DATA_SETS: dict[str, DataSet] = {
    "listops": listops,
    **dict.fromkeys(probes.PROBES, probes),
}


def task_spec(request: DataRequest) -> TaskSpec:
    """The shape of the task; needs no data. Raises DataError for a request that makes no sense."""
    return _data_set(request).task_spec(request)


def prepare(request: DataRequest, data_dir: Path, *, processes: int | None = None, progress: Progress = silent) -> dict:
    """Makes the data of `request` ready below `data_dir` and returns its manifest; at once if they are ready.

    What is checked are the records read back from the files. Whether this process is killed or another one prepares
    the same data, the folder has its name only when it is complete. `processes` (default: all cores) changes no byte.
    Raises DataError for a bad request, a folder that is foreign or damaged, a failed check, an unwritable place.
    """
    from data import store

    data_set, spec, folder = _data_set(request), task_spec(request), data_dir / request.folder
    processes = processes or os.cpu_count() or 1

    def write(temporary: Path) -> None:
        splits, facts = data_set.generate(request, processes, progress)
        store.write(temporary, request.folder, splits, spec.classes, progress)
        facts = {"request": dataclasses.asdict(request), **facts}
        manifest = store.manifest_of(temporary, request.folder, splits, facts)
        manifest["statistics"] = _check_content(request, temporary, manifest, processes, progress)
        store.save_manifest(temporary, manifest)

    if not folder.exists():
        store.create(folder, write, progress)
    return store.read_manifest(folder, request.folder, _remedy(request, data_dir))


def verify(request: DataRequest, data_dir: Path, *, processes: int | None = None, progress: Progress = silent) -> dict:
    """Looks at prepared data again: the sha256 of every file, of the content, and all that `prepare` asserted.

    Returns the manifest. Raises DataError for the first thing that is not as it should be.
    """
    from data import store

    folder, remedy = data_dir / request.folder, _remedy(request, data_dir)
    manifest = store.read_manifest(folder, request.folder, remedy)
    store.check_hashes(folder, manifest, progress)
    _check_content(request, folder, manifest, processes or os.cpu_count() or 1, progress)
    return manifest


def _check_content(
    request: DataRequest, folder: Path, manifest: dict, processes: int, progress: Progress
) -> dict[str, float]:
    """Reads the stored records back, compares them with the manifest, and lets the data set assert what must hold."""
    from data import store

    splits = store.read(folder, manifest, task_spec(request))
    if (found := content_sha256(splits)) != manifest["content_sha256"]:
        raise DataError(f"{folder}: content has sha256 {found} instead of {manifest['content_sha256']}")
    return _data_set(request).check(request, splits, manifest, processes, progress)


def open_splits(request: DataRequest, data_dir: Path) -> dict[str, Split]:
    """The prepared splits "train", "val", "test", in memory.

    Raises DataError if they are missing (naming the command that makes them) or damaged.
    """
    from data import store

    spec, folder = task_spec(request), data_dir / request.folder
    manifest = store.read_manifest(folder, request.folder, _remedy(request, data_dir))
    return store.read(folder, manifest, spec)


def smoke_splits(request: DataRequest) -> dict[str, Split]:
    """A tiny sample made in memory, of the same task_spec as the real data."""
    return _data_set(request).smoke(request)


def baselines(request: DataRequest, splits: dict[str, Split]) -> dict[str, dict[str, float]]:
    """Accuracies of simple guesses learned on train: {"val": {name: accuracy}, "test": {...}}."""
    return _data_set(request).baselines(splits)


def _data_set(request: DataRequest) -> DataSet:
    if request.task not in DATA_SETS:
        near = difflib.get_close_matches(request.task, DATA_SETS, n=1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        raise DataError(f"unknown data set {request.task!r}{hint} (known: {', '.join(DATA_SETS)})")
    return DATA_SETS[request.task]


def _remedy(request: DataRequest, data_dir: Path) -> str:
    """The command that prepares the request."""
    parts = [f"run: python -m scripts.prepare_data {request.task} --data_dir={data_dir}"]
    if request.length_window is not None:
        low, high = request.length_window
        parts.append(f"--length_window={low}:{high}")
    if request.limit is not None:
        parts.append(f"--limit={request.limit}")
    return " ".join(parts)
