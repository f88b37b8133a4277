"""The samples of a RIFF/WAVE file of 16-bit PCM with one channel, and nothing else.

A file is "RIFF", a size, "WAVE", then chunks: four letters, a size in bytes (little-endian), so many bytes, and one
more where the size is odd. "fmt " tells the format and comes before "data"; every other chunk is passed over, and
nothing is read behind the data. Each chunk tells its own size, so that of the whole is not needed.
Source: Microsoft, Multiple channel audio data and WAVE files (2007); RFC 2361 for the numbers of formats.
"""

import struct

import numpy as np

from data.errors import DataError

PCM, EXTENSIBLE = 1, 0xFFFE
PCM_SUBFORMAT = bytes.fromhex("0100000000001000800000aa00389b71")
"""KSDATAFORMAT_SUBTYPE_PCM, the format of an extensible header, as it lies in the file."""

BITS = 16


def read_wav(data: bytes, where: str) -> tuple[np.ndarray, int]:
    """The samples, int16 (n,) with n >= 1, and how many of them are a second.

    Args:
        data: the whole file.
        where: what an error calls it.
    Raises:
        DataError: not such a file, or one that ends before its data do.
    """
    if len(data) < 12 or data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise DataError(f"{where}: starts with {data[:12]!r}, expected the header of a RIFF/WAVE file")
    rate, place = None, 12
    while place + 8 <= len(data):
        name, size = data[place : place + 4], int.from_bytes(data[place + 4 : place + 8], "little")
        place += 8
        if size > len(data) - place:
            raise DataError(
                f"{where}: chunk {name!r} has {size} bytes and {len(data) - place} are left: the file is cut off, "
                "or its length was never written"
            )
        if name == b"fmt ":
            rate = _rate(data[place : place + size], where)
        elif name == b"data":
            if rate is None:
                raise DataError(f"{where}: its data come before their format")
            return _samples(data, place, size, where), rate
        place += size + size % 2
    raise DataError(f"{where}: has no data chunk")


def _rate(chunk: bytes, where: str) -> int:
    """Checks a format chunk and returns its samples per second."""
    if len(chunk) < 16:
        raise DataError(f"{where}: its format has {len(chunk)} bytes, expected at least 16")
    form, channels, rate, _, frame, bits = struct.unpack_from("<HHIIHH", chunk)
    if form == EXTENSIBLE and len(chunk) >= 40 and chunk[24:40] == PCM_SUBFORMAT:
        form, bits = PCM, struct.unpack_from("<H", chunk, 18)[0]
    for what, found, expected in (
        ("format", form, PCM),
        ("number of channels", channels, 1),
        ("bits per sample", bits, BITS),
        ("bytes per sample", frame, BITS // 8),
    ):
        if found != expected:
            raise DataError(f"{where}: {what} is {found}, expected {expected} (mono 16-bit PCM)")
    return rate


def _samples(data: bytes, start: int, size: int, where: str) -> np.ndarray:
    if size == 0 or size % 2:
        raise DataError(f"{where}: its data have {size} bytes, expected a positive even number")
    return np.frombuffer(data, "<i2", size // 2, start).astype(np.int16)
