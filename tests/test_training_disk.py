"""A disk that is full, over its quota, read-only or locked while a run uses it: one line, no loss, and on it goes."""

import errno
import os
import resource
import signal
import time

import orbax.checkpoint as ocp
import pytest
from commands import TINY, assert_refused, call

from scripts.kill_subjects import differ_runs
from training import checkpoint, writers

pytestmark = pytest.mark.usefixtures("compiled_once")


def goes_on(folder, undisturbed):
    """The same command, on a disk that is in order again, ends like a run left alone."""
    assert call("train.py", TINY, f"--workdir={folder}").code == 0
    assert differ_runs(undisturbed, folder) == []


def refusing(monkeypatch, owner, name, number, calls):
    """Makes a function raise an error of the operating system from its call `calls` on."""
    function, counted = getattr(owner, name), [0]

    def refuse(*arguments, **options):
        counted[0] += 1
        if counted[0] > calls:
            raise OSError(number, os.strerror(number))
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, refuse)


@pytest.mark.parametrize(
    ("owner", "name", "calls", "number", "line"),
    [
        (writers.MetricsLog, "sync", 1, errno.EIO, "Input/output error"),
        (writers.os, "fsync", 20, errno.ENOSPC, "No space left on device"),
        (checkpoint, "write_json", 1, errno.EDQUOT, "Disk quota exceeded"),
        (checkpoint, "write_atomically", 1, errno.EROFS, "Read-only file system"),
        (checkpoint.Path, "mkdir", 4, errno.EACCES, "Permission denied"),
    ],
)
def test_what_the_disk_refuses_is_one_line_and_costs_no_older_checkpoint(
    undisturbed, tmp_path, monkeypatch, owner, name, calls, number, line
):
    folder = tmp_path / "run"
    refusing(monkeypatch, owner, name, number, calls)
    assert_refused(call("train.py", TINY, f"--workdir={folder}"), line)
    monkeypatch.undo()
    assert checkpoint.steps(folder / "checkpoints") in ([], [4])
    goes_on(folder, undisturbed)


# What orbax still has to write when a file is refused ends in errors that nobody waits for.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ["metrics.jsonl", "cost.json"])
def test_a_file_that_may_not_grow_is_one_line(undisturbed, tmp_path, name):
    """The operating system's own refusal: a limit on the size of files, which leaves half a row of metrics."""
    folder, limits = tmp_path / "run", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((undisturbed / name).stat().st_size // 2, limits[1]))
    try:
        ended = call("train.py", TINY, f"--workdir={folder}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert_refused(ended, "File too large")
    goes_on(folder, undisturbed)


def test_a_file_that_may_not_be_opened_again_is_one_line(undisturbed, tmp_path, monkeypatch):
    """Permission lost between two starts; the tests may run as root, who is never refused."""
    folder = tmp_path / "run"
    refusing(monkeypatch, checkpoint, "save", errno.ENOSPC, 1)
    assert_refused(call("train.py", TINY, f"--workdir={folder}"), "No space left on device")
    monkeypatch.undo()
    refusing(monkeypatch, checkpoint, "_sha256", errno.EACCES, 0)
    assert_refused(call("train.py", TINY, f"--workdir={folder}"), "cannot be read: Permission denied")
    monkeypatch.undo()
    goes_on(folder, undisturbed)


SLOW = {
    "write": (writers, "_written"),
    "sync": (os, "fsync"),
    "rename": (os, "replace"),
    "save": (ocp.Checkpointer, "save"),
}
"""What reaches the disk: rows and log, everything that is waited for, files that get their name, the arrays."""
SECONDS = 0.03
"""Of each: more than an update takes."""


def test_on_a_slow_disk_a_run_ends_with_the_same_bits_also_when_it_is_stopped_while_it_saves(
    undisturbed, tmp_path, monkeypatch
):
    folder, waits = tmp_path / "run", []

    def slow(name, function):
        def waited(*arguments, **options):
            time.sleep(SECONDS)
            waits.append(name)
            if waits.count("save") == 1 and name == "sync":
                signal.raise_signal(signal.SIGTERM)
            return function(*arguments, **options)

        return waited

    for name, (owner, function) in SLOW.items():
        monkeypatch.setattr(owner, function, slow(name, getattr(owner, function)))
    ended = call("train.py", TINY, f"--workdir={folder}")
    assert (ended.code, ended.err) == (75, "stopped at step 5 of 12 and saved: the same command goes on there\n")
    assert checkpoint.steps(folder / "checkpoints") == [4, 5], "what was being saved was saved"
    goes_on(folder, undisturbed)
    assert min(waits.count(name) for name in ("save", "rename")) >= 4
    assert min(waits.count(name) for name in ("write", "sync")) >= 40
