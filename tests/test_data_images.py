"""CIFAR-10 from its binary files: the split, the channels, the grey value, what is refused."""

import os
import pathlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from data import images
from data.errors import DataError
from data.examples import Example
from data.parallel import silent
from data.permutation import torch_permutation
from data.spec import DataRequest, InputKind
from tests.fake_sources import Stored, pack, sources_at, stored, unpack

IMAGE, SCIFAR = DataRequest("image", partial=True), DataRequest("scifar", partial=True)
TOP = "cifar-10-batches-bin"


def record(label, number):
    """One image in the official layout, a plane after the other; its number is in its first pixel."""
    red, green, blue = (
        bytes((number * (position == 0) + plane * position) % 251 for position in range(1024)) for plane in (1, 2, 3)
    )
    return bytes([label]) + red + green + blue


@pytest.fixture
def files():
    """Batches of 4 images, numbered from 1 over all of them, with their number modulo 10 as label."""
    records = [record(number % 10, number) for number in range(1, 25)]
    names = [*(f"data_batch_{batch}.bin" for batch in range(1, 6)), "test_batch.bin"]
    return {f"{TOP}/{name}": b"".join(records[4 * i : 4 * i + 4]) for i, name in enumerate(names)}


@pytest.fixture
def write(tmp_path):
    def write_files(files, name="cifar-10-binary.tar.gz"):
        pack(
            tmp_path / name, [(f"{TOP}/batches.meta.txt", b"airplane\n"), *files.items(), (f"{TOP}/readme.html", b"<")]
        )
        return sources_at(tmp_path)

    return write_files


def test_batches_end_to_end_are_split_by_the_published_permutation(files, write):
    made = images.generate(SCIFAR, write(files), 1, silent)
    splits = stored(made)
    order = torch_permutation(20, 42) + 1
    expected = {"train": order[:18], "val": order[18:], "test": np.arange(21, 25)}
    for name, numbers in expected.items():
        found = splits[name].records
        assert [example.values[0, 0] for example in found] == numbers.tolist()
        assert [example.label for example in found] == (numbers % 10).tolist()
    assert made.facts()["seed"] == 42
    assert [fact["file"] for fact in made.facts()["sources"]] == ["cifar-10-binary.tar.gz"]


def test_pixels_in_raster_order_with_their_channels_together(files, write):
    colour = stored(images.generate(SCIFAR, write(files), 1, silent))["test"].records[0].values
    assert (colour.shape, colour.dtype) == ((1024, 3), np.uint8)
    assert colour[0].tolist() == [21, 21, 21]
    assert colour[33].tolist() == [33, 66, 99]  # the second pixel of the second row
    grey = stored(images.generate(IMAGE, write(files), 1, silent))["test"].records[0].values
    assert (grey.shape, grey.dtype) == ((1024, 1), np.uint8)
    assert grey[33, 0] == round(0.299 * 33 + 0.587 * 66 + 0.114 * 99)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 255)] * 3), min_size=1, max_size=64))
def test_grey_is_that_of_pillow(colours):
    pixels = np.array(colours, np.uint8)
    expected = np.asarray(Image.fromarray(pixels[None]).convert("L"))
    np.testing.assert_array_equal(images.luma(pixels)[:, 0], expected[0])


def test_grey_of_many_colours():
    """So many that one unit in a weight, of 65,536, would be seen."""
    pixels = np.random.default_rng(0).integers(0, 256, (300, 300, 3), np.uint8)
    np.testing.assert_array_equal(images.luma(pixels)[..., 0], np.asarray(Image.fromarray(pixels).convert("L")))
    levels = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3, axis=1)
    np.testing.assert_array_equal(images.luma(levels)[:, 0], np.arange(256))


def test_the_order_of_the_archive_does_not_matter_nor_whether_it_is_packed(files, write, tmp_path):
    expected = stored(images.generate(IMAGE, write(files), 1, silent))
    unpack(tmp_path / "open", files.items())
    pack(tmp_path / "turned" / "cifar-10-binary-subset.tar.gz", list(files.items())[::-1])
    for folder in ("open", "turned"):
        found = stored(images.generate(IMAGE, sources_at(tmp_path / folder), 1, silent))
        for name, split in expected.items():
            for one, other in zip(split.records, found[name].records, strict=True):
                assert one.label == other.label
                np.testing.assert_array_equal(one.values, other.values)


def test_a_limit_keeps_the_first_records(files, write):
    whole = stored(images.generate(IMAGE, write(files), 1, silent))
    few = stored(images.generate(DataRequest("image", limit=3), write(files), 1, silent))
    assert {name: len(split) for name, split in few.items()} == {"train": 3, "val": 2, "test": 3}
    for name, split in few.items():
        for one, other in zip(split.records, whole[name].records, strict=False):
            np.testing.assert_array_equal(one.values, other.values)


@pytest.mark.parametrize(
    ("name", "data", "line"),
    [
        ("data_batch_3.bin", record(1, 2) + record(10, 3), "data_batch_3.bin record 1 has label 10, expected 0..9"),
        ("data_batch_2.bin", record(1, 2)[:-1], "data_batch_2.bin has 3072 bytes, expected a multiple of 3073, not 0"),
        ("test_batch.bin", b"", "test_batch.bin has 0 bytes, expected a multiple of 3073, not 0"),
    ],
)
def test_damaged_files_are_refused(files, write, name, data, line):
    with pytest.raises(DataError) as error:
        images.generate(IMAGE, write({**files, f"{TOP}/{name}": data}), 1, silent)
    assert str(error.value) == f"cifar-10-binary.tar.gz: {line}"


def test_missing_files_are_named(files, write):
    del files[f"{TOP}/data_batch_4.bin"], files[f"{TOP}/test_batch.bin"]
    with pytest.raises(DataError, match=r"has no data_batch_4.bin, test_batch.bin"):
        images.generate(IMAGE, write(files), 1, silent)


@pytest.mark.parametrize("request_", [IMAGE, SCIFAR])
def test_check(files, write, request_):
    made = images.generate(request_, write(files), 1, silent)
    splits = stored(made)
    statistics = images.check(request_, splits, made.facts(), 1, silent)
    assert [statistics[f"{name}_records"] for name in ("train", "val", "test")] == [18, 2, 4]
    assert statistics["train_majority_share"] == 2 / 18
    assert statistics["val_seen_in_train"] == 0
    with pytest.raises(DataError, match=f"{request_.task}: 18 records in train, expected 45000"):
        images.check(DataRequest(request_.task), splits, {}, 1, silent)
    flat = Example(splits["test"].records[0].values.ravel(), 0)
    with pytest.raises(DataError, match=rf"{request_.task}: test record 0 is uint8 of shape \(\d+,\), expected uint8"):
        images.check(request_, {**splits, "test": Stored([flat])}, {}, 1, silent)
    unknown = Example(splits["test"].records[0].values, 10)
    with pytest.raises(DataError, match=r"test record 1 has label 10, expected 0\.\.9"):
        images.check(request_, {**splits, "test": Stored([*splits["test"].records[:1], unknown])}, {}, 1, silent)


def test_the_official_classes_are_of_one_size(monkeypatch):
    monkeypatch.setattr(images, "SIZES", {"train": 15, "val": 5, "test": 10})
    drawn = [Example(np.full((1024, 1), label, np.uint8), label) for label in range(10)]
    splits = {"train": Stored(drawn + drawn[:5]), "val": Stored(drawn[5:]), "test": Stored(drawn)}
    images.check(DataRequest("image"), splits, {}, 1, silent)
    with pytest.raises(DataError, match="image: 3 images of class 0 in train and val, expected 2"):
        images.check(DataRequest("image"), {**splits, "val": Stored(drawn[:1] + drawn[6:])}, {}, 1, silent)
    with pytest.raises(DataError, match="image: 2 images of class 1 in test, expected 1"):
        images.check(DataRequest("image"), {**splits, "test": Stored([*drawn[:9], drawn[1]])}, {}, 1, silent)


def test_normalised_values():
    def normalised(request, value):
        """Of the stored value, in each channel."""
        law = images.task_spec(request).normalisation
        assert law is not None
        return [(value / law.divisor - mean) / std for mean, std in zip(law.mean, law.std, strict=True)]

    assert normalised(IMAGE, 0)[0] == pytest.approx(-122.6 / 61)
    assert normalised(IMAGE, 255)[0] == pytest.approx((255 - 122.6) / 61)
    assert -2.02 <= normalised(IMAGE, 0)[0] < normalised(IMAGE, 255)[0] <= 2.18
    assert normalised(SCIFAR, 0) == pytest.approx([-0.4914 / 0.247, -0.4822 / 0.243, -0.4465 / 0.261])


@pytest.mark.parametrize(("request_", "channels"), [(IMAGE, 1), (SCIFAR, 3)])
def test_spec_and_smoke_sample(request_, channels):
    spec = images.task_spec(request_)
    assert (spec.input_kind, spec.input_width, spec.length, spec.classes) == (InputKind.CHANNELS, channels, 1024, 10)
    splits = {name: Stored(examples) for name, examples in images.smoke(request_).items()}
    statistics = images.check(request_, splits, {}, 1, silent)
    assert [statistics[f"{name}_records"] for name in ("train", "val", "test")] == [256, 64, 64]
    with pytest.raises(DataError, match=f"{request_.task} has no length window"):
        images.task_spec(DataRequest(request_.task, length_window=(10, 20)))
    assert images.sources(request_)[0].bytes == images.about(request_).download == 170_052_171
    assert images.about(request_).prepared == 60_000 * 1024 * channels


if os.environ.get("LINREC_DATA_SOURCE"):

    def test_the_real_images():
        folder = pathlib.Path(os.environ["LINREC_DATA_SOURCE"])
        made = images.generate(IMAGE, sources_at(folder / "cifar10"), 1, silent)
        splits = stored(made)
        statistics = images.check(IMAGE, splits, made.facts(), 1, silent)
        train = np.stack([example.values for example in splits["train"].records])
        assert len(train) in (4_500, 45_000)
        assert statistics["test_majority_share"] < 0.15
        assert abs(train.mean() - 122.6) < 3
        assert abs(train.std() - 61) < 3
