"""Free Spoken Digit Dataset (Jackson et al., https://github.com/Jakobovski/free-spoken-digit-dataset, v1.0.10): six
speakers say each of ten digits fifty times; 8 kHz, as raw samples.

Of each speaker and digit the recordings 0 to 4 are the test (the data set's own rule), 5 to 9 validation (ours), 10 to
49 training. Clips are stored as int16 samples in the order (digit, speaker, recording), as long as they are but not
longer than 8,192 samples, where 17 of them are cut. Read as (w - mean) / std with w = v / 2^15 and one mean and std of
the training split filled up with zeros.

The choice rate=1kHz keeps every eighth sample behind a low-pass filter (500 Hz), and at most 1,000 of them: a task of
our own for studies on a CPU, in which digits are harder to tell apart.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from data.clips import REPORT_EVERY, ClipStore, Key, check_clips, generated, smoke_clips
from data.errors import DataError
from data.examples import About, Choice, Example, Generated
from data.moments import global_normalisation
from data.parallel import Progress
from data.sources import Limits, Member, SourceFile, Sources
from data.spec import DataRequest, InputKind, TaskKind, TaskSpec
from data.splits import Records
from data.stored import is_complete
from data.wav import read_wav

VERSION = "1.0.0"
SOURCE = "Free Spoken Digit Dataset v1.0.10 (https://github.com/Jakobovski/free-spoken-digit-dataset)"
RATE = 8_000


class _Rate(NamedTuple):
    """Every factor-th sample is kept, and at most `length` of these."""

    factor: int
    length: int


RATES = {"8kHz": _Rate(1, 8_192), "1kHz": _Rate(8, 1_000)}
DIGITS = 10
SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
RECORDINGS = 50  # of each digit by each speaker
TEST, VAL = range(5), range(5, 10)
SIZES = {"train": 2_400, "val": 300, "test": 300}
CLIPS = sum(SIZES.values())
SMOKE_SIZES = {"train": 4, "val": 2, "test": 2}  # clips of each digit

# GitHub packs this archive on demand and publishes no hash of it; what lies inside is asserted instead.
ARCHIVE = SourceFile(
    name="free-spoken-digit-dataset-1.0.10.tar.gz",
    urls=("https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/tags/v1.0.10.tar.gz",),
    root="free-spoken-digit-dataset-1.0.10",
    aliases=("recordings.tar.gz",),
)
LIMITS = Limits(member_bytes=2**20, count=20_000, total_bytes=2**28)
RECORDING = re.compile(r"(?:recordings/)?([0-9])_([a-z]+)_([0-9]{1,9})\.wav")

CHOICES = {"fsdd": {"rate": Choice(tuple(RATES), stored=True)}}


def sources(request: DataRequest) -> tuple[SourceFile, ...]:
    """The repository at its last version, or its folder of recordings packed."""
    return (ARCHIVE,)


def about(request: DataRequest) -> About:
    """Sizes of the packed recordings and of their samples."""
    return About(SOURCE, "CC BY-SA 4.0", 16_000_000, 21_000_000 // _rate(request).factor)


def task_spec(request: DataRequest) -> TaskSpec:
    """8,192 steps of one channel, or 1,000. Raises DataError for a length window: there is none."""
    length = _rate(request).length
    if request.length_window is not None:
        raise DataError(f"{request.task} has no length window: its clips are filled up to {length} samples")
    return TaskSpec(request.name, TaskKind.CLASSIFICATION, InputKind.CHANNELS, 1, length, DIGITS, dtype="int16")


def generate(request: DataRequest, sources: Sources, processes: int, progress: Progress) -> Generated:
    """Reads the recordings in the order of the source and gives them back sorted; one process does it in seconds.

    Raises DataError for a recording that is not in order, for a source that has not all 3,000 (unless it is partial),
    and for a split without a recording.
    """
    clips, found = ClipStore(), {"cut": 0}
    for number, member in enumerate(sources.members(ARCHIVE, RECORDING, LIMITS), 1):
        _take(member, request, clips, found)
        if number % REPORT_EVERY == 0:
            progress("read", number, max(number, CLIPS))
    keys = clips.keys()
    progress("read", len(clips), max(len(clips), 1))
    if is_complete(request):
        _check_complete(keys)

    def facts() -> dict:
        met = {"clips": len(clips), **found, "speakers": sorted({key[1] for key in keys})}
        return {"version": VERSION, "source": SOURCE, "found": met, "sources": sources.facts()}

    by_split = {split: [key for key in keys if _split(key[2]) == split] for split in SIZES}
    return generated(request, clips, by_split, SIZES, _rate(request).length, facts)


def _rate(request: DataRequest) -> _Rate:
    return RATES[dict(request.choices).get("rate", "8kHz")]


def _take(member: Member, request: DataRequest, clips: ClipStore, found: dict[str, int]) -> None:
    name = RECORDING.fullmatch(member.name)
    assert name is not None, member.name
    values, recorded = read_wav(member.data, member.name)
    if recorded != RATE:
        raise DataError(f"{member.name}: has {recorded} samples a second, expected {RATE}")
    rate = _rate(request)
    if rate.factor > 1:
        values = _decimated(values, rate.factor)
    found["cut"] += len(values) > rate.length
    digit, speaker, recording = name.groups()
    clips.add((int(digit), speaker, int(recording)), values[: rate.length], member.name)


def _decimated(values: np.ndarray, factor: int) -> np.ndarray:
    """Every `factor`-th sample, int16, behind scipy's Kaiser low-pass at the new Nyquist frequency."""
    from scipy.signal import resample_poly  # slow to import, and every command imports this module

    low = resample_poly(values.astype(np.float64), 1, factor)
    return np.clip(np.rint(low), -(2**15), 2**15 - 1).astype(np.int16)


def _split(recording: int) -> str:
    return "test" if recording in TEST else "val" if recording in VAL else "train"


def _check_complete(keys: list[Key]) -> None:
    """Every digit of every speaker has the recordings 0 to 49, and there are no others."""
    expected = [(d, speaker, i) for d in range(DIGITS) for speaker in SPEAKERS for i in range(RECORDINGS)]
    if different := sorted(set(keys) ^ set(expected)):
        digit, speaker, recording = different[0]
        what = "more" if different[0] in keys else "less"
        raise DataError(
            f"fsdd: the source has {len(keys)} recordings, expected {CLIPS}; "
            f"{digit}_{speaker}_{recording}.wav is one {what} than there should be"
        )


def check(
    request: DataRequest, splits: Mapping[str, Records], facts: dict, processes: int, progress: Progress
) -> dict[str, float]:
    """See `data.clips.check_clips`."""
    return check_clips(request, task_spec(request), SIZES, splits, progress)


def smoke(request: DataRequest) -> dict[str, list[Example]]:
    """Tones in noise, four clips of each digit for training and two in the other splits."""
    return smoke_clips(task_spec(request), RATE // _rate(request).factor, SMOKE_SIZES, shorter=True)


def normalisation_arrays(request: DataRequest, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(scale, shift), float32 (1,): x = v scale + shift for a stored v. Raises DataError if all samples are equal."""
    return global_normalisation(arrays)
