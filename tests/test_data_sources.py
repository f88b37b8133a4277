"""Where files come from: the user's folder before a download, the official file before another one."""

import gzip
import hashlib
import io
import os
import pathlib
import re
import tarfile

import pytest

from data import sources
from data.errors import DataError
from data.parallel import silent
from data.sources import Limits, Member, SourceFile, Sources

LIMITS = Limits(1_000, 100, 1_000_000)
PATTERN = re.compile(r"set/[^/]+/[^/]+\.txt")
FILES = {"set/b/2.txt": b"two", "set/a/1.txt": b"one", "set/README": b"read"}


def packed(files):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(file.getvalue(), mtime=0)


OFFICIAL, OTHER = packed(FILES), packed({"set/a/1.txt": b"another"})
URL = "http://127.0.0.1:9/set.tar.gz"  # nobody listens there
SOURCE = SourceFile(
    "set.tar.gz", (URL,), sha256=hashlib.sha256(OFFICIAL).hexdigest(), root="set", aliases=("set_small*.gz", "old.gz")
)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine").mkdir()
    return tmp_path / "mine"


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def unpack(folder, files=FILES):
    for name, data in files.items():
        put(folder / name, data)


def from_folder(folder, partial=False):
    return Sources(folder, folder.parent / "downloads", partial=partial, progress=silent)


def members(folder, partial=False, pattern=PATTERN, source=SOURCE):
    return dict(from_folder(folder, partial).members(source, pattern, LIMITS))


def fact(file, content, official):
    return {"file": file, "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content), "official": official}


# Search.


def test_the_official_file_is_found_at_any_depth_and_left_as_it_is(folder):
    path = put(folder / "some" / "where" / "set.tar.gz", OFFICIAL)
    before = path.stat()
    found = from_folder(folder)
    assert found.file(SOURCE) == path
    assert found.facts() == [fact("set.tar.gz", OFFICIAL, True)]
    assert list(found.members(SOURCE, PATTERN, LIMITS)) == [
        Member("set/b/2.txt", b"two"),
        Member("set/a/1.txt", b"one"),
    ]
    assert found.facts() == [fact("set.tar.gz", OFFICIAL, True)]
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert list(folder.parent.iterdir()) == [folder]


def test_another_file_needs_partial(folder):
    path = put(folder / "set_small_1.gz", OTHER)
    with pytest.raises(DataError) as caught:
        from_folder(folder).file(SOURCE)
    found = hashlib.sha256(OTHER).hexdigest()
    assert str(caught.value) == (
        f"{path} has sha256 {found} instead of {SOURCE.sha256}: it is not the official one; --partial allows it"
    )
    assert from_folder(folder, partial=True).file(SOURCE) == path
    used = from_folder(folder, partial=True)
    assert list(used.members(SOURCE, PATTERN, LIMITS)) == [Member("set/a/1.txt", b"another")]
    assert used.facts() == [fact("set_small_1.gz", OTHER, False)]


@pytest.mark.parametrize("place", ["a/set_small.gz", "z/set_small.gz", "old.gz", "z/set.tar.gz"])
@pytest.mark.parametrize("partial", [True, False])
def test_the_official_file_goes_before_others(folder, place, partial):
    put(folder / "m" / "set.tar.gz", OTHER)
    put(folder / "m" / "set_small_2.gz", OTHER)
    official = put(folder / place, OFFICIAL)
    assert from_folder(folder, partial).file(SOURCE) == official


def test_of_others_the_name_decides_then_the_order_of_aliases_then_the_path(folder):
    places = ["z/set.tar.gz", "b/set_small.gz", "c/set_small.gz", "a/old.gz"]
    paths = [put(folder / place, OTHER) for place in places]
    for path in paths:
        assert from_folder(folder, partial=True).file(SOURCE) == path
        path.unlink()
    put(folder / "set_large.gz", OTHER)
    os.mkfifo(folder / "set.tar.gz")
    with pytest.raises(DataError, match="cannot download"):
        from_folder(folder, partial=True).file(SOURCE)


def test_without_a_published_hash_a_file_is_used_and_reported(folder):
    put(folder / "set.tar.gz", OTHER)
    found = from_folder(folder)
    source = SourceFile("set.tar.gz", (URL,))
    assert found.file(source).read_bytes() == OTHER
    assert found.facts() == [fact("set.tar.gz", OTHER, None)]


def test_md5_where_only_that_is_published(folder):
    put(folder / "set.tar.gz", OFFICIAL)
    good = SourceFile("set.tar.gz", (URL,), md5=hashlib.md5(OFFICIAL).hexdigest())
    found = from_folder(folder)
    found.file(good)
    assert found.facts() == [fact("set.tar.gz", OFFICIAL, True)]
    with pytest.raises(DataError, match=r"has md5 \w+ instead of 0: it is not the official one"):
        found.file(SourceFile("set.tar.gz", (URL,), md5="0"))


def test_a_data_source_that_is_no_folder(tmp_path):
    with pytest.raises(DataError, match="nowhere is no folder"):
        from_folder(tmp_path / "nowhere")


def test_a_file_is_hashed_once(folder, monkeypatch):
    put(folder / "set.tar.gz", OFFICIAL)
    calls = []
    identify = sources.identify
    monkeypatch.setattr(sources, "identify", lambda *arguments: calls.append(1) or identify(*arguments))
    found = from_folder(folder)
    for _ in range(2):
        found.file(SOURCE)
        list(found.members(SOURCE, PATTERN, LIMITS))
    assert len(calls) == 1


# Downloads.


def test_what_is_not_in_the_folder_is_downloaded(folder):
    # That a download works is the matter of another file; here one that was made before is taken.
    path = put(folder.parent / "downloads" / "set.tar.gz", OFFICIAL)
    for data_source in (folder, None):
        found = Sources(data_source, folder.parent / "downloads", partial=False, progress=silent)
        assert found.file(SOURCE) == path
        assert found.facts() == [fact("set.tar.gz", OFFICIAL, True)]
        assert dict(found.members(SOURCE, PATTERN, LIMITS)) == {"set/b/2.txt": b"two", "set/a/1.txt": b"one"}
    other = put(folder / "set.tar.gz", OTHER)
    assert from_folder(folder, partial=True).file(SOURCE) == other


def test_a_download_must_be_the_official_file_even_with_partial(folder):
    put(folder.parent / "downloads" / "set.tar.gz", OTHER)
    with pytest.raises(DataError, match=r"downloads/set\.tar\.gz has sha256 \w+ instead of \w+; delete it"):
        from_folder(folder, partial=True).file(SOURCE)


def test_no_file_and_no_network(folder):
    with pytest.raises(
        DataError, match=f"cannot download set.tar.gz .*{SOURCE.sha256}.* from {URL}: Connection refused"
    ):
        members(folder)


# Unpacked.


@pytest.mark.parametrize("place", ["set", "deep/er/set"])
def test_an_unpacked_folder_needs_partial_and_has_the_same_members(folder, place):
    unpack((folder / place).parent)
    with pytest.raises(
        DataError, match=r"set is unpacked and cannot be compared with the official set\.tar\.gz; --part"
    ):
        members(folder)
    used = from_folder(folder, partial=True)
    assert list(used.members(SOURCE, PATTERN, LIMITS)) == [Member("set/a/1.txt", b"one"), Member("set/b/2.txt", b"two")]
    lines = "".join(f"{hashlib.sha256(FILES[name]).hexdigest()}  {name}\n" for name in ("set/a/1.txt", "set/b/2.txt"))
    digest = hashlib.sha256(lines.encode()).hexdigest()
    assert used.facts() == [{"file": "set", "sha256": digest, "bytes": 6, "official": False}]


def test_the_data_source_may_be_the_unpacked_folder(folder):
    unpack(folder)
    (folder / "link").symlink_to(folder / "set")
    for data_source in (folder / "set", folder / "link"):
        assert members(data_source, partial=True) == {"set/a/1.txt": b"one", "set/b/2.txt": b"two"}
    os.rename(folder / "set", folder / "other")
    (folder / "set").symlink_to(folder / "other")  # the user's own link in place of the folder
    assert members(folder, partial=True) == {"set/a/1.txt": b"one", "set/b/2.txt": b"two"}


def test_a_file_goes_before_an_unpacked_folder(folder):
    unpack(folder)
    put(folder / "z" / "old.gz", OTHER)
    assert members(folder, partial=True) == {"set/a/1.txt": b"another"}
    with pytest.raises(DataError, match=r"old\.gz has sha256"):
        members(folder)
    put(folder / "z" / "set.tar.gz", OFFICIAL)
    assert members(folder) == {"set/a/1.txt": b"one", "set/b/2.txt": b"two"}


@pytest.mark.parametrize("pattern", [r"set/[ab]/.*", r"[ab]/.*", r"(set/)?[ab]/.*"])
def test_packed_with_or_without_a_top_folder_or_unpacked_the_names_are_the_same(folder, pattern):
    pattern = re.compile(pattern)
    without_top = packed({name.replace("set/", "./"): data for name, data in FILES.items()})
    unpack(folder / "unpacked")
    put(folder / "with" / "set.tar.gz", OFFICIAL)
    put(folder / "without" / "set.tar.gz", without_top)
    first, *others = [members(folder / name, True, pattern) for name in ("unpacked", "with", "without")]
    assert others == [first, first]
    assert list(first.values()) == [b"one", b"two"]


def test_nothing_that_the_set_asks_for(folder):
    put(folder / "set.tar.gz", OFFICIAL)
    with pytest.raises(DataError, match=r"set\.tar\.gz: no member has a name like \.\*wav"):
        members(folder, pattern=re.compile(".*wav"))
    put(folder / "set.tar.gz", OFFICIAL[:-3])
    with pytest.raises(DataError, match="damaged after"):
        members(folder, partial=True)


if "LINREC_DATA_SOURCE" in os.environ:

    @pytest.mark.parametrize(
        ("source", "pattern", "count"),
        [
            (
                SourceFile("x", (), "0", root="aclImdb", aliases=("aclImdb*.gz",)),
                r"aclImdb/t\w+/(pos|neg)/.*txt",
                50_000,
            ),
            (SourceFile("recordings.tar.gz", (), root="recordings"), r"recordings/\w+\.wav", 3_000),
            (SourceFile("x", (), "0", aliases=("speech_commands_v0.01*.gz",)), r"\w+/\w+\.wav", 300),
            (SourceFile("x", (), "0", aliases=("cifar-10-binary*.gz",)), r".*/(data|test)_batch.*\.bin", 6),
        ],
        ids=["imdb", "fsdd", "speech", "cifar"],
    )
    def test_real_archives(source, pattern, count, tmp_path):
        folder = pathlib.Path(os.environ["LINREC_DATA_SOURCE"])
        found = Sources(folder, tmp_path, partial=True, progress=silent)
        limits = Limits(20_000_000, count, 200_000_000)
        assert sum(1 for _ in found.members(source, re.compile(pattern), limits)) == count
