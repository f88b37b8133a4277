"""The Free Spoken Digit Dataset from archives in the layouts in which it lies about."""

import json
import os
import pathlib

import numpy as np
import pytest
from fake_speech import FakeSources, clip, wav, write_folder, write_tar

from data import fsdd, prepared, registry
from data.errors import DataError
from data.parallel import silent
from data.spec import DataRequest, InputKind, TaskKind
from tests.fake_sources import Stored

PARTIAL = DataRequest("fsdd", partial=True)
PREFIXES = (
    "recordings/",
    "./recordings/",
    "./",
    "free-spoken-digit-dataset-1.0.10/recordings/",
)


def recordings(digits=(3, 0), speakers=("theo", "george"), indices=(12, 9, 5, 4, 0, 10)):
    """Files whose first samples are their digit, speaker and index; the last index of each is 9,000 samples long."""
    files = {"README.md": b"", "3_theo.wav": b"", "3_theo_0.txt": b""}
    for digit in digits:
        for place, speaker in enumerate(sorted(speakers)):
            for index in indices:
                values = clip(index, 9_000 if index == indices[-1] else 1_200 + index)
                values[:3] = digit, place, index
                files[f"{digit}_{speaker}_{index}.wav"] = wav(values, 8_000)
    return files


def made(path, request=PARTIAL):
    generated = fsdd.generate(request, FakeSources(path), 1, silent)
    return {split: list(examples) for split, examples in generated.splits.items()}, generated


def refused(tmp_path, files, line, request=PARTIAL):
    write_tar(tmp_path / "a.tar.gz", files)
    with pytest.raises(DataError, match=line) as refusal:
        made(tmp_path / "a.tar.gz", request)
    assert "\n" not in str(refusal.value)


def heads(examples):
    """Label and the first three samples of every clip."""
    return [(e.label, *e.values[:3, 0].tolist()) for e in examples]


@pytest.mark.parametrize("prefix", [*PREFIXES, "folder"])
def test_the_splits(tmp_path, prefix):
    """By index; sorted by digit, speaker and index as numbers; cut to 8,192 samples."""
    path = tmp_path / "a"
    if prefix == "folder":
        write_folder(path / "recordings", recordings())
    else:
        write_tar(path, recordings(), prefix)
    splits, generated = made(path)
    spoken = [(digit, digit, place) for digit in (0, 3) for place in (0, 1)]
    assert heads(splits["test"]) == [(*who, index) for who in spoken for index in (0, 4)]
    assert heads(splits["val"]) == [(*who, index) for who in spoken for index in (5, 9)]
    assert heads(splits["train"]) == [(*who, index) for who in spoken for index in (10, 12)]
    assert [len(e.values) for e in splits["train"]] == [8_192, 1_212] * 4
    np.testing.assert_array_equal(splits["train"][0].values[3:, 0], clip(10, 9_000)[3:8_192])
    facts = json.loads(json.dumps(generated.facts()))
    assert facts["found"] == {"clips": 24, "cut": 4, "speakers": ["george", "theo"]}
    assert facts["sources"] == [{"file": "a", "official": False}]
    w = np.array([np.pad(e.values[:, 0] / 2**15, (0, 8_192 - len(e.values))) for e in splits["train"]])
    scale, shift = fsdd.normalisation_arrays(PARTIAL, generated.arrays())
    np.testing.assert_allclose([scale[0], shift[0]], [1 / w.std() / 2**15, -w.mean() / w.std()], rtol=1e-4)
    checked = fsdd.check(PARTIAL, {split: Stored(clips) for split, clips in splits.items()}, facts, 1, silent)
    assert (checked["train_clips"], checked["train_shorter"], checked["repeated"]) == (8, 4, 0)


def test_at_an_eighth_of_the_rate_low_tones_stay_and_high_ones_go(tmp_path):
    seconds = np.arange(9_000) / 8_000
    tones = {0: 100.0, 4: 900.0}
    sounds = {i: np.rint(9_000 * np.sin(2 * np.pi * hz * seconds)).astype(np.int16) for i, hz in tones.items()}
    files = {f"1_theo_{i}.wav": wav(sounds.get(i, clip(i)), 8_000) for i in (0, 4, 5, 10)}
    write_tar(tmp_path / "a", files)
    request = DataRequest("fsdd", partial=True, choices=(("rate", "1kHz"),))
    assert fsdd.task_spec(request).length == 1_000
    splits, _ = made(tmp_path / "a", request)
    low, high = (e.values[:, 0] for e in splits["test"])
    assert (low.dtype, len(low)) == (np.int16, 1_000)
    middle = slice(50, 950)  # away from where the filter meets the ends
    np.testing.assert_allclose(low[middle], sounds[0][::8][:1_000][middle], atol=90)
    assert np.abs(high[middle]).max() < 90  # 900 Hz would fold to 100 Hz


def test_a_limit(tmp_path):
    write_tar(tmp_path / "a", recordings())
    splits, _ = made(tmp_path / "a", DataRequest("fsdd", limit=3))
    assert [len(splits[split]) for split in ("train", "val", "test")] == [3, 3, 3]
    assert heads(splits["test"])[2] == (3, 3, 0, 4)  # evenly spaced


def test_the_task():
    spec = fsdd.task_spec(DataRequest("fsdd"))
    assert (spec.kind, spec.input_kind, spec.input_width) == (TaskKind.CLASSIFICATION, InputKind.CHANNELS, 1)
    assert (spec.length, spec.classes, spec.dtype) == (8_192, 10, "int16")
    with pytest.raises(DataError, match="fsdd has no length window"):
        fsdd.task_spec(DataRequest("fsdd", (24, 96)))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"1_theo_0.wav": wav(clip(0), 16_000)}, "^1_theo_0.wav: has 16000 samples a second, expected 8000$"),
        ({"1_theo_0.wav": wav(clip(0), 8_000, channels=2)}, "^1_theo_0.wav: number of channels is 2, expected 1"),
        ({"1_theo_0.wav": wav(clip(0), 8_000)[:99]}, "^1_theo_0.wav: chunk b'data' has"),
        ({"recordings/3_theo_0.wav": wav(clip(0), 8_000)}, "^recordings/3_theo_0.wav: comes twice in the source$"),
    ],
)
def test_what_is_refused_of_any_source(tmp_path, changes, line):
    refused(tmp_path, recordings() | changes, line)


def test_a_split_without_a_recording(tmp_path):
    refused(tmp_path, recordings(indices=(1, 20)), "^fsdd: no clip of the source belongs to val$")
    refused(tmp_path, {"README.md": b""}, "^fsdd: no clip of the source belongs to train$")


def test_what_is_refused_of_the_whole(tmp_path):
    every = {f"{d}_{s}_{i}.wav": b"" for d in range(10) for s in fsdd.SPEAKERS for i in range(50)}
    assert len(every) == sum(fsdd.SIZES.values()) == 3_000
    sound = wav(clip(0, 9), 8_000)
    files = dict.fromkeys(every, sound)
    whole = DataRequest("fsdd")
    del files["7_lucas_13.wav"]
    line = "^fsdd: the source has 2999 recordings, expected 3000; 7_lucas_13.wav is one less than there should be$"
    refused(tmp_path, files, line, whole)
    files |= {"7_lucas_13.wav": sound, "0_anna_3.wav": sound}
    line = "^fsdd: the source has 3001 recordings, expected 3000; 0_anna_3.wav is one more than there should be$"
    refused(tmp_path, files, line, whole)


def test_the_sample():
    splits = fsdd.smoke(DataRequest("fsdd"))
    found = fsdd.check(PARTIAL, {split: Stored(clips) for split, clips in splits.items()}, {}, 1, silent)
    assert (found["train_labels"], found["val_labels"], found["test_labels"]) == (10, 10, 10)


if os.environ.get("LINREC_DATA_SOURCE"):

    def test_the_real_recordings():
        path = pathlib.Path(os.environ["LINREC_DATA_SOURCE"]) / "fsdd" / "recordings.tar.gz"
        splits, generated = made(path, DataRequest("fsdd"))
        assert {split: len(clips) for split, clips in splits.items()} == {"train": 2_400, "val": 300, "test": 300}
        assert generated.facts()["found"] == {"clips": 3_000, "cut": 17, "speakers": list(fsdd.SPEAKERS)}
        stored = {split: Stored(clips) for split, clips in splits.items()}
        found = fsdd.check(DataRequest("fsdd"), stored, generated.facts(), 1, silent)
        assert (found["train_majority"], found["test_majority"], found["repeated"]) == (0.1, 0.1, 0)
        arrays = generated.arrays()
        assert 0.01 < arrays["std"] < 0.1
        assert abs(arrays["mean"]) < 0.001


def test_a_damaged_statistic_is_found_at_opening(tmp_path):
    write_tar(tmp_path / "recordings.tar.gz", recordings())
    request = DataRequest("fsdd", limit=4)
    folder = tmp_path / "data" / registry.folder_of(request)
    prepared.prepare(request, tmp_path / "data", data_source=tmp_path, processes=1)
    size = (folder / "mean.npy").stat().st_size
    (folder / "mean.npy").write_bytes(bytes(size))
    with pytest.raises(DataError, match=r"mean\.npy is damaged; delete"):
        prepared.open_data(request, tmp_path / "data")
