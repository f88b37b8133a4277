"""Whatever is in the files of a data set, its parser gives records or one line of a DataError."""

import gzip
import io
import itertools
import json
import struct
import zlib

import numpy as np
import pytest
from fake_speech import format_chunk, riff, wav
from fuzzing import bytes_like, fuzzed, json_like, mutated, refusing, text_like
from hypothesis import example, given
from hypothesis import strategies as st
from intact_files import IDX, LIMITS, LISTED, NAMES, PAIRS, REQUEST, TARS, TREE, npy, npz
from language import write_byte_pairs

from data import (
    archives,
    arrays,
    byte_pairs,
    fsdd,
    images,
    listops_release,
    mnist,
    pathfinder_release,
    retrieval,
    shakespeare,
    speech_commands,
    story_files,
    text,
)
from data.errors import DataError
from data.parallel import silent
from data.spec import DataRequest
from tests.fake_sources import pack, sources_at, stored

SOUND = ([0, -1, 32_767, 5], (b"data", b"\1\0\2\0"))
MANY = "9" * 5_000
"""Digits that Python does not take for a number."""


# Sound, images, arrays.


@given(bytes_like(wav(SOUND[0]), riff(format_chunk(0xFFFE, more=b"\x16\0" + bytes(22)), SOUND[1], (b"LIST", b"x"))))
@fuzzed
def test_wav(content):
    with refusing(DataError):
        speech_commands.read_wav(content, "bed/a.wav")


@given(bytes_like(IDX), st.booleans())
@example(struct.pack(">II", mnist.LABELS_MAGIC, 2**32 - 1) + IDX, True)
@fuzzed
def test_idx(tmp_path, content, intact):
    path = tmp_path / "labels.gz"
    path.write_bytes(gzip.compress(content) if intact else gzip.compress(IDX)[: len(content)] + content)
    with refusing(DataError):
        mnist.read_idx(path, mnist.LABELS_MAGIC, ())
    with refusing(DataError):
        mnist.read_idx(path, mnist.IMAGES_MAGIC, (28, 28))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


CHUNKS = (
    (b"IHDR", struct.pack(">IIBBBBB", 32, 32, 8, 0, 0, 0, 0)),
    (b"gAMA", struct.pack(">I", 45_455)),
    (b"cHRM", struct.pack(">8I", *range(8))),
    (b"sRGB", b"\0"),
    (b"iCCP", b"icc\0\0" + zlib.compress(b"profile")),
    (b"tRNS", b"\0\1"),
    (b"pHYs", struct.pack(">IIB", 1, 1, 1)),
    (b"tEXt", b"Title\0text"),
    (b"zTXt", b"Title\0\0" + zlib.compress(b"text")),
    (b"iTXt", b"Title\0\1\0en\0t\0" + zlib.compress(b"text")),
    (b"eXIf", b"MM\0*\0\0\0\10"),
    (b"acTL", struct.pack(">II", 1, 0)),
    (b"fcTL", struct.pack(">5I2H2B", 0, 32, 32, 0, 0, 1, 1, 0, 0)),
    (b"IDAT", zlib.compress(b"\0" + bytes(32) + (b"\1" + bytes(32)) * 31)),
    (b"IEND", b""),
)


def png(chunks):
    return b"\x89PNG\r\n\x1a\n" + b"".join(itertools.starmap(chunk, chunks))


def with_chunk(kind, data):
    return png([(name, data if name == kind else old) for name, old in CHUNKS])


@st.composite
def damaged_png(draw):
    """With checksums that are right: what is wrong is found behind them."""
    chunks = [*CHUNKS]
    for place in draw(st.lists(st.integers(0, len(chunks) - 1), min_size=1, max_size=3)):
        kind, data = chunks[place]
        chunks[place] = draw(st.sampled_from([(kind, b""), (kind, data[:-1]), (b"IDAT", data), chunks[place - 1]]))
        chunks[place] = (
            draw(bytes_like(data).map(lambda found, kind=kind: (kind, found))) if draw(st.booleans()) else chunks[place]
        )
    return png(chunks)


@given(st.one_of(damaged_png(), bytes_like(png(CHUNKS))))
@example(with_chunk(b"tRNS", b""))  # struct.error
@example(with_chunk(b"cHRM", b"\0" * 5))
@example(with_chunk(b"acTL", struct.pack(">II", 0, 0)))  # a warning, on lines of its own
@example(with_chunk(b"IHDR", struct.pack(">IIBBBBB", 10_000, 10_000, 8, 0, 0, 0, 0)))  # a warning of a bomb
@example(with_chunk(b"zTXt", b"Title\0\0" + zlib.compress(bytes(2**24))))
@fuzzed
def test_png(content):
    with refusing(DataError):
        pathfinder_release.decode("imgs/0/a.png", content, 32)


def test_the_png_that_is_mutated_is_intact():
    assert pathfinder_release.decode("a.png", png(CHUNKS), 32).shape == (32, 32)


@given(bytes_like(npy(LISTED), npy(LISTED.astype("S")), b"imgs/0 a.png 0 1\nimgs/0 b.png 1 0\n"))
@example(npy(LISTED, shape=(2**40, 4)))  # memory for as many as the header says
@example(npy(LISTED, descr="<U0", shape=(2**40, 4)))  # as many elements of no size
@example(npy(LISTED, descr="|O"))
@example(npy(LISTED, shape=(-1, -4)))
@example(npy(LISTED, shape=("x",)))
@example(npy(LISTED, descr=[[[]]]))
@example(npy(LISTED, descr="<M8[" + "9" * 90 + "s]"))
@example(arrays.MAGIC + b"\1\0" + struct.pack("<H", 5_000) + b"(" * 5_000)
@example(arrays.MAGIC + b"\1\0" + struct.pack("<H", 5_000) + b"-" * 4_999 + b"1")
@example(arrays.MAGIC + b"\1\0" + struct.pack("<H", 9) + b"{'descr':")  # an error of the tokenizer
@example(arrays.MAGIC + b"\3\0" + bytes(10))
@example(npy(LISTED).replace(b"i\0\0\0", b"    ", 1))  # a character beyond the last one
@example(npy(LISTED).replace(b"i\0\0\0", b"i\xd8\0\0", 1))  # half of one
@fuzzed
def test_lists_of_images(content):
    with refusing(DataError):
        for entry in pathfinder_release.parse_list("metadata/1.npy", content):
            entry.image.encode()  # a file can be asked for by it


def packed_npz():
    buffer = io.BytesIO()
    np.savez_compressed(buffer, zeros=np.zeros(2**25, np.uint8))
    return buffer.getvalue()


@given(bytes_like(npz()))
@example(packed_npz())
@example(npz().replace(b"\0\0\0\0\x21\0", b"\1\0\0\0\x21\0"))  # asks for a password
@fuzzed
def test_npz(content):
    with refusing(DataError):
        arrays.parse_npz(content, "place.npz")


# Archives.


def with_checksums(content):
    """Every block that may be a header with its right checksum: what is wrong is found behind it."""
    found = bytearray(content.ljust(-(-len(content) // 512) * 512, b"\0"))
    for start in range(0, len(found), 512):
        if found[start + 257 : start + 262] == b"ustar":
            found[start + 148 : start + 156] = b" " * 8
            found[start + 148 : start + 156] = b"%06o\0 " % sum(found[start : start + 512])
    return bytes(found)


@given(bytes_like(*TARS), st.booleans(), st.booleans())
@fuzzed
def test_tar(tmp_path, content, checked, packed):
    content = with_checksums(content) if checked else content
    path = tmp_path / "in" / "a.tar"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(content, mtime=0) if packed else content)
    with refusing(DataError):
        for name, body in archives.read_archive(path, NAMES, LIMITS):
            assert NAMES.pattern.fullmatch(name)
            assert len(body.read()) <= LIMITS.member_bytes
    assert [*tmp_path.rglob("*")] == [path.parent, path]


CIFAR = bytes([3]) + bytes(range(256)) * 12
REVIEWS = [
    f"aclImdb/{split}/{kind}/{n}_7.txt" for split in ("train", "test") for kind in ("neg", "pos") for n in (0, 1)
]
CLIPS = dict.fromkeys(("bed/a.wav", "cat/b.wav", "dog/c.wav"), wav(SOUND[0]))
AAN = [f"lra_release/lra_release/tsv_data/new_aan_pairs.{name}.tsv" for name in retrieval.FILES.values()]
PATHS = f"lra_release/lra_release/pathfinder32/{pathfinder_release.SET}"
SETS = {
    "image": (
        images.generate,
        images.ARCHIVE,
        {f"cifar-10-batches-bin/{name}": CIFAR * 2 for name in (*images.BATCHES, images.TEST_BATCH)},
    ),
    "text": (text.generate, text.ARCHIVE, dict.fromkeys(REVIEWS, b"good <br />")),
    "fsdd": (fsdd.generate, fsdd.ARCHIVE, {f"recordings/1_theo_{n}.wav": wav(SOUND[0], 8_000) for n in (0, 5, 10)}),
    "sc35": (
        speech_commands.generate,
        speech_commands.ARCHIVE,
        {**CLIPS, "validation_list.txt": b"bed/a.wav\n", "testing_list.txt": b"cat/b.wav\n"},
    ),
    "pathfinder": (
        lambda request, sources, _, progress: pathfinder_release.generate(request, 32, sources, progress),
        pathfinder_release.archive(32),
        {f"{PATHS}/metadata/1.npy": b"imgs/0 a.png 0 1\n" * 10, f"{PATHS}/imgs/0/a.png": png(CHUNKS)},
    ),
    "retrieval": (retrieval.generate, retrieval.RELEASE, dict.fromkeys(AAN, b"1.0\tE1\tE2\tab\tba\n")),
}


@st.composite
def damaged_set(draw):
    """The members of an archive of a data set, of one of which name or content was mutated."""
    task = draw(st.sampled_from([*SETS]))
    members = [*SETS[task][2].items()]
    place = draw(st.integers(0, len(members) - 1))
    name, content = members[place]
    if draw(st.booleans()):
        members[place] = draw(text_like(name)).replace("\0", "")[:5_000], content
    else:
        members[place] = name, draw(bytes_like(content))
    return task, members


def add(task, old, new):
    """All members of a set, and one more under a name of its own."""
    members = SETS[task][2]
    return task, [*members.items(), (new, members[old])]


@pytest.mark.parametrize("task", SETS)
def test_the_sets_that_are_damaged_are_intact(tmp_path, task):
    generate, source, members = SETS[task]
    pack(tmp_path / source.name, members.items())
    made = stored(generate(DataRequest(task, partial=True), sources_at(tmp_path), 1, silent))
    assert len(made["train"])


@given(damaged_set())
@example(add("pathfinder", f"{PATHS}/metadata/1.npy", f"{PATHS}/metadata/{MANY}.npy"))
@example(add("text", "aclImdb/test/pos/1_7.txt", f"aclImdb/test/pos/{MANY}_7.txt"))
@example(add("fsdd", "recordings/1_theo_0.wav", f"recordings/1_theo_{MANY}.wav"))
@example(add("sc35", "bed/a.wav", "b\ned/\x1b[2J.wav"))
@fuzzed
def test_data_sets_from_archives(tmp_path, found):
    (task, members), (generate, source, _) = found, SETS[found[0]]
    folder = tmp_path / task
    pack(folder / source.name, members)
    with refusing(DataError):
        made = generate(DataRequest(task, partial=True), sources_at(folder), 1, silent)
        stored(made)
        json.dumps(made.facts())
    assert [path.name for path in folder.iterdir()] == [source.name]


# Texts.


@given(bytes_like(f"{listops_release.HEADER}\r\n{TREE}\r\n".encode() * 2))
@fuzzed
def test_listops_tsv(tmp_path, content):
    for file in listops_release.FILES.values():
        (tmp_path / file.name).write_bytes(content)
    with refusing(DataError):
        stored(listops_release.generate(REQUEST, sources_at(tmp_path), 1, silent))


@given(text_like(TREE))
@example("[MAX " * 400 + "1 2 " + "] " * 400 + "\t2")
@fuzzed
def test_listops_expressions(line):
    with refusing(DataError):
        listops_release.example("basic_val.tsv line 2", line, REQUEST)


@given(bytes_like(PAIRS), st.sampled_from([*retrieval.READERS]))
@example(b'1.0\ta\tb\tx\r\ry\t"\r', "csv")
@fuzzed
def test_pairs_tsv(tmp_path, content, quoting):
    pack(tmp_path / retrieval.RELEASE.name, [(name, content) for name in AAN])
    request = DataRequest("retrieval", partial=True, choices=(("quoting", quoting),))
    with refusing(DataError):
        stored(retrieval.generate(request, sources_at(tmp_path), 1, silent))


@given(bytes_like(b"bed/a.wav\n./cat/b.wav\r\n\n"))
@fuzzed
def test_lists_of_clips(content):
    with refusing(DataError):
        speech_commands.read_list(content, "testing_list.txt")


STORIES = b"One day,\nTom.\n<|endoftext|>\n\n<|endoftext|>Mia \xc3\xab.<|endoftext|>"


@given(bytes_like(STORIES), st.sampled_from([None, 1, 2]))
@fuzzed
def test_stories(tmp_path, content, most):
    path = tmp_path / "stories.txt"
    path.write_bytes(content)
    with refusing(DataError):
        starts = story_files.story_starts(path, most, silent)
        for block in story_files.blocks(path, starts, 0, len(starts) - 1, 2):
            assert all(isinstance(story, str) for story in story_files.stories(block))


BPE = b"#version: 0.2\nt h\nth e\n"
IDS = {character: place for place, character in enumerate(byte_pairs._byte_characters())}
ENCODER = {**IDS, "th": 256, "the": 257, byte_pairs.END_OF_TEXT: 258}


@given(st.one_of(bytes_like(BPE), st.just(BPE)), st.one_of(json_like(ENCODER), st.just(json.dumps(ENCODER).encode())))
@example(BPE, b"[" * 2_000)  # RecursionError
@example(BPE, json.dumps(ENCODER | {"th": [[0]], "the": [[1]]}).encode())
@fuzzed
def test_byte_pairs(tmp_path, merges, encoder):
    files = tmp_path / "vocab.bpe", tmp_path / "encoder.json"
    for path, content in zip(files, (merges, encoder), strict=True):
        path.write_bytes(content)
    byte_pairs.read_tokens.cache_clear()
    with refusing(DataError):
        byte_pairs.read_tokens(*files)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    byte_pairs.read_tokens.cache_clear()
    tokens = byte_pairs.read_tokens(*write_byte_pairs(tmp_path_factory.mktemp("pairs")))
    return byte_pairs.Tokenizer(tokens, np.arange(len(tokens) + 1, dtype=np.int32))


@given(st.randoms(use_true_random=False), st.sampled_from(["bpe_bytes", "bpe_lengths", "vocabulary"]), st.booleans())
@fuzzed
def test_byte_pairs_of_prepared_data(tokenizer, draw, name, retyped):
    found = tokenizer.arrays()
    if retyped:
        found[name] = found[name].astype(draw.choice([np.int64, np.float32, np.uint16, "U3"])).reshape(-1, 1)[:, 0]
    else:
        content = mutated(draw, found[name].tobytes())
        found[name] = np.frombuffer(content[: len(content) // 4 * 4], found[name].dtype)
    with refusing(DataError):
        made = byte_pairs.Tokenizer.from_arrays(found)
        made.decode(made.encode("the \n Lily\0"))


@given(st.text(max_size=300), st.sampled_from([" ", "^", "a", "9", "\u3000", "\n"]), st.sampled_from([0, 3, 3_000]))
@example("", "\n", 2**20)  # a panic of the library, which no except clause of Exception catches
@fuzzed
def test_text_of_any_kind_is_encoded(tokenizer, some, letter, times):
    written = some + letter * times + some
    with refusing(DataError):
        assert tokenizer.decode(tokenizer.encode(written)) == written


@given(json_like({"vocabulary": {"a": 0, "b": 1, "é": 2}}))
@example(json.dumps({"vocabulary": {"\ud800": 0}}).encode())
@example(json.dumps({"vocabulary": {"ab": 0}}).encode())
@fuzzed
def test_vocabularies_of_characters(content):
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return
    with refusing(DataError):
        if isinstance(found, dict):
            made = shakespeare.tokenizer(DataRequest("shakespeare_char"), found, {})
            assert made.encode(made.decode(np.arange(len(made.vocabulary)))).tolist() == [*range(len(made.vocabulary))]
            assert made.token_bytes.min(initial=1) >= 1
