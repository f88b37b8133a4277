"""The door to the data: one line per data set, and what a training run or a preparation asks of any of them.

A data set is a module with the functions of `DataSet`; to add one, write it and add its line to `DATA_SETS`.
`data.store` is imported where it is used: asking for a task_spec or a smoke sample stays fast and needs no TFDS.
"""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from data import (
    fsdd,
    images,
    listops,
    mnist,
    pathfinder,
    probes,
    retrieval,
    shakespeare,
    speech_commands,
    text,
    tinystories,
)
from data.errors import DataError
from data.examples import About, Choice, Example, Generated
from data.parallel import Progress
from data.sources import SourceFile, Sources
from data.spec import DataRequest, TaskKind, TaskSpec
from data.tokens import Tokens


class DataSet(Protocol):
    """What the module of a data set offers. All raise DataError for a request that makes no sense.

    Splits are `data.splits.Records`; those of a set that always fits into memory are `MemorySplit`s.
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


@runtime_checkable
class HasBaselines(Protocol):
    """A data set with guesses that are better than `data.guesses.majority`."""

    def baselines(self, request: DataRequest, splits: Mapping[str, Any], /) -> dict[str, dict[str, float]]:
        """Accuracies on val and test of guesses learned on train."""
        ...


@runtime_checkable
class HasNormalisation(Protocol):
    """A data set whose samples are normalised by statistics that come with the prepared data."""

    def normalisation_arrays(
        self, request: DataRequest, arrays: dict[str, np.ndarray], /
    ) -> tuple[np.ndarray, np.ndarray]:
        """(scale, shift), float32: x = v scale + shift."""
        ...


@runtime_checkable
class HasSegments(Protocol):
    """A text."""

    def segments(self, request: DataRequest, offsets: np.ndarray, /) -> np.ndarray:
        """Where windows may not cross, from the offsets of the stored records."""
        ...


@runtime_checkable
class HasTokenBytes(Protocol):
    """A text whose tokens stand for different numbers of bytes; those of prepared data come with it."""

    def smoke_token_bytes(self, request: DataRequest, /) -> np.ndarray:
        """(V,) int32: bytes of text that each id of the sample stands for."""
        ...


@runtime_checkable
class HasTokenizer(Protocol):
    """A text that can be written and read again."""

    def tokenizer(self, request: DataRequest, manifest: dict, arrays: dict[str, np.ndarray], /) -> Tokens:
        """Between text and the ids of prepared data."""
        ...

    def smoke_tokenizer(self, request: DataRequest, /) -> Tokens:
        """The same for the sample made in memory."""
        ...


DATA_SETS: dict[str, DataSet] = {
    "listops": listops,
    "text": text,
    "text_bytes": text,
    "retrieval": retrieval,
    **dict.fromkeys(pathfinder.SETTINGS, pathfinder),
    "image": images,
    "scifar": images,
    "smnist": mnist,
    "psmnist": mnist,
    "sc35": speech_commands,
    "sc10": speech_commands,
    "fsdd": fsdd,
    "shakespeare_char": shakespeare,
    "tinystories": tinystories,
    "tinystories_small": tinystories,
    **dict.fromkeys(probes.PROBES, probes),
}


def task_spec(request: DataRequest) -> TaskSpec:
    """The shape of the task; needs no data. Raises DataError for a request that makes no sense."""
    spec = data_set(request).task_spec(request)
    if request.steps is None:
        return spec
    if spec.kind is not TaskKind.LANGUAGE and request.steps > spec.length:
        raise DataError(f"steps={request.steps}: inputs of {request.task} have up to {spec.length}")
    return dataclasses.replace(spec, length=request.steps, test_length=None)


def without_defaults(request: DataRequest) -> DataRequest:
    """The same request, with no choice that says what is so anyway."""
    known = choices(request.task)
    chosen = ((name, value) for name, value in request.choices if name not in known or value != known[name].values[0])
    return dataclasses.replace(request, choices=tuple(chosen))


def resolved_choices(request: DataRequest) -> dict[str, str]:
    """Every choice of a task with its value, the defaults as well."""
    return {name: choice.values[0] for name, choice in choices(request.task).items()} | dict(request.choices)


def sources(request: DataRequest) -> tuple[SourceFile, ...]:
    """The published files that a data set is made of; none for what is generated."""
    return data_set(request).sources(request)


def read_name(request: DataRequest) -> str:
    """What stands in results: the folder, and how it was read."""
    known = choices(request.task)
    chosen = [f"{name}={value}" for name, value in sorted(request.choices) if not known[name].stored]
    steps = [] if request.steps is None else [f"steps={request.steps}"]
    return ",".join([folder_of(request), *chosen, *steps])


def about(request: DataRequest) -> About:
    """Source, licence and sizes of a data set."""
    return data_set(request).about(request)


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
    return data_set(DataRequest(task)).CHOICES.get(task, {})


def data_set(request: DataRequest) -> DataSet:
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


def remedy(request: DataRequest, data_dir: Path) -> str:
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
