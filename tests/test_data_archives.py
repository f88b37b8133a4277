"""Archives as they should be, damaged and hostile ones."""

import gzip
import io
import os
import random
import re
import tarfile
import tracemalloc

import pytest

from data import archives
from data.archives import Limits, Names
from data.errors import DataError

NAMES = Names(re.compile(r"top/[^/]+/[^/]+\.txt"), "top")
LIMITS = Limits(member_bytes=10_000, count=10, total_bytes=200_000)
FILES = {"top/b/2.txt": b"two", "top/a/1.txt": bytes(range(256)) * 20, "top/README": b"read", "top/a/3.txt": b""}
WANTED = {name: data for name, data in FILES.items() if name.endswith(".txt")}


def regular(name, data=b"data"):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    return info, data


def special(name, kind, target="top/b/2.txt"):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


def tar_bytes(members, format=tarfile.GNU_FORMAT):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def write(path, content, packed=True):
    path.write_bytes(gzip.compress(content, mtime=0) if packed else content)
    return path


def good_tar():
    return tar_bytes([special("top", tarfile.DIRTYPE), *(regular(*item) for item in FILES.items())])


def read(path, names=NAMES, limits=LIMITS):
    return {name: body.read() for name, body in archives.read_archive(path, names, limits)}


def refused(path, match, names=NAMES, limits=LIMITS):
    with pytest.raises(DataError, match=match) as caught:
        read(path, names, limits)
    assert path.name in str(caught.value)
    assert "\n" not in str(caught.value)


# Good ones.


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_members_that_match_come_in_the_order_of_the_archive(tmp_path, packed, format):
    content = tar_bytes([special("./top", tarfile.DIRTYPE), *(regular(f"./{n}", d) for n, d in FILES.items())], format)
    found = read(write(tmp_path / "release.gz", content, packed))
    assert list(found.items()) == list(WANTED.items())
    assert list(tmp_path.iterdir()) == [tmp_path / "release.gz"]


def test_members_can_be_read_in_part_or_by_lines(tmp_path):
    path = write(
        tmp_path / "a.tar", tar_bytes([regular("top/a/1.txt", b"x\n" * 4000), regular("top/a/2.txt", b"y\nz")])
    )
    members = archives.read_archive(path, NAMES, LIMITS)
    _, first = next(members)
    assert first.read(3) == b"x\nx"
    _, second = next(members)
    assert list(second) == [b"y\n", b"z"]
    assert first.closed
    assert list(members) == []


def test_long_names_and_links_that_nobody_asks_for(tmp_path):
    name = f"top/{'d' * 90}/{'f' * 120}.txt"
    for format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        others = [special("top/link", tarfile.SYMTYPE, "/etc"), special("top/null", tarfile.CHRTYPE)]
        path = write(tmp_path / "a.tar", tar_bytes([*others, regular(name)], format))
        assert read(path) == {name: b"data"}


@pytest.mark.parametrize(
    ("path", "pattern", "root", "name"),
    [
        ("top/a/1.txt", r"top/a/.*", "top", "top/a/1.txt"),
        ("a/1.txt", r"top/a/.*", "top", "top/a/1.txt"),
        ("top/a/1.txt", r"a/.*", "top", "a/1.txt"),
        ("a/1.txt", r"a/.*", "top", "a/1.txt"),
        ("a/1.txt", r"(top/)?a/.*", "top", "top/a/1.txt"),
        ("top/a/1.txt", r"(top/)?a/.*", "top", "top/a/1.txt"),
        ("topper/a/1.txt", r"a/.*", "top", None),
        ("top/a/1.txt", r"a", "top", None),
        ("a/1.txt", r"a/.*", "", "a/1.txt"),
        ("top/a/1.txt", r"a/.*", "", None),
    ],
)
def test_names_have_the_form_that_the_pattern_describes(path, pattern, root, name):
    assert Names(re.compile(pattern), root).of(path) == name


def peak_of(call):
    """Bytes at most held during a call."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_does_not_grow_with_the_archive(tmp_path):
    path = write(tmp_path / "a.tar.gz", tar_bytes([regular("top/README", bytes(9_000_000))] * 2))
    assert peak_of(lambda: read(path, limits=Limits(10, 10, 30_000_000))) < 4_000_000
    path = write(tmp_path / "a.tar.gz", tar_bytes([regular("top/README", b"")] * 6_000))
    assert peak_of(lambda: read(path, limits=Limits(10, 10, 30_000_000))) < 2_000_000


# Hostile ones.


@pytest.mark.parametrize("name", ["../top/a/1.txt", "top/../../a/1.txt", "/top/a/1.txt", "top\\a\\1.txt", "top/a/.."])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE])
def test_names_that_lead_elsewhere_are_refused_whatever_they_are(tmp_path, name, kind):
    member = regular(name) if kind == tarfile.REGTYPE else special(name, kind)
    refused(write(tmp_path / "a.tar", tar_bytes([member])), re.escape(f"{name!r} has a name that leads out"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_place_of_a_file(tmp_path, kind):
    path = write(tmp_path / "a.tar", tar_bytes([regular("top/b/2.txt"), special("top/a/1.txt", kind)]))
    refused(path, "'top/a/1.txt' is no regular file")


@pytest.mark.parametrize("header", [{"GNU.sparse.map": "0,4", "GNU.sparse.size": "4"}, {"GNU.sparse.size": "9999999"}])
def test_a_sparse_file(tmp_path, header):
    info, data = regular("top/a/1.txt")
    info.pax_headers = header
    refused(
        write(tmp_path / "a.tar", tar_bytes([(info, data)], tarfile.PAX_FORMAT)), "'top/a/1.txt' is no regular file"
    )


def test_a_name_twice(tmp_path):
    path = write(tmp_path / "a.tar", tar_bytes([regular("top/a/1.txt"), regular("./top//a/./1.txt")]))
    refused(path, "'top/a/1.txt' is there twice")
    refused(write(tmp_path / "b.tar", tar_bytes([regular("top/a/1.txt"), regular("a/1.txt")])), "twice")


def test_limits(tmp_path):
    path = write(tmp_path / "a.tar.gz", good_tar())
    size = len(good_tar())
    assert read(path, limits=Limits(5_120, 3, size)) == WANTED
    refused(path, "'top/a/1.txt' has 5,120 bytes, more than 5,119", limits=Limits(5_119, 3, size))
    refused(path, "'top/a/3.txt' is one member more than the 2 there can be", limits=Limits(5_120, 2, size))
    refused(path, f"unpacks to more than {size - 1:,} bytes", limits=Limits(5_120, 3, size - 1))


@pytest.mark.parametrize("place", ["member", "end"])
def test_a_bomb_where_nobody_asks_for_it(tmp_path, place):
    zeros = bytes(20_000_000)
    content = tar_bytes([regular("top/README", zeros)]) if place == "member" else good_tar() + zeros
    path = write(tmp_path / "a.tar.gz", content)
    assert path.stat().st_size < 50_000
    assert peak_of(lambda: refused(path, "unpacks to more than 200,000 bytes")) < 8_000_000


def test_more_behind_the_end(tmp_path):
    refused(write(tmp_path / "a.tar.gz", good_tar() + good_tar()), "goes on after its end")


def header(size, kind, name=b"top/a/1.txt"):
    """The block of a member with any size field."""
    block = bytearray(tarfile.TarInfo(name.decode()).tobuf(tarfile.GNU_FORMAT))
    block[124:136] = size
    block[156:157] = kind
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


NEGATIVE = b"\xff" * 10 + b"\xfc\x00"  # -1024 in base 256
HUGE = b"\x80" + b"\x00" * 5 + b"\x7f" * 6


@pytest.mark.parametrize(
    ("blocks", "match"),
    [
        (header(NEGATIVE, tarfile.REGTYPE), "'top/a/1.txt' has -1024 bytes"),
        (header(NEGATIVE, tarfile.REGTYPE, b"README"), "'README' has -1024 bytes"),
        (header(NEGATIVE, tarfile.GNUTYPE_LONGNAME), "header"),
        (header(NEGATIVE, b"Z"), "has -1024 bytes"),
        (header(NEGATIVE, tarfile.GNUTYPE_SPARSE, b"README"), "a member of impossible size at 512"),
        (header(HUGE, tarfile.GNUTYPE_LONGNAME), "header of more than 65,536 bytes"),
        (header(HUGE, tarfile.XHDTYPE), "header of more than 65,536 bytes"),
        (header(HUGE, tarfile.REGTYPE), "more than 10,000"),
        (header(HUGE, tarfile.REGTYPE, b"README"), "cut short"),
        (header(b"00000001000\0", tarfile.GNUTYPE_LONGNAME) * 200, "header of more than"),
    ],
)
def test_headers_of_impossible_size(tmp_path, blocks, match):
    refused(write(tmp_path / "a.tar", blocks + bytes(20_000)), match)


@pytest.mark.parametrize(
    "record",
    [
        b"0 path=x\n",
        b"30 GNU.sparse.map=1,x\n",
        b"99 GNU.sparse.size=q\n22 GNU.sparse.offset=z",
        b"9 hdrcharset=\xff\n",
    ],
)
def test_extended_headers_that_make_no_sense(tmp_path, record):
    blocks = header(b"%011o\0" % len(record), tarfile.XHDTYPE) + record.ljust(512, b"\0") + header(b"0" * 12, b"0")
    path = write(tmp_path / "a.tar", tar_bytes([regular("top/b/2.txt")])[:1024] + blocks + bytes(1024), packed=False)
    refused(path, "damaged")


# Damaged ones.


def test_no_archive(tmp_path):
    refused(write(tmp_path / "a", b"<html>" * 1000, packed=False), "no tar archive")
    refused(write(tmp_path / "a", b"<html>" * 1000), "no tar archive")
    refused(write(tmp_path / "a", b"", packed=False), "cut short at 0 bytes")
    refused(write(tmp_path / "a", b""), "cut short at 0 bytes")
    (tmp_path / "a").write_bytes(gzip.compress(b"")[:5])
    refused(tmp_path / "a", "damaged after 0 bytes")


def test_cut_anywhere_it_is_seen(tmp_path):
    content = gzip.compress(good_tar(), mtime=0)
    for end in [*range(3, len(content), 17), len(content) - 1]:
        (tmp_path / "a.tar.gz").write_bytes(content[:end])
        refused(tmp_path / "a.tar.gz", "damaged after|cut short")
    content, end_mark = good_tar(), len(good_tar().rstrip(b"\0"))
    for end in range(256, end_mark, 256):
        (tmp_path / "a.tar").write_bytes(content[:end])
        refused(tmp_path / "a.tar", "cut short")


def test_a_flipped_byte_is_seen_unless_it_changes_nothing(tmp_path):
    content = bytearray(gzip.compress(good_tar(), mtime=0))
    unseen = 0
    for position in range(len(content)):
        content[position] ^= 0x10
        (tmp_path / "a.tar.gz").write_bytes(content)
        try:
            assert read(tmp_path / "a.tar.gz") == WANTED
            unseen += 1
        except DataError:
            pass
        content[position] ^= 0x10
    # The time, the name of the system, and where zeros are taken from to repeat them.
    assert 6 <= unseen < 12


def test_a_flipped_byte_of_a_header_is_seen(tmp_path):
    content = bytearray(good_tar())
    headers = [
        i for i in range(0, len(content), 512) if content[i : i + 4] == b"top/" or content[i : i + 4] == b"top\0"
    ]
    assert len(headers) == 1 + len(FILES)
    for position in [start + offset for start in headers for offset in range(0, 512, 7)]:
        content[position] ^= 0x01
        (tmp_path / "a.tar").write_bytes(content)
        refused(tmp_path / "a.tar", "damaged|no header")
        content[position] ^= 0x01


def test_garbage_is_refused_or_read_within_the_limits(tmp_path):
    rng = random.Random(0)
    content = good_tar()
    for _ in range(300):
        damaged = bytearray(content)
        for _ in range(rng.randrange(1, 8)):
            start = 512 * rng.randrange(len(content) // 512)
            block = header(rng.randbytes(12), rng.choice([b"0", b"5", b"L", b"K", b"x", b"g", b"S", b"1", b"Z", b"7"]))
            damaged[start : start + 512] = block
        (tmp_path / "a.tar").write_bytes(damaged)
        try:
            found = read(tmp_path / "a.tar")
        except DataError:
            continue
        assert all(len(data) <= LIMITS.member_bytes for data in found.values())


# Unpacked.


@pytest.fixture
def folder(tmp_path):
    for name, data in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return tmp_path / "top"


def read_folder(folder, names=NAMES, limits=LIMITS):
    return {name: body.read() for name, body in archives.read_folder(folder, names, limits)}


def refused_folder(folder, match, limits=LIMITS):
    with pytest.raises(DataError, match=match) as caught:
        read_folder(folder, limits=limits)
    assert str(folder) in str(caught.value)


def test_an_unpacked_folder_has_the_same_members_sorted(folder):
    assert list(read_folder(folder).items()) == sorted(WANTED.items())
    without_top = Names(re.compile(r"[^/]+/[^/]+\.txt"), "top")
    assert [f"top/{name}" for name in read_folder(folder, without_top)] == sorted(WANTED)


def test_limits_of_a_folder(folder):
    size = sum(map(len, WANTED.values()))
    assert read_folder(folder, limits=Limits(5_120, 3, size)) == WANTED
    refused_folder(folder, "'top/a/1.txt' has 5,120 bytes, more than 5,119", Limits(5_119, 3, size))
    refused_folder(folder, "is one file more than the 2 there can be", Limits(5_120, 2, size))
    refused_folder(folder, f"more than {size - 1:,} bytes", Limits(5_120, 3, size - 1))


def test_links_of_a_folder_do_not_lead_out(folder):
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "9.txt").write_bytes(b"secret")
    (folder / "linked").symlink_to(outside)
    (folder / "b" / "4.txt").symlink_to(folder / "a" / "1.txt")
    assert read_folder(folder) == WANTED | {"top/b/4.txt": FILES["top/a/1.txt"]}
    (folder / "b" / "5.txt").symlink_to(outside / "9.txt")
    refused_folder(folder, "'top/b/5.txt' is a link out of the folder")


def test_a_pipe_in_place_of_a_file(folder):
    os.mkfifo(folder / "a" / "5.txt")
    refused_folder(folder, "'top/a/5.txt' is no regular file")


def test_a_folder_with_odd_names(folder):
    (folder / "a" / "x\\y.txt").write_bytes(b"")
    refused_folder(folder, "backslash")
    (folder / "a" / "x\\y.txt").unlink()
    (folder / "a" / "5.txt").symlink_to("nothing")
    refused_folder(folder, "'top/a/5.txt' cannot be read: No such file")
    (folder / "a" / "5.txt").unlink()
    (folder / "top" / "a").mkdir(parents=True)
    (folder / "top" / "a" / "1.txt").write_bytes(b"")
    with pytest.raises(DataError, match=r"'top/a/1\.txt' is there twice"):
        read_folder(folder, Names(re.compile(r"(top/)?a/.*"), "top"))
