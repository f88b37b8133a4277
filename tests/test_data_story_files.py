"""Files of stories: what lies between separators is a story, wherever a file is cut to be read."""

import numpy as np
import pytest

from data import story_files
from data.errors import DataError
from data.parallel import silent
from data.story_files import blocks, stories, story_starts

SEPARATOR = "<|endoftext|>"


def read(path, size=2, most=None):
    starts = story_starts(path, most, silent)
    found = blocks(path, starts, 0, len(starts) - 1, size)
    return [story for block in found for story in stories(block)]


@pytest.mark.parametrize("piece", [1, 2, 5, 13, 14, 1000])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_stories_come_out_as_they_went_in(tmp_path, monkeypatch, piece, newline):
    monkeypatch.setattr(story_files, "PIECE", piece)
    expected = ["middle of one.", "A", "  two\n\nlines “quoted” é ", "<|endoftex|>", "last"]
    text = "middle of one.\nSEP\nA\nSEP\n\n\nSEP\nSEP\n  two\n\nlines “quoted” é \nSEP\n<|endoftex|>SEPlast\n"
    path = tmp_path / "stories.txt"
    path.write_bytes(text.replace("SEP", SEPARATOR).replace("\n", newline).encode())
    wanted = [story.replace("\n", newline) for story in expected]
    for size in (1, 2, 3, 10):
        assert read(path, size) == wanted
    for most in (1, 3, 5, 9):
        assert read(path, most=most) == wanted[:most]


def test_blocks_are_the_stories_of_a_range(tmp_path):
    path = tmp_path / "stories.txt"
    path.write_text(f"\n{SEPARATOR}\n".join("abcdefg"))
    starts = story_starts(path, None, silent)
    found = blocks(path, starts, 2, 7, 2)
    assert [(block.first, block.count) for block in found] == [(2, 2), (4, 2), (6, 1)]
    assert ["".join(stories(block)) for block in found] == ["cd", "ef", "g"]
    assert all(np.diff([block.stop - block.start for block in found]) <= 0)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\n<|endoftext|>\n<|endoftext|>"])
def test_a_file_without_stories_is_refused(tmp_path, content):
    path = tmp_path / "stories.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"stories\.txt holds no story"):
        story_starts(path, None, silent)


@pytest.mark.parametrize("rest", ["", SEPARATOR])
def test_a_file_without_separators_is_refused(tmp_path, monkeypatch, rest):
    monkeypatch.setattr(story_files, "LONGEST_STORY", 50)
    path = tmp_path / "stories.txt"
    path.write_text(f"A{SEPARATOR}" + 51 * "x" + rest)
    with pytest.raises(DataError, match=r"stories\.txt: no <\|endoftext\|> in 51 bytes from byte 14 on"):
        story_starts(path, None, silent)


def test_a_file_without_separators_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(story_files, "LONGEST_STORY", 50)
    monkeypatch.setattr(story_files, "PIECE", 20)
    path = tmp_path / "stories.txt"
    path.write_text(1000 * "x")
    with pytest.raises(DataError, match=r"in 60 bytes from byte 0 on"):
        story_starts(path, None, silent)


def test_damaged_text_is_named_by_its_story(tmp_path):
    path = tmp_path / "stories.txt"
    path.write_bytes(b"one<|endoftext|>\n\n<|endoftext|>t\xffwo<|endoftext|>")
    with pytest.raises(DataError, match=r"stories\.txt: story 1 is not UTF-8 at its byte 1"):
        read(path)


def test_a_file_that_changes_is_refused(tmp_path):
    path = tmp_path / "stories.txt"
    path.write_text(f"one{SEPARATOR}two{SEPARATOR}")
    starts = story_starts(path, None, silent)
    path.write_text(f"one{SEPARATOR}\n\n\n")
    with pytest.raises(DataError, match="changed while it was read: 1 stories instead of 2"):
        list(stories(blocks(path, starts, 0, 2, 2)[0]))
