"""What is printed, where nobody reads it any more."""

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def unread() -> Iterator[None]:
    """Goes on where whoever read the output has enough, as ``head`` has, and throws away what is printed from there."""
    try:
        yield
    except BrokenPipeError:
        # The stream keeps what it could not write, and would fail at it again when Python ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
