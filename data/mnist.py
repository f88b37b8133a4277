"""MNIST, ten digits, one image a sequence of 784 pixels (LeCun, Bottou, Bengio and Haffner 1998).

smnist   in raster order
psmnist  in one fixed order for all images: `bit_reversal`, the numbers 0..1023 with their ten bits reversed, without
         those of 784 and above (as S4 reads it), or `numpy_92916`, NumPy's legacy permutation of that seed (as other
         papers read it). Step t is pixel order[t].

Read from the four IDX files. `torch_permutation(n, 42)` makes the last tenth of the training images validation. The
stored order of train and val is that of the permutation, that of test is the file's.
"""

import gzip
import itertools
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from data.errors import DataError
from data.examples import About, Choice, Example, Generated
from data.parallel import Progress
from data.permutation import SPLIT_SEED, training_and_validation
from data.sources import SourceFile, Sources
from data.spec import DataRequest, InputKind, Normalisation, TaskKind, TaskSpec
from data.splits import Records
from data.stored import check_examples, check_pixels, refuse_window

VERSION = "1.0.0"
SIZES = {"train": 54_000, "val": 6_000, "test": 10_000}
SMOKE_SIZES = {"train": 256, "val": 64, "test": 64}
CLASSES = 10
SIDE = 28
LENGTH = SIDE * SIDE
NORMALISATION = Normalisation(255.0, (0.0,), (1.0,))

IMAGES_MAGIC, LABELS_MAGIC = 2051, 2049
MOST_IMAGES = 60_000

_MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")


def _source(name: str, md5: str, size: int) -> SourceFile:
    return SourceFile(name, tuple(mirror + name for mirror in _MIRRORS), md5=md5, bytes=size)


TRAIN_IMAGES = _source("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422)
TRAIN_LABELS = _source("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28_881)
TEST_IMAGES = _source("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1_648_877)
TEST_LABELS = _source("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4_542)
FILES = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)

CHOICES = {"psmnist": {"permutation": Choice(("bit_reversal", "numpy_92916"), stored=True)}}


def sources(request: DataRequest) -> tuple[SourceFile, ...]:
    """Images and labels, of training and test."""
    return FILES


def about(request: DataRequest) -> About:
    """Prepared is the number of stored bytes before compression."""
    licence = "none stated by its source; others name CC BY-SA 3.0"
    return About("MNIST", licence, sum(file.bytes for file in FILES), sum(SIZES.values()) * LENGTH)


def task_spec(request: DataRequest) -> TaskSpec:
    """784 steps of one channel. Raises DataError for a length window."""
    refuse_window(request)
    return TaskSpec(
        request.name, TaskKind.CLASSIFICATION, InputKind.CHANNELS, 1, LENGTH, CLASSES, normalisation=NORMALISATION
    )


def bit_reversal() -> np.ndarray:
    """(784,) the numbers of 0..1023 with their ten bits reversed that are below 784, in that order."""
    reversed_bits = np.array([int(f"{number:010b}"[::-1], 2) for number in range(1024)])
    return reversed_bits[reversed_bits < LENGTH]


def numpy_92916() -> np.ndarray:
    """(784,) NumPy's legacy permutation of the seed 92916."""
    return np.random.RandomState(92916).permutation(LENGTH)


PERMUTATIONS = {"bit_reversal": bit_reversal, "numpy_92916": numpy_92916}


def pixel_order(request: DataRequest) -> np.ndarray:
    """(784,) which pixel stands at each step."""
    if request.task == "smnist":
        return np.arange(LENGTH)
    default = CHOICES["psmnist"]["permutation"].values[0]
    return PERMUTATIONS[dict(request.choices).get("permutation", default)]()


def generate(request: DataRequest, sources: Sources, processes: int, progress: Progress) -> Generated:
    """The three splits; all images (55 MB) are in memory.

    Raises DataError for a file that is no IDX file of its kind, is cut or goes on after its end, for a label above 9,
    and for images and labels of different number.
    """
    training = _read(sources, TRAIN_IMAGES, TRAIN_LABELS)
    progress("read", 1, 2)
    test = _read(sources, TEST_IMAGES, TEST_LABELS)
    progress("read", 2, 2)
    order = pixel_order(request)
    trained_on, held_out = training_and_validation(len(training[0]))

    def examples(images: np.ndarray, labels: np.ndarray, positions: np.ndarray) -> Iterator[Example]:
        for position in itertools.islice(positions, request.limit):
            yield Example(images[position, order, None], int(labels[position]))

    splits: dict[str, Iterable[Example]] = {
        "train": examples(*training, trained_on),
        "val": examples(*training, held_out),
        "test": examples(*test, np.arange(len(test[0]))),
    }
    facts = {"version": VERSION, "source": "MNIST, IDX files", "seed": SPLIT_SEED, "pixel_order": order.tolist()}
    return Generated(splits, lambda: {**facts, "sources": sources.facts()})


def _read(sources: Sources, images_file: SourceFile, labels_file: SourceFile) -> tuple[np.ndarray, np.ndarray]:
    """(n, 784) and (n,) uint8."""
    images = read_idx(sources.file(images_file), IMAGES_MAGIC, (SIDE, SIDE)).reshape(-1, LENGTH)
    labels = read_idx(sources.file(labels_file), LABELS_MAGIC, ())
    if len(images) != len(labels):
        raise DataError(f"{images_file.name} has {len(images)} images, {labels_file.name} has {len(labels)} labels")
    if (wrong := labels >= CLASSES).any():
        first = int(wrong.argmax())
        raise DataError(f"{labels_file.name}: label {first} is {labels[first]}, expected 0..{CLASSES - 1}")
    return images, labels


def read_idx(path: Path, magic: int, shape: tuple[int, ...]) -> np.ndarray:
    """(n, *shape) uint8 of a gzipped IDX file: big-endian 32-bit magic, n and shape, then the bytes.

    Raises DataError, with what was found and expected, for another magic or shape, n outside 1..60,000, and a file that
    is damaged, cut or goes on.
    """
    try:
        with gzip.open(path) as file:
            return _parse_idx(path.name, file, magic, shape)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path.name} is no intact gzip file: {error}") from error


def _parse_idx(name: str, file: BinaryIO | gzip.GzipFile, magic: int, shape: tuple[int, ...]) -> np.ndarray:
    layout = struct.Struct(f">{2 + len(shape)}I")
    header = file.read(layout.size)
    if len(header) < layout.size:
        raise DataError(f"{name} has {len(header)} bytes, expected a header of {layout.size}")
    found, n, *sides = layout.unpack(header)
    if found != magic:
        raise DataError(f"{name} has magic number {found}, expected {magic}")
    if tuple(sides) != shape or not 1 <= n <= MOST_IMAGES:
        raise DataError(f"{name} says {(n, *sides)}, expected 1..{MOST_IMAGES} records of shape {shape}")
    size = n * int(np.prod(shape, dtype=int))
    data = file.read(size + 1)
    if len(data) != size:
        more = "more" if len(data) > size else len(data)
        raise DataError(f"{name} has {more} bytes after its header, expected {size} for {n} records")
    return np.frombuffer(data, np.uint8).reshape(n, *shape)


def check(
    request: DataRequest,
    splits: Mapping[str, Records],
    facts: dict[str, Any],
    processes: int,
    progress: Progress,
) -> dict[str, float]:
    """Asserts type and shape of every image and, of the official files, the counts.

    Raises DataError with the record, or the found and the expected number.
    """
    spec = task_spec(request)
    check_values = partial(check_pixels, spec=spec)
    statistics, _ = check_examples(request, spec, SIZES, splits, check_values, progress)
    return statistics


def smoke(request: DataRequest) -> dict[str, list[Example]]:
    """Random pixels, random labels."""
    rng = np.random.Generator(np.random.Philox(SPLIT_SEED))

    def draw() -> Example:
        return Example(rng.integers(0, 256, (LENGTH, 1), np.uint8), int(rng.integers(CLASSES)))

    return {split: [draw() for _ in range(size)] for split, size in SMOKE_SIZES.items()}
