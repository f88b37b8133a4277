"""Speech Commands v0.02 (Warden, arXiv:1804.03209), one spoken word in up to a second at 16 kHz, as raw samples.

sc35   all 35 words. Validation and test are the clips that the archive's lists name, training is every other clip.
sc10   ten of the words, of which only the clips of exactly 16,000 samples are kept. 70 / 15 / 15 % by label, by the law
       of `data.stratified` with seed 0 (training or not) and then 1 (validation or test) over the clips in the order
       (label, file name). The published code splits in the order of its directories: its split was never known.

Clips are stored as int16 samples, as long as they are, in the order (label, file name). The task has 16,000 steps: a
shorter clip is filled up with zeros, which are part of the published input (they too are normalised and pooled).

Normalisation, with w = v / 2^15 and statistics over the training split filled up with zeros:
published   the reference pipeline divides w by 2^15 once more, and then takes the mean and the standard deviation at
            each of the 16,000 positions, and 1e-5 for safety: (w / 2^15 - mean) / (std + 1e-5). The epsilon is larger
            than the deviation, so the result has a standard deviation of about 0.2.
global      (w - mean) / std with one mean and one std.
"""

import math
import posixpath
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from data.clips import REPORT_EVERY, ClipStore, Key, check_clips, generated, smoke_clips
from data.errors import DataError
from data.examples import About, Choice, Example, Generated
from data.moments import FULL_SCALE, global_normalisation, position_normalisation
from data.parallel import Progress
from data.sources import Limits, Member, SourceFile, Sources
from data.spec import DataRequest, InputKind, TaskKind, TaskSpec
from data.splits import Records
from data.stored import is_complete
from data.stratified import stratified_split
from data.wav import read_wav

VERSION = "1.0.0"
SOURCE = "Speech Commands v0.02 (Warden, arXiv:1804.03209)"
RATE = 16_000
LENGTH = 16_000
EPSILON = 1e-5

# fmt: off
SC35 = (
    "bed", "cat", "down", "five", "forward", "go", "house", "left", "marvin", "no", "on", "right", "sheila", "tree",
    "up", "visual", "yes", "backward", "bird", "dog", "eight", "follow", "four", "happy", "learn", "nine", "off",
    "one", "seven", "six", "stop", "three", "two", "wow", "zero",
)
# fmt: on
SC10 = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
WORDS = {"sc35": SC35, "sc10": SC10}
"""Task -> its words; the label of a word is its place."""

CLIPS = {"sc35": 105_829, "sc10": 34_975}
SIZES = {
    "sc35": {"train": 84_843, "val": 9_981, "test": 11_005},
    "sc10": {"train": 24_482, "val": 5_246, "test": 5_247},
}
LISTS = {"validation_list.txt": "val", "testing_list.txt": "test"}
"""Of sc35: file -> the split of the clips that it names, one `word/file.wav` a line."""

NORMALISATION = Choice(("published", "global"), stored=False)
CHOICES = {task: {"normalisation": NORMALISATION} for task in WORDS}

ARCHIVE = SourceFile(
    name="speech_commands_v0.02.tar.gz",
    urls=(
        "https://storage.googleapis.com/download.tensorflow.org/data/speech_commands_v0.02.tar.gz",
        "http://download.tensorflow.org/data/speech_commands_v0.02.tar.gz",
    ),
    sha256="af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
    md5="6b74f3901214cb2c2934e98196829835",
    root="speech_commands_v0.02",
    aliases=("speech_commands_v0.01_sample.tar.gz",),
)
DOWNLOAD = 2_428_923_189
LIMITS = Limits(member_bytes=2**20, count=200_000, total_bytes=2**33)
SMOKE_SIZES = {"train": 2, "val": 1, "test": 1}  # clips of each word


def sources(request: DataRequest) -> tuple[SourceFile, ...]:
    """The archive; a sample of it, or an older version, is a partial source."""
    return (ARCHIVE,)


def about(request: DataRequest) -> About:
    """Prepared sizes are those of the samples."""
    return About(SOURCE, "CC BY 4.0", DOWNLOAD, {"sc35": 3_300_000_000, "sc10": 1_120_000_000}[request.task])


def task_spec(request: DataRequest) -> TaskSpec:
    """16,000 steps of one channel. Raises DataError for a length window: there is none."""
    if request.length_window is not None:
        raise DataError(f"{request.task} has no length window: its clips are filled up to {LENGTH} samples")
    classes = len(WORDS[request.task])
    return TaskSpec(request.name, TaskKind.CLASSIFICATION, InputKind.CHANNELS, 1, LENGTH, classes, dtype="int16")


# The splits.


def generate(request: DataRequest, sources: Sources, processes: int, progress: Progress) -> Generated:
    """The clips go to disk once, in the order of the source, and come back sorted; memory holds names and numbers.

    Unpacking is all the work, so one process does it. A limit keeps the first clips of each split.
    Raises DataError for a clip or a list that is not in order, for a source that has not all of what is official
    (unless it is partial), and for a split without a clip.
    """
    clips, lists, found = ClipStore(), {}, {"shorter": 0, "other_lengths_dropped": 0}
    expected = CLIPS[request.task]
    for number, member in enumerate(sources.members(ARCHIVE, _pattern(request.task), LIMITS), 1):
        if member.name in LISTS:
            lists[member.name] = member.data
        else:
            _take(request.task, member, clips, found)
        if number % REPORT_EVERY == 0:
            progress("read", number, max(number, expected))
    progress("read", len(clips), max(len(clips), 1))
    keys, words = clips.keys(), WORDS[request.task]
    missing_words = sorted(set(words) - {words[key[0]] for key in keys})
    if is_complete(request) and missing_words:
        raise DataError(f"{request.task}: the source has no clip of the word {missing_words[0]}")
    if request.task == "sc35":
        by_split, missing_files = _by_lists(request, keys, lists)
    else:
        by_split, missing_files = _stratified(keys), {}

    def facts() -> dict:
        met = {"clips": len(clips), **found, "missing_words": missing_words, "missing_files": missing_files}
        named = {"version": VERSION, "source": SOURCE, "vocabulary": list(words)}
        return {**named, "found": met, "sources": sources.facts()}

    return generated(request, clips, by_split, SIZES[request.task], LENGTH, facts)


def _pattern(task: str) -> re.Pattern[str]:
    """sc35: the lists and the clips of any word, so that a strange one is seen. sc10: the clips of its words.

    The folder of background noise begins with "_"; a name that begins with "." is none of the data set's.
    """
    words = "|".join(SC10) if task == "sc10" else r"[^/._][^/]*"
    clips = rf"(?:{words})/[^/.][^/]*\.wav"
    return re.compile("|".join([clips, *map(re.escape, LISTS if task == "sc35" else ())]))


def _take(task: str, member: Member, clips: ClipStore, found: dict[str, int]) -> None:
    """Puts a clip into the store, or counts why not."""
    word, file = member.name.split("/")
    if word not in WORDS[task]:
        raise DataError(f"{member.name}: {word} is none of the {len(WORDS[task])} words")
    values, rate = read_wav(member.data, member.name)
    if rate != RATE:
        raise DataError(f"{member.name}: has {rate} samples a second, expected {RATE}")
    if task == "sc10" and len(values) != LENGTH:
        found["other_lengths_dropped"] += 1
        return
    if len(values) > LENGTH:
        raise DataError(f"{member.name}: has {len(values)} samples, expected at most {LENGTH}")
    found["shorter"] += len(values) < LENGTH
    clips.add((WORDS[task].index(word), file), values, member.name)


def _by_lists(
    request: DataRequest, keys: list[Key], lists: dict[str, bytes]
) -> tuple[dict[str, list[Key]], dict[str, int]]:
    """sc35: the keys of each split, and how many of the listed files are not there."""
    split_of: dict[Key, str] = dict.fromkeys(keys, "train")
    listed_in: dict[Key, str] = {}
    missing: dict[str, int] = {}
    for file, split in LISTS.items():
        if file not in lists:
            raise DataError(f"sc35: {file} is not in the source, and nothing else tells the splits")
        listed = read_list(lists[file], file)
        for key in listed:
            if listed_in.setdefault(key, file) != file:
                raise DataError(f"{file}: {SC35[key[0]]}/{key[1]} is in {listed_in[key]} too")
        absent = [key for key in listed if key not in split_of]
        if is_complete(request) and absent:
            word, name = SC35[absent[0][0]], absent[0][1]
            raise DataError(f"{file}: {word}/{name} is not in the source ({len(absent)} of {len(listed)} are missing)")
        missing[split] = len(absent)
        split_of |= dict.fromkeys((key for key in listed if key in split_of), split)
    return {split: [key for key in keys if split_of[key] == split] for split in SIZES["sc35"]}, missing


def read_list(data: bytes, where: str) -> list[Key]:
    """The keys of the clips in a list, one `word/file.wav` a line (also `./word/file.wav`, also with CRLF).

    Raises DataError for a line that is something else, or that comes twice.
    """
    lines: dict[Key, int] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        name = posixpath.normpath(line.strip().decode("utf-8", "replace"))
        word, _, file = name.partition("/")
        if word not in SC35 or not re.fullmatch(r"[^/]+\.wav", file):
            raise DataError(f"{where} line {number}: {name!r}, expected word/file.wav with one of the 35 words")
        if (first := lines.setdefault((SC35.index(word), file), number)) != number:
            raise DataError(f"{where} line {number}: {name} is already in line {first}")
    return list(lines)


def _stratified(keys: list[Key]) -> dict[str, list[Key]]:
    """sc10: the keys of each split."""
    labels = np.array([key[0] for key in keys], np.int64)
    train, rest = stratified_split(labels, math.floor(0.7 * len(labels)), seed=0)
    val, test = stratified_split(labels[rest], len(rest) // 2, seed=1)
    places = {"train": train, "val": rest[val], "test": rest[test]}
    return {split: [keys[place] for place in of_split] for split, of_split in places.items()}


def check(
    request: DataRequest, splits: Mapping[str, Records], facts: dict, processes: int, progress: Progress
) -> dict[str, float]:
    """See `data.clips.check_clips`; clips of sc10 have exactly 16,000 samples."""
    shortest = LENGTH if request.task == "sc10" else 1
    return check_clips(request, task_spec(request), SIZES[request.task], splits, progress, shortest=shortest)


def smoke(request: DataRequest) -> dict[str, list[Example]]:
    """Tones in noise, two clips of each word for training and one in the other splits."""
    return smoke_clips(task_spec(request), RATE, SMOKE_SIZES, shorter=request.task == "sc35")


# Reading what is stored.


def normalisation_arrays(request: DataRequest, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(scale, shift), float32, (16000, 1) for `published` and (1,) for `global`: x = v scale + shift for a stored v.

    arrays: those that came with the prepared data. v is 0 behind the end of a clip, and x is then not.
    Published, with mean and std of w: (w / 2^15 - mean / 2^15) / (std / 2^15 + 1e-5) = (w - mean) / (std + 0.32768).
    Raises DataError for another name, or where all samples are equal.
    """
    match dict(request.choices).get("normalisation", "published"):
        case "published":
            return position_normalisation(arrays, FULL_SCALE * EPSILON)
        case "global":
            return global_normalisation(arrays)
        case other:
            raise DataError(f"normalisation={other}: expected {' or '.join(NORMALISATION.values)}")


def halved(values: Any) -> Any:
    """Every second sample, from the first on, of normalised clips (..., T, 1): how the published evaluation at 8 kHz
    reads a clip of 16 kHz. No filter comes before: what lies above 4 kHz is folded down. n samples give ceil(n / 2)."""
    return values[..., ::2, :]
