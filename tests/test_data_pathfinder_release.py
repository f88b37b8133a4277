"""The published Pathfinder files: lists as text and as NumPy files, images, and what is refused."""

import io

import numpy as np
import pytest
from PIL import Image

from data import pathfinder
from data.errors import DataError
from data.parallel import silent
from data.pathfinder_release import decode, parse_list
from data.permutation import torch_permutation
from data.spec import DataRequest
from data.splits import MemorySplit
from tests.fake_sources import pack, sources_at, stored, unpack

REQUEST = DataRequest("pathfinder", choices=(("origin", "release"),), partial=True)
TOP = "pathfinder32/curv_contour_length_14"
LISTED = 20


def png(value, size=(32, 32), mode="L"):
    buffer = io.BytesIO()
    Image.new(mode, size, value).save(buffer, "PNG")
    return buffer.getvalue()


def line(k, number, label):
    return f"imgs/{k} sample_{number}.png {number} {label} 1.0 14 4 2 0.5 1 1"


def files():
    """Two lists, 10 before 9 by their names: image i has the value i and the label i modulo 3 modulo 2."""
    members = []
    for k, numbers in ((10, range(12, LISTED)), (9, range(12))):
        rows = [line(k, number, number % 3 % 2) for number in numbers]
        members.append((f"{TOP}/metadata/{k}.npy", "\n".join(rows).encode() + b"\n"))
        members += [(f"{TOP}/imgs/{k}/sample_{number}.png", png(number)) for number in numbers]
    members.append(("pathfinder32/curv_baseline/imgs/0/sample_172.png", b""))
    members.append((f"{TOP.replace('32', '128')}/metadata/1.npy", b"of another task"))
    return members


def with_file(name, data):
    return [(found, data if found == name else old) for found, old in files()]


def made(folder, request=REQUEST):
    generated = pathfinder.generate(request, sources_at(folder), 1, silent)
    return stored(generated), generated.facts()


def test_lists_in_numeric_order_split_by_the_published_permutation(tmp_path):
    pack(tmp_path / "lra_release.gz", [(f"lra_release/lra_release/{name}", data) for name, data in files()])
    splits, facts = made(tmp_path)
    order = torch_permutation(LISTED, 42)
    for name, part in {"train": order[:16], "val": order[16:18], "test": order[18:]}.items():
        records = splits[name].records
        assert [int(record.values[0, 0]) for record in records] == part.tolist()
        assert [record.label for record in records] == (part % 3 % 2).tolist()
        assert all(r.values.shape == (1024, 1) and r.values.dtype == np.uint8 for r in records)
    assert (facts["origin"], facts["law"], facts["images"]) == ("release", "unknown", LISTED)
    assert [fact["file"] for fact in facts["sources"]] == ["lra_release.gz"]
    held = {name: MemorySplit.from_examples(split.examples(), 1024) for name, split in splits.items()}
    assert pathfinder.check(REQUEST, held, facts, 1, silent)["duplicates"] == 0


@pytest.mark.parametrize("top", ["", "lra_release/lra_release/", "some/where/"])
def test_an_unpacked_folder_anywhere_gives_the_same(tmp_path, top):
    pack(tmp_path / "packed" / "lra_release.gz", files()[::-1])
    unpack(tmp_path / "open", [(top + name, data) for name, data in files()])
    expected, found = made(tmp_path / "packed")[0], made(tmp_path / "open")[0]
    for name, split in expected.items():
        for one, other in zip(split.records, found[name].records, strict=True):
            assert one.label == other.label
            np.testing.assert_array_equal(one.values, other.values)


def test_a_limit_keeps_the_first_records(tmp_path):
    pack(tmp_path / "lra_release.gz", files())
    few, _ = made(tmp_path, DataRequest("pathfinder", choices=REQUEST.choices, limit=3))
    assert {name: len(split) for name, split in few.items()} == {"train": 3, "val": 2, "test": 2}
    assert [int(record.values[0, 0]) for record in few["train"].records] == torch_permutation(LISTED, 42)[:3].tolist()


def test_lists_as_text_and_as_numpy_files_say_the_same():
    rows = [line(3, number, number % 2) for number in range(4)]
    text = parse_list("a", "\r\n".join(rows).encode())
    for dtype in ("U", "S"):
        buffer = io.BytesIO()
        np.save(buffer, np.array([row.split() for row in rows], dtype))
        assert parse_list("a", buffer.getvalue()) == text
    assert text[1] == ("a line 2", "imgs/3/sample_1.png", 1)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"imgs/0 a.png 0 1\nimgs/0 b.png 1", "m line 2 is 'imgs/0 b.png 1', expected folder, file name, index, label"),
        (b"imgs/0 a.png 0 2", "m line 1 is 'imgs/0 a.png 0 2'"),
        (b"imgs/0 a.png 0 nan", "m line 1 is 'imgs/0 a.png 0 nan'"),
        (b"imgs/0 \xff.png 0 1", "m is neither text nor a NumPy file"),
        (b"\x93NUMPY\x01", "m cannot be read as a NumPy file"),
    ],
)
def test_lists_that_cannot_be_read(data, said):
    with pytest.raises(DataError, match=said):
        parse_list("m", data)


def test_lists_that_hold_objects_are_not_unpickled():
    buffer = io.BytesIO()
    np.save(buffer, np.array([["imgs/0", "a.png", 0, 1]], object), allow_pickle=True)
    with pytest.raises(DataError, match="m cannot be read as a NumPy file: it holds object"):
        parse_list("m", buffer.getvalue())
    buffer = io.BytesIO()
    np.save(buffer, np.array(["imgs/0", "a.png"]))
    with pytest.raises(DataError, match=r"m has shape \(2,\), expected a row for each image"):
        parse_list("m", buffer.getvalue())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", r"i is not a PNG \(0 bytes\)"),
        (png(1, (31, 32)), "i is L of 31 x 32, expected L"),
        (png((1, 2, 3), mode="RGB"), "i is RGB of 32 x 32, expected L"),
        (png(1)[:60], "i cannot be decoded"),
        (png(1)[:20], "i cannot be decoded"),
        (png(1).replace(b"IHDR", b"IHDX"), "i cannot be decoded"),
    ],
)
def test_images_that_are_refused(data, said):
    with pytest.raises(DataError, match=said):
        decode("i", data, 32)


def test_what_is_missing_is_named(tmp_path):
    absent = f"{TOP}/imgs/9/sample_4.png"
    pack(tmp_path / "lra_release.gz", [member for member in files() if member[0] != absent])
    with pytest.raises(DataError, match=r"metadata/9.npy line 5 names imgs/9/sample_4.png, which is not there"):
        made(tmp_path)
    pack(tmp_path / "lra_release.gz", [member for member in files() if "metadata" not in member[0]])
    with pytest.raises(DataError, match=f"{TOP} has no metadata/<k>.npy"):
        made(tmp_path)


def test_a_whole_set_has_200_000_images(tmp_path):
    pack(tmp_path / "lra_release.gz", files())
    with pytest.raises(DataError, match="pathfinder: 20 images in the lists, expected 200000"):
        made(tmp_path, DataRequest("pathfinder", choices=REQUEST.choices))


def test_a_damaged_image_is_named(tmp_path):
    pack(tmp_path / "lra_release.gz", with_file(f"{TOP}/imgs/10/sample_13.png", png(13)[:-30]))
    with pytest.raises(DataError, match=r"imgs/10/sample_13.png cannot be decoded"):
        made(tmp_path)
