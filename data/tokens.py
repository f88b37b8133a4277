"""Between text and the ids that a language model sees: what a prompt and a sample need of a data set."""

import codecs
from typing import Protocol

import numpy as np


class Tokens(Protocol):
    """The ids 0 ... V-1 of a text."""

    @property
    def end_of_text(self) -> int | None:
        """The id between documents; None if the vocabulary lacks it."""
        ...

    @property
    def token_bytes(self) -> np.ndarray:
        """(V,) int32: bytes of text that each id stands for; none for end-of-text."""
        ...

    def encode(self, text: str) -> np.ndarray:
        """(n,) ids. Raises DataError for text that the vocabulary cannot say."""
        ...

    def decode(self, ids: np.ndarray) -> str:
        """The text of ids; U+FFFD where they are no text. Raises DataError for an id outside the vocabulary."""
        ...

    def bytes_of(self, ids: np.ndarray) -> bytes:
        """The bytes of ids, in UTF-8 where they are text. Raises DataError for an id outside the vocabulary."""
        ...


class TextStream:
    """Text from bytes as they come: a character is given once all its bytes are there, so that all that was given,
    joined, is the text of all bytes; U+FFFD stands for bytes that can become none.

    pending: bytes of a character begun and not ended, from an earlier stream.
    """

    def __init__(self, pending: bytes = b"") -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._decoder.setstate((pending, 0))

    def __call__(self, part: bytes) -> str:
        """What `part` completes."""
        return self._decoder.decode(part)

    @property
    def pending(self) -> bytes:
        """Bytes of a character begun and not ended."""
        return self._decoder.getstate()[0]
