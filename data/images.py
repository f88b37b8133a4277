"""CIFAR-10, ten classes, one image a sequence of 1024 pixels in raster order (Krizhevsky 2009).

image   grey, the task of Long Range Arena (Tay et al., arXiv:2011.04006): one channel
scifar  colour, the sCIFAR of the LRU and S4 papers: three channels. Not the same task: never one column for both.

Read from the binary archive: records of one byte of label and 3072 of pixels (red, green, blue plane). The training
images are batches 1 to 5 end to end; `torch_permutation(n, 42)` makes the last tenth of them validation. The stored
order of train and val is that of the permutation, that of test is the file's.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from data.errors import DataError
from data.examples import About, Choice, Example, Generated
from data.parallel import Progress
from data.permutation import SPLIT_SEED, training_and_validation
from data.sources import Limits, SourceFile, Sources
from data.spec import DataRequest, InputKind, Normalisation, TaskKind, TaskSpec
from data.splits import Records
from data.stored import check_examples, check_pixels, expect_count, refuse_window

VERSION = "1.0.0"
ARCHIVE = SourceFile(
    "cifar-10-binary.tar.gz",
    ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    bytes=170_052_171,
    root="cifar-10-batches-bin",
    aliases=("cifar-10-binary-subset.tar.gz",),
)
BATCHES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_BATCH = "test_batch.bin"
SIZES = {"train": 45_000, "val": 5_000, "test": 10_000}
SMOKE_SIZES = {"train": 256, "val": 64, "test": 64}
CLASSES = 10
SIDE = 32
LENGTH = SIDE * SIDE
RECORD = 1 + 3 * LENGTH
BATCH_RECORDS = 10_000
LIMITS = Limits(member_bytes=BATCH_RECORDS * RECORD, count=6, total_bytes=1 << 28)

NORMALISATIONS = {
    "image": Normalisation(255.0, (122.6 / 255.0,), (61.0 / 255.0,)),
    "scifar": Normalisation(255.0, (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)),
}
CHOICES: dict[str, dict[str, Choice]] = {}


def sources(request: DataRequest) -> tuple[SourceFile, ...]:
    """The one archive."""
    return (ARCHIVE,)


def about(request: DataRequest) -> About:
    """Prepared is the number of stored bytes before compression."""
    licence = "none stated; the author asks to cite Krizhevsky 2009"
    channels = len(NORMALISATIONS[request.task].mean)
    return About("CIFAR-10, binary version", licence, ARCHIVE.bytes, sum(SIZES.values()) * LENGTH * channels)


def task_spec(request: DataRequest) -> TaskSpec:
    """1024 steps of one or three channels. Raises DataError for a length window."""
    refuse_window(request)
    normalisation = NORMALISATIONS[request.task]
    return TaskSpec(
        request.name,
        TaskKind.CLASSIFICATION,
        InputKind.CHANNELS,
        len(normalisation.mean),
        LENGTH,
        CLASSES,
        normalisation=normalisation,
    )


def luma(pixels: np.ndarray) -> np.ndarray:
    """(..., 3) uint8 red, green, blue -> (..., 1) uint8, 0.299 R + 0.587 G + 0.114 B in whole numbers, rounded, with
    the weights of Pillow's conversion to "L"."""
    weighted = pixels.astype(np.uint32) @ np.array([19595, 38470, 7471], np.uint32)
    return ((weighted + 32768) >> 16).astype(np.uint8)[..., None]


def generate(request: DataRequest, sources: Sources, processes: int, progress: Progress) -> Generated:
    """The three splits; the raw records (184 MB) are in memory, because the split goes across the files.

    Raises DataError for a missing file, one that does not end with a record, or a label above 9.
    """
    records = _read(sources, progress)
    training = np.concatenate([records[name] for name in BATCHES])
    trained_on, held_out = training_and_validation(len(training))

    def examples(data: np.ndarray, positions: np.ndarray) -> Iterator[Example]:
        for position in itertools.islice(positions, request.limit):
            yield Example(_pixels(request, data[position, 1:]), int(data[position, 0]))

    test = records[TEST_BATCH]
    splits: dict[str, Iterable[Example]] = {
        "train": examples(training, trained_on),
        "val": examples(training, held_out),
        "test": examples(test, np.arange(len(test))),
    }
    facts = {"version": VERSION, "source": ARCHIVE.name, "seed": SPLIT_SEED}
    return Generated(splits, lambda: {**facts, "sources": sources.facts()})


def _read(sources: Sources, progress: Progress) -> dict[str, np.ndarray]:
    """File -> (n, 3073) uint8 records."""
    wanted = (*BATCHES, TEST_BATCH)
    pattern = re.compile("|".join(map(re.escape, wanted)))
    found: dict[str, np.ndarray] = {}
    for name, data in sources.members(ARCHIVE, pattern, LIMITS):
        if not data or len(data) % RECORD:
            raise DataError(f"{ARCHIVE.name}: {name} has {len(data)} bytes, expected a multiple of {RECORD}, not 0")
        found[name] = np.frombuffer(data, np.uint8).reshape(-1, RECORD)
        if (wrong := found[name][:, 0] >= CLASSES).any():
            first = int(wrong.argmax())
            label = found[name][first, 0]
            raise DataError(f"{ARCHIVE.name}: {name} record {first} has label {label}, expected 0..{CLASSES - 1}")
        progress("read", len(found), len(wanted))
    if missing := [name for name in wanted if name not in found]:
        raise DataError(f"{ARCHIVE.name} has no {', '.join(missing)}")
    return found


def _pixels(request: DataRequest, planes: np.ndarray) -> np.ndarray:
    """(3072,) bytes of three planes -> (1024, channels) uint8."""
    pixels = planes.reshape(3, LENGTH).T
    return luma(pixels) if request.task == "image" else np.ascontiguousarray(pixels)


def check(
    request: DataRequest,
    splits: Mapping[str, Records],
    facts: dict[str, Any],
    processes: int,
    progress: Progress,
) -> dict[str, float]:
    """Asserts type and shape of every image and, of the official archive, as many images of each class as of another:
    5,000 of train and val together and 1,000 of test. Raises DataError with the record, or the found and the expected
    number."""
    spec = task_spec(request)
    check_values = partial(check_pixels, spec=spec)
    statistics, labels = check_examples(request, spec, SIZES, splits, check_values, progress)
    for split, counts in {"train and val": labels["train"] + labels["val"], "test": labels["test"]}.items():
        expected = (SIZES["train"] + SIZES["val"] if split == "train and val" else SIZES["test"]) // CLASSES
        for label, count in enumerate(counts.tolist()):
            expect_count(request, f"images of class {label} in {split}", count, expected)
    return statistics


def smoke(request: DataRequest) -> dict[str, list[Example]]:
    """Random pixels, random labels."""
    rng = np.random.Generator(np.random.Philox(SPLIT_SEED))
    shape = (LENGTH, len(NORMALISATIONS[request.task].mean))

    def draw() -> Example:
        return Example(rng.integers(0, 256, shape, np.uint8), int(rng.integers(CLASSES)))

    return {split: [draw() for _ in range(size)] for split, size in SMOKE_SIZES.items()}
