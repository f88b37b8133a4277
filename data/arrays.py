"""NumPy's files of one array (.npy), or of several (.npz), that anybody may have written: plain values, no object,
nothing unpickled.

Magic, version, length of the header, header (a Python literal: type, order, shape), then the bytes of the array. What
the header says is believed only if the bytes that follow are as many: `numpy.load` takes memory for whatever a few
bytes say, and for elements of no size it takes time for, too.
Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

import io
import math
import struct
import sys
import tokenize
import warnings
import zipfile

import numpy as np
from numpy.lib import format as npy

from data.errors import DataError, first_line

MAGIC = b"\x93NUMPY"
HEADER_ERRORS = (ValueError, TypeError, LookupError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError)
"""What reading a header may raise: it is parsed as Python is."""

PLAIN = "biufcSU"
"""Kinds of elements: numbers and texts."""
SURROGATES = range(0xD800, 0xE000)
"""Codes that are halves of characters elsewhere."""

HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


ZIP_ERRORS = (
    zipfile.BadZipFile, ValueError, RuntimeError, EOFError, OSError, struct.error, ArithmeticError, LookupError,
)  # fmt: skip
"""What reading a zip file may raise: RuntimeError asks for a password, or for a method that is not there."""


def parse_npz(data: bytes, where: str) -> dict[str, np.ndarray]:
    """The arrays of a whole file by their names, as `numpy.savez` writes it: a zip file in which nothing is packed.

    Raises DataError as `parse_npy`, and for a member that is packed.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if packed := [member for member in members if member.compress_type != zipfile.ZIP_STORED]:
                raise DataError(f"{where} has the packed member {packed[0].filename!r}")
            if sum(member.file_size for member in members) > len(data):
                raise DataError(f"{where} says that it holds more bytes than it has")
            contents = {member.filename.removesuffix(".npy"): archive.read(member) for member in members}
    except ZIP_ERRORS as error:
        raise DataError(f"{where} cannot be read as a zip file: {first_line(error)}") from error
    return {name: parse_npy(content, f"{where}: {name}") for name, content in contents.items()}


def parse_npy(data: bytes, where: str) -> np.ndarray:
    """The array of a whole file.

    Args:
        data: the file.
        where: what an error calls it.
    Raises:
        DataError: no such file, one of Python objects, one that is cut or goes on.
    """
    file = io.BytesIO(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # about headers of Python 2
            version = npy.read_magic(file)
            if version not in HEADERS:
                raise DataError(f"{where} cannot be read as a NumPy file: it has version {version}")
            shape, in_columns, dtype = HEADERS[version](file)
    except (*HEADER_ERRORS, Warning) as error:
        raise DataError(f"{where} cannot be read as a NumPy file: {first_line(error)}") from error
    count, left = math.prod(shape), len(data) - file.tell()
    if dtype.kind not in PLAIN or not dtype.itemsize or min(shape, default=0) < 0:
        raise DataError(f"{where} cannot be read as a NumPy file: it holds {dtype}{shape}")
    if count * dtype.itemsize != left:
        raise DataError(f"{where} has {left} bytes after its header, expected {count * dtype.itemsize}")
    values = np.frombuffer(data, dtype, count, file.tell())
    if dtype.kind == "U" and not _are_characters(values.view(np.dtype("u4").newbyteorder(dtype.byteorder))):
        raise DataError(f"{where} cannot be read as a NumPy file: it has a text of what are no characters")
    return values.reshape(shape, order="F" if in_columns else "C")


def _are_characters(codes: np.ndarray) -> bool:
    """NumPy believes whatever number stands for a character, and Python fails at it when it is used."""
    return bool(np.all((codes < SURROGATES.start) | (codes >= SURROGATES.stop) & (codes <= sys.maxunicode)))
