"""Files in the WAVE format, written by the standard library and by hand."""

import struct

import numpy as np
import pytest
from fake_speech import clip, format_chunk, riff, wav

from data.errors import DataError
from data.wav import read_wav

SAMPLES = clip(0, 7)
DATA = (b"data", SAMPLES.astype("<i2").tobytes())
SUBFORMAT = b"\x01\x00\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"
EXTENSION = struct.pack("<2HL", 22, 16, 4) + SUBFORMAT
EXTENSIBLE = format_chunk(0xFFFE, more=EXTENSION)
ODD_LIST = (b"LIST", b"INFOISFT\x05\0\0\0Lavf\0")


def unknown_length() -> bytes:
    """As a program writes that streams its output and cannot come back."""
    data = bytearray(riff(format_chunk(), DATA))
    place = data.index(b"data") + 4
    data[4:8] = data[place : place + 4] = b"\xff\xff\xff\xff"
    return bytes(data)


@pytest.mark.parametrize("rate", [8_000, 16_000])
def test_what_the_standard_library_writes(rate):
    samples = clip(1, 1_001)
    found, found_rate = read_wav(wav(samples, rate), "a.wav")
    np.testing.assert_array_equal(found, samples)
    assert (found.dtype, found_rate) == (np.int16, rate)
    assert found.flags.writeable


@pytest.mark.parametrize(
    "data",
    [
        riff(format_chunk(), (b"fact", struct.pack("<L", 7)), DATA),
        riff(ODD_LIST, format_chunk(), DATA),
        riff(format_chunk(), ODD_LIST, (b"junk", b"data"), DATA, ODD_LIST),
        riff(format_chunk(more=b"\0\0"), DATA),
        riff(EXTENSIBLE, DATA),
        riff(format_chunk(), DATA) + b"\0\0\0",
        riff(format_chunk(), DATA) + b"ID3\x04 and what else a program leaves behind",
        riff(format_chunk(), DATA, (b"data", b"\0\0")),
    ],
)
def test_other_chunks(data):
    assert len(ODD_LIST[1]) % 2 == 1
    found, rate = read_wav(data, "a.wav")
    np.testing.assert_array_equal(found, SAMPLES)
    assert rate == 16_000


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", "starts with b'', expected the header of a RIFF/WAVE file"),
        (b"RIFX" + riff(format_chunk(), DATA)[4:], "starts with b'RIFX"),
        (riff(format_chunk(), DATA).replace(b"WAVE", b"AVI "), "starts with b'RIFF.*AVI '"),
        (riff(format_chunk()), "has no data chunk"),
        (riff(format_chunk(), DATA)[:40], "has no data chunk"),
        (riff(format_chunk(), DATA)[:-1], "chunk b'data' has 14 bytes and 13 are left: the file is cut off"),
        (riff(format_chunk(), DATA)[:30], "chunk b'fmt ' has 16 bytes and 10 are left"),
        (unknown_length(), "chunk b'data' has 4294967295 bytes and 14 are left.*or its length was never written"),
        (riff(DATA, format_chunk()), "its data come before their format"),
        (riff((b"fmt ", b"\1\0\1\0"), DATA), "its format has 4 bytes, expected at least 16"),
        (riff(format_chunk(), (b"data", b"")), "its data have 0 bytes, expected a positive even number"),
        (riff(format_chunk(), (b"data", b"\1\2\3")), "its data have 3 bytes"),
        (wav(SAMPLES[:6], channels=2), "number of channels is 2, expected 1"),
        (wav(SAMPLES, width=4), "bits per sample is 32, expected 16"),
        (riff(format_chunk(3, bits=32), DATA), "format is 3, expected 1"),
        (riff(format_chunk(7, bits=8), DATA), "format is 7, expected 1"),
        (riff(format_chunk(0xFFFE, more=EXTENSION.replace(b"\1\0\0\0", b"\3\0\0\0")), DATA), "format is 65534"),
        (riff(format_chunk(0xFFFE, more=EXTENSION[:10]), DATA), "format is 65534"),
        (riff(format_chunk(0xFFFE, more=EXTENSION.replace(b"\x10", b"\x0c", 1)), DATA), "bits per sample is 12"),
        (riff((b"fmt ", format_chunk()[1][:12] + b"\4\0\x10\0"), DATA), "bytes per sample is 4, expected 2"),
    ],
)
def test_what_is_refused(data, line):
    with pytest.raises(DataError, match=f"^bed/a.wav: {line}") as refusal:
        read_wav(data, "bed/a.wav")
    assert "\n" not in str(refusal.value)
