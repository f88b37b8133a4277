"""Clips or files on disk for a moment: written in one order, read in another, never all in memory."""

import os
import tempfile
import weakref
from array import array

import numpy as np

from data.errors import DataError

LARGE = "/var/tmp"
"""Where large temporary files go by the Filesystem Hierarchy Standard: /tmp may be memory."""


class ByteSpool:
    """Strings of bytes in one unnamed file, which is gone with this object or with the process, however that ends.

    In memory is one number for each. The file lies in $TMPDIR or else in `LARGE`.
    """

    def __init__(self):
        standard = tempfile.gettempdir()
        self._folder = LARGE if "TMPDIR" not in os.environ and os.access(LARGE, os.W_OK) else standard
        try:
            # No buffer: what a full disk refused would be tried again, and fail again, where the file is closed.
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
        except OSError as error:
            raise self._refusal(error) from error
        weakref.finalize(self, self._file.close)
        self._ends = array("Q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def append(self, data: bytes) -> int:
        """Writes one and returns its number. Raises DataError where the disk is full."""
        left, end = memoryview(data), self._ends[-1] + len(data)
        try:
            self._file.seek(self._ends[-1])
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise self._refusal(error) from error
        self._ends.append(end)
        return len(self) - 1

    def read(self, number: int) -> bytes:
        """The one of that number."""
        start, end = self._ends[number], self._ends[number + 1]
        return os.pread(self._file.fileno(), end - start, start)

    def _refusal(self, error: OSError) -> DataError:
        return DataError(
            f"a temporary file in {self._folder}: {error.strerror}; TMPDIR may name a folder with more room"
        )


class Spool:
    """A `ByteSpool` of int16 clips."""

    def __init__(self):
        self._bytes = ByteSpool()

    def __len__(self) -> int:
        return len(self._bytes)

    def append(self, values: np.ndarray) -> int:
        """Writes a clip, int16 (n,), and returns its number. Raises DataError where the disk is full."""
        return self._bytes.append(values.astype("<i2", casting="equiv").tobytes())

    def read(self, number: int) -> np.ndarray:
        """The clip of that number."""
        return np.frombuffer(self._bytes.read(number), "<i2").astype(np.int16)
