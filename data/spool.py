"""Clips on disk for a moment: written in one order, read in another, never all in memory."""

import os
import tempfile
import weakref
from array import array

import numpy as np

from data.errors import DataError

LARGE = "/var/tmp"
"""Where large temporary files go by the Filesystem Hierarchy Standard: /tmp may be memory."""


class Spool:
    """int16 clips in one unnamed file, which is gone with this object or with the process, however that ends.

    In memory is one number for each clip. The file lies in $TMPDIR or else in `LARGE`.
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

    def append(self, values: np.ndarray) -> int:
        """Writes a clip, int16 (n,), and returns its number. Raises DataError where the disk is full."""
        data = memoryview(values.astype("<i2", casting="equiv").tobytes())
        end = self._ends[-1] + len(data)
        try:
            self._file.seek(self._ends[-1])
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            raise self._refusal(error) from error
        self._ends.append(end)
        return len(self) - 1

    def read(self, number: int) -> np.ndarray:
        """The clip of that number."""
        start, end = self._ends[number], self._ends[number + 1]
        return np.frombuffer(os.pread(self._file.fileno(), end - start, start), "<i2").astype(np.int16)

    def _refusal(self, error: OSError) -> DataError:
        return DataError(
            f"a temporary file in {self._folder}: {error.strerror}; TMPDIR may name a folder with more room"
        )
