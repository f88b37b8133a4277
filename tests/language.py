"""What the tests of texts share: files of byte pairs, story files, sources and splits that are in memory."""

import json
from pathlib import Path
from typing import Any

from data.errors import DataError
from tests.fake_sources import Stored

MERGES = [
    (b"t", b"h"),
    (b"th", b"e"),
    (b" ", b"the"),
    (b"i", b"n"),
    (b"in", b"g"),
    (b"L", b"i"),
    (b"l", b"y"),
    (b"Li", b"ly"),
    (b" ", b"Lily"),
    (b"\xc3", b"\xab"),  # ë
]
"""In the order in which they were learned: the first has id 256."""


def spell(token):
    """Bytes as GPT-2's files write them: what Python can print stands for itself."""
    unseen = [byte for byte in range(256) if not chr(byte).isprintable() or chr(byte) == " "]
    return "".join(chr(256 + unseen.index(byte)) if byte in unseen else chr(byte) for byte in token)


def order_of_bytes():
    seen = [byte for byte in range(256) if spell(bytes([byte])) == chr(byte)]
    return seen + [byte for byte in range(256) if byte not in seen]


def write_byte_pairs(folder, merges=MERGES):
    """vocab.bpe and encoder.json in `folder`, in GPT-2's format."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["#version: 0.2", *(f"{spell(first)} {spell(second)}" for first, second in merges)]
    (folder / "vocab.bpe").write_text("\n".join(lines) + "\n", encoding="utf-8")
    tokens = [bytes([byte]) for byte in order_of_bytes()] + [first + second for first, second in merges]
    ids = {spell(token): number for number, token in enumerate(tokens)}
    (folder / "encoder.json").write_text(json.dumps({**ids, "<|endoftext|>": len(ids)}), encoding="utf-8")
    return folder / "vocab.bpe", folder / "encoder.json"


class Folder:
    """In place of `data.sources.Sources`: the files of one folder, by name."""

    def __init__(self, folder):
        self.folder, self.asked = Path(folder), []

    def file(self, source):
        self.asked.append(source.name)
        if not (self.folder / source.name).exists():
            raise DataError(f"no {source.name}")
        return self.folder / source.name

    def facts(self):
        return [{"file": name} for name in self.asked]


def sources_in(folder) -> Any:
    return Folder(folder)


def take(generated):
    """Each split taken once, in order; then the facts."""
    splits = {name: Stored(examples) for name, examples in generated.splits.items()}
    return splits, generated.facts()
