"""Clips on disk for a moment."""

import contextlib
import gc
import os

import numpy as np
import pytest
from fake_speech import clip

from data import spool
from data.errors import DataError
from data.spool import Spool


def test_clips_come_back_in_any_order():
    held = Spool()
    clips = [clip(seed, 1 + 777 * seed) for seed in range(9)]
    numbers = [held.append(values) for values in clips[:5]]
    np.testing.assert_array_equal(held.read(3), clips[3])
    numbers += [held.append(values) for values in clips[5:]]
    assert (numbers, len(held)) == (list(range(9)), 9)
    for number in (8, 0, 4, 5, 4, 7):
        found = held.read(number)
        np.testing.assert_array_equal(found, clips[number])
        assert found.dtype == np.int16


def test_the_file_has_no_name_and_goes_with_the_object(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    held = Spool()
    held.append(clip(0))
    assert sum(name.startswith(str(tmp_path)) for name in open_files()) == 1
    assert list(tmp_path.iterdir()) == []
    del held
    gc.collect()
    assert sum(name.startswith(str(tmp_path)) for name in open_files()) == 0


def open_files():
    """Names of the files that this process has open."""
    names = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one of the listing
            names.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return names


def test_where_large_files_go(monkeypatch, tmp_path):
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(spool, "LARGE", str(tmp_path))
    held = Spool()
    assert sum(name.startswith(str(tmp_path)) for name in open_files()) == 1
    del held


def test_a_full_disk_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("tempfile.TemporaryFile", lambda dir, buffering: open("/dev/full", "r+b", buffering))  # noqa: SIM115
    held = Spool()
    with pytest.raises(DataError, match=f"^a temporary file in {tmp_path}: No space left on device; TMPDIR may name"):
        held.append(clip(0))


def test_a_folder_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(DataError, match="gone: No such file or directory; TMPDIR"):
        Spool()


def test_only_samples_as_they_are():
    with pytest.raises(TypeError):
        Spool().append(np.array([1.5, 2.0]))
