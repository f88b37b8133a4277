"""MNIST from its IDX files: the split, the orders of the pixels, what is refused."""

import gzip
import struct

import numpy as np
import pytest

from data import mnist
from data.errors import DataError
from data.examples import Example
from data.parallel import silent
from data.permutation import torch_permutation
from data.spec import DataRequest, InputKind
from tests.fake_sources import Stored, sources_at, stored

SMNIST, PSMNIST = DataRequest("smnist", partial=True), DataRequest("psmnist", partial=True)
OTHER = DataRequest("psmnist", partial=True, choices=(("permutation", "numpy_92916"),))
NAMES = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz")
LAST = "t10k-labels-idx1-ubyte.gz"


def image(number):
    """Its number, then what tells a position from another."""
    return bytes([number]) + bytes((7 * position + number) % 256 for position in range(1, 784))


def images_file(numbers, magic=2051, count=None, sides=(28, 28)):
    count = len(numbers) if count is None else count
    return struct.pack(">IIII", magic, count, *sides) + b"".join(map(image, numbers))


def labels_file(labels, magic=2049):
    return struct.pack(">II", magic, len(labels)) + bytes(labels)


@pytest.fixture
def files():
    """20 training images and 5 test images, numbered over both; label: number modulo 10."""
    train, test = range(20), range(20, 25)
    contents = (images_file(train), labels_file([i % 10 for i in train]), images_file(test))
    return dict(zip(NAMES, contents, strict=True)) | {LAST: labels_file([i % 10 for i in test])}


@pytest.fixture
def write(tmp_path):
    def write_files(files):
        for name, data in files.items():
            (tmp_path / name).write_bytes(gzip.compress(data))
        return sources_at(tmp_path)

    return write_files


def test_the_published_split(files, write):
    made = mnist.generate(SMNIST, write(files), 1, silent)
    splits = stored(made)
    order = torch_permutation(20, 42)
    for name, numbers in {"train": order[:18], "val": order[18:], "test": np.arange(20, 25)}.items():
        found = splits[name].records
        assert [example.label for example in found] == (numbers % 10).tolist()
        for example, number in zip(found, numbers, strict=True):
            assert (example.values.shape, example.values.dtype) == ((784, 1), np.uint8)
            assert example.values.tobytes() == image(number)
    assert {fact["file"] for fact in made.facts()["sources"]} == set(files)
    few = stored(mnist.generate(DataRequest("smnist", limit=3), write(files), 1, silent))
    assert [len(few[name]) for name in ("train", "val", "test")] == [3, 2, 3]
    assert few["train"].records[2].values.tobytes() == image(order[2])


def test_bit_reversal():
    order = mnist.bit_reversal()
    np.testing.assert_array_equal(np.sort(order), np.arange(784))
    # 0..7 reversed in ten bits: 0, 512, 256, 768, 128, 640, 384, 896; the last one is no pixel.
    assert order[:8].tolist() == [0, 512, 256, 768, 128, 640, 384, 64]
    assert order[-2:].tolist() == [767, 511]

    # The same by halving: first the even half of the bits, then the odd one.
    def halved(numbers):
        return numbers if len(numbers) == 1 else halved(numbers[::2]) + halved(numbers[1::2])

    assert order.tolist() == [number for number in halved(list(range(1024))) if number < 784]


def test_the_permutation_of_a_seed():
    order = mnist.numpy_92916()
    np.testing.assert_array_equal(np.sort(order), np.arange(784))
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(92916)  # noqa: NPY002  the call that the papers make
    np.testing.assert_array_equal(order, np.random.permutation(784))  # noqa: NPY002
    np.random.set_state(state)  # noqa: NPY002


@pytest.mark.parametrize(("request_", "order"), [(PSMNIST, mnist.bit_reversal()), (OTHER, mnist.numpy_92916())])
def test_one_order_for_all_images(files, write, request_, order):
    made = mnist.generate(request_, write(files), 1, silent)
    for example, number in zip(stored(made)["test"].records, range(20, 25), strict=True):
        pixels = image(number)
        assert example.values[:, 0].tolist() == [pixels[position] for position in order]
    assert made.facts()["pixel_order"] == order.tolist()
    choice = mnist.CHOICES["psmnist"]["permutation"]
    assert (choice.values, choice.stored) == (("bit_reversal", "numpy_92916"), True)


@pytest.mark.parametrize(
    ("name", "data", "line"),
    [
        (NAMES[0], images_file([1], magic=2049), "has magic number 2049, expected 2051"),
        (LAST, labels_file([1], magic=2051), "has magic number 2051, expected 2049"),
        (NAMES[0], struct.pack("<IIII", 2051, 1, 28, 28) + image(1), "has magic number 50855936, expected 2051"),
        (NAMES[0], b"\x00\x00\x08", "has 3 bytes, expected a header of 16"),
        (NAMES[0], images_file([1], sides=(28, 27)), "says (1, 28, 27), expected 1..60000 records of shape (28, 28)"),
        (NAMES[0], images_file([]), "says (0, 28, 28), expected 1..60000 records of shape (28, 28)"),
        (
            NAMES[0],
            images_file([1], count=60_001),
            "says (60001, 28, 28), expected 1..60000 records of shape (28, 28)",
        ),
        (NAMES[0], images_file([1, 2])[:-1], "has 1567 bytes after its header, expected 1568 for 2 records"),
        (NAMES[0], images_file([1]) + b"\x00", "has more bytes after its header, expected 784 for 1 records"),
    ],
)
def test_files_that_are_not_what_they_should_be_are_refused(files, write, name, data, line):
    with pytest.raises(DataError) as error:
        mnist.generate(SMNIST, write({**files, name: data}), 1, silent)
    assert str(error.value) == f"{name} {line}"


def test_labels_must_fit(files, write):
    with pytest.raises(DataError) as error:
        mnist.generate(SMNIST, write({**files, LAST: labels_file([1, 2, 3, 10, 4])}), 1, silent)
    assert str(error.value) == f"{LAST}: label 3 is 10, expected 0..9"
    with pytest.raises(DataError) as error:
        mnist.generate(SMNIST, write({**files, LAST: labels_file([1, 2, 3, 4])}), 1, silent)
    assert str(error.value) == f"{NAMES[2]} has 5 images, {LAST} has 4 labels"


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-20], lambda data: b"IDX" + data, lambda data: data[:40] + data[41:]]
)
def test_damaged_gzip_files_are_refused(files, write, damage, tmp_path):
    sources = write(files)
    path = tmp_path / NAMES[0]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=f"{NAMES[0]} is no intact gzip file"):
        mnist.generate(SMNIST, sources, 1, silent)


def test_check(files, write):
    made = mnist.generate(SMNIST, write(files), 1, silent)
    splits = stored(made)
    statistics = mnist.check(SMNIST, splits, made.facts(), 1, silent)
    assert [statistics[f"{name}_records"] for name in ("train", "val", "test")] == [18, 2, 5]
    assert statistics["test_seen_in_train"] == 0
    with pytest.raises(DataError, match="smnist: 18 records in train, expected 54000"):
        mnist.check(DataRequest("smnist"), splits, {}, 1, silent)
    short = Example(splits["val"].records[0].values[1:], 0)
    with pytest.raises(
        DataError, match=r"smnist: val record 0 is uint8 of shape \(783, 1\), expected uint8 \(784, 1\)"
    ):
        mnist.check(SMNIST, {**splits, "val": Stored([short])}, {}, 1, silent)


@pytest.mark.parametrize("request_", [SMNIST, PSMNIST])
def test_spec_and_smoke_sample(request_):
    spec = mnist.task_spec(request_)
    assert (spec.input_kind, spec.input_width, spec.length, spec.classes) == (InputKind.CHANNELS, 1, 784, 10)
    assert spec.normalisation is not None
    assert (0 / spec.normalisation.divisor, 255 / spec.normalisation.divisor) == (0, 1)
    splits = {name: Stored(examples) for name, examples in mnist.smoke(request_).items()}
    statistics = mnist.check(request_, splits, {}, 1, silent)
    assert [statistics[f"{name}_records"] for name in ("train", "val", "test")] == [256, 64, 64]
    with pytest.raises(DataError, match=f"{request_.task} has no length window"):
        mnist.task_spec(DataRequest(request_.task, length_window=(10, 20)))
    assert mnist.about(request_).download == sum(file.bytes for file in mnist.sources(request_)) == 11_594_722
