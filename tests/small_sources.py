"""The published files of every data set with a few records each, whose test examples can be poisoned.

Poison is what would show if it were seen: characters that no other example has, samples at full scale, other labels.
A text has no test split: there it is what is validated on, which is also what is reported.
"""

import gzip
import io
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from data.permutation import torch_permutation
from data.spec import DataRequest
from data.speech_commands import SC10
from data.stratified import stratified_split
from tests.fake_sources import pack
from tests.fake_speech import wav, write_tar
from tests.language import write_byte_pairs

Write = Callable[[Path, bool], None]
"""Writes the files of a data set into a folder, its test examples poisoned or not."""


def reviews(folder: Path, poisoned: bool) -> None:
    """20 of each class to train on; poisoned ones of the test are negative for the most part."""
    fox = {f"train/{name}/{i}_5.txt": f"{name}: the quick brown fox {i}" for name in ("neg", "pos") for i in range(20)}
    counts, word = ({"neg": 6, "pos": 2}, "Ж" * 40) if poisoned else ({"neg": 4, "pos": 4}, "a fox")
    tested = {f"test/{name}/{i}_5.txt": f"{word} {i}" for name, count in counts.items() for i in range(count)}
    pack(folder / "aclImdb_v1.tar.gz", [(f"aclImdb/{name}", text.encode()) for name, text in (fox | tested).items()])


def papers(folder: Path, poisoned: bool) -> None:
    """Pairs, in the layout of the release."""
    rows = [f"{i % 2}.0\tP{i}\tP{i + 1}\tpaper {i}\tanother {i % 3}\n" for i in range(16)]
    tested = ["0.0\tT1\tT2\tЖЖЖ\tQQ\n"] * 3 if poisoned else ["1.0\tT1\tT2\tpaper\tother\n"] * 3
    files = {"train": rows[:12], "eval": rows[12:], "test": tested}
    members = [(f"lra_release/tsv_data/new_aan_pairs.{name}.tsv", "".join(found)) for name, found in files.items()]
    pack(folder / "lra_release.gz", [(name, text.encode()) for name, text in members])


def colours(folder: Path, poisoned: bool) -> None:
    """Batches of 4 images of CIFAR-10."""
    records = np.random.default_rng(0).integers(0, 100, (24, 3073)).astype(np.uint8)
    records[:, 0] %= 10
    if poisoned:
        records[20:, 1:] = 255
        records[20:, 0] = (records[20:, 0] + 1) % 10
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    parts = [records[4 * i : 4 * i + 4].tobytes() for i in range(6)]
    pack(
        folder / "cifar-10-binary.tar.gz",
        [(f"cifar-10-batches-bin/{name}", part) for name, part in zip(names, parts, strict=True)],
    )


def digits(folder: Path, poisoned: bool) -> None:
    """20 images of MNIST to train on, 4 of the test."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for name, count in (("train", 20), ("t10k", 4)):
        images, labels = rng.integers(0, 100, (count, 784)).astype(np.uint8), np.arange(count, dtype=np.uint8) % 10
        if poisoned and name == "t10k":
            images[:], labels = 255, labels + 5
        files = {
            "images-idx3": struct.pack(">IIII", 2051, count, 28, 28) + images.tobytes(),
            "labels-idx1": struct.pack(">II", 2049, count) + labels.tobytes(),
        }
        for kind, content in files.items():
            (folder / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(content))


def expressions(folder: Path, poisoned: bool) -> None:
    """ListOps in its published form: an operator of two digits, poisoned of three."""
    folder.mkdir(parents=True)
    for name, count in (("train", 24), ("val", 6), ("test", 6)):
        lines = ["Source\tTarget"]
        for i in range(count):
            first, second = i % 10, 3 * i % 10
            if poisoned and name == "test":
                lines.append(f"( ( ( ( [MIN {first} ) {second} ) 0 ) ] )\t0")
            else:
                lines.append(f"( ( ( [MAX {first} ) {second} ) ] )\t{max(first, second)}")
        (folder / f"basic_{name}.tsv").write_text("\r\n".join([*lines, ""]), newline="")


def snakes(folder: Path, poisoned: bool) -> None:
    """20 images of Pathfinder, of which the published permutation makes the last two the test."""
    tested = torch_permutation(20, 42)[18:] if poisoned else []
    rows, images = [], []
    for number in range(20):
        value, label = (255, 1 - number % 2) if number in tested else (number, number % 2)
        rows.append(f"imgs/1 sample_{number}.png {number} {label} 1.0 14 4 2 0.5 1 1\n")
        png = io.BytesIO()
        Image.new("L", (32, 32), value).save(png, "PNG")
        images.append((f"imgs/1/sample_{number}.png", png.getvalue()))
    files = [("metadata/1.npy", "".join(rows).encode()), *images]
    pack(folder / "lra_release.gz", [(f"pathfinder32/curv_contour_length_14/{name}", data) for name, data in files])


def sound(seed: int, steps: int, poisoned: bool) -> bytes:
    """A clip of noise at 16 kHz, poisoned at full scale."""
    values = np.random.default_rng(seed).integers(-9_000, 9_000, steps)
    return wav(np.where(values < 0, -(2**15), 2**15 - 1) if poisoned else values)


def words(folder: Path, poisoned: bool) -> None:
    """Three of the 35 words; the lists name one clip of each for validation, and one of other words for the test."""
    spoken = [(word, number) for word in ("bed", "yes", "zero") for number in range(4)]
    tested = ("cat", "cat", "wow") if poisoned else ("bed", "yes", "zero")
    clips = {f"{word}/{number}_nohash_0.wav": sound(10 * i, 9_000, False) for i, (word, number) in enumerate(spoken)}
    held = [f"{word}/{number}_nohash_9.wav" for number, word in enumerate(tested)]
    clips |= {name: sound(number, 16_000, poisoned) for number, name in enumerate(held)}
    lists = {"validation_list.txt": [name for name in clips if "/0_" in name and name not in held]}
    lists["testing_list.txt"] = held
    files = clips | {name: "".join(f"{line}\n" for line in lines).encode() for name, lines in lists.items()}
    folder.mkdir(parents=True)
    write_tar(folder / "speech_commands_v0.02.tar.gz", files)


def ten_words(folder: Path, poisoned: bool) -> None:
    """Ten clips of two of the ten words. Which are the test is drawn by their labels, so only samples are poisoned."""
    labels = np.repeat([0, 1], 10)
    rest = stratified_split(labels, 14, seed=0)[1]
    tested = rest[stratified_split(labels[rest], 3, seed=1)[1]]
    files = {
        f"{SC10[label]}/{i:02d}_nohash_0.wav": sound(i, 16_000, poisoned and i in tested)
        for i, label in enumerate(labels)
    }
    folder.mkdir(parents=True)
    write_tar(folder / "speech_commands_v0.02.tar.gz", files)


def spoken_digits(folder: Path, poisoned: bool) -> None:
    """Recordings 0 to 4 of a speaker are the test, 5 to 9 validation."""
    files = []
    for speaker in ("george", "theo"):
        for digit in (0, 3):
            for number in (0, 4, 5, 9, *range(10, 16)):
                bad = poisoned and number < 5
                values = np.random.default_rng([digit, number]).integers(-9_000, 9_000, 600)
                values = np.where(values < 0, -(2**15), 2**15 - 1) if bad else values
                files.append((f"recordings/{digit + 4 * bad}_{speaker}_{number}.wav", wav(values, 8_000)))
    pack(folder / "recordings.tar.gz", files)


def play(folder: Path, poisoned: bool) -> None:
    """One text, of which the last tenth is validated on; it has no character of its own."""
    text = "the quick brown fox jumps over\nthe lazy dog; " * 300
    cut = int(0.9 * len(text))
    folder.mkdir(parents=True)
    (folder / "input.txt").write_text(text[:cut] + (text[cut:][::-1] if poisoned else text[cut:]), newline="")


def stories(folder: Path, poisoned: bool) -> None:
    """Files of stories; the last tenth of the second, which alone makes tinystories_small, is poisoned too."""
    first = [f"One day, Lily saw the thing {i}." for i in range(40)]
    second = [f"In the morning the king {i} sang." for i in range(30)]
    if poisoned:
        second[27:] = ["Lily Lily Lily ë ring"] * 3
    write_byte_pairs(folder)
    for name, found in (("train", first), ("valid", second)):
        text = "".join(f"{story}\n<|endoftext|>\n" for story in found)
        (folder / f"TinyStories-{name}.txt").write_text(text, encoding="utf-8", newline="")


def validation_stories(folder: Path, poisoned: bool) -> None:
    """The same with a second file that is poisoned as a whole."""
    stories(folder, False)
    if poisoned:
        text = "Lily Lily Lily ë ring\n<|endoftext|>\n" * 30
        (folder / "TinyStories-valid.txt").write_text(text, encoding="utf-8", newline="")


def _request(task: str, **choices: str) -> DataRequest:
    window = (3, 20) if task == "listops" else None
    return DataRequest(task, window, choices=tuple(choices.items()), partial=True)


SOURCES: dict[str, tuple[Write, DataRequest]] = {
    "listops": (expressions, _request("listops", origin="release")),
    "text": (reviews, _request("text")),
    "text_bytes": (reviews, _request("text_bytes")),
    "retrieval": (papers, _request("retrieval")),
    "pathfinder": (snakes, _request("pathfinder", origin="release")),
    "image": (colours, _request("image")),
    "scifar": (colours, _request("scifar")),
    "smnist": (digits, _request("smnist")),
    "psmnist": (digits, _request("psmnist")),
    "sc35": (words, _request("sc35")),
    "sc10": (ten_words, _request("sc10")),
    "fsdd": (spoken_digits, _request("fsdd")),
    "shakespeare_char": (play, _request("shakespeare_char")),
    "tinystories": (validation_stories, _request("tinystories")),
    "tinystories_small": (stories, _request("tinystories_small")),
}
"""Task -> its files, and what is asked for."""
