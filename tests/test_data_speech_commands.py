"""Speech Commands from archives in the official layout: what is read, how it is split, what is refused."""

import json
import os
import pathlib

import numpy as np
import pytest
from fake_speech import FakeSources, clip, labels_of, wav, write_folder, write_tar

from data import speech_commands
from data.errors import DataError
from data.parallel import silent
from data.spec import DataRequest, InputKind, TaskKind
from data.speech_commands import SC10, SC35, halved, normalisation_arrays, read_list
from tests.fake_sources import Stored

PARTIAL = DataRequest("sc35", partial=True)
OFFICIAL_ORDER = (
    "bed, cat, down, five, forward, go, house, left, marvin, no, on, right, sheila, tree, up, visual, yes, backward, "
    "bird, dog, eight, follow, four, happy, learn, nine, off, one, seven, six, stop, three, two, wow, zero"
)


def name(word, number):
    return f"{word}/{number:08x}_nohash_0.wav"


def archive(words=("zero", "bed", "yes"), per_word=6):
    """Files of a small archive in an order of its own: clips of word w have the value of its place in `words` first.

    Of each word clip 0 is listed for validation and clip 1 for the test; clip 2 is short; noise lies beside.
    """
    files = {"_background_noise_/running_tap.wav": wav(clip(9, 50_000)), "README.md": b"words", "LICENSE": b""}
    for place, word in enumerate(words):
        for number in reversed(range(per_word)):
            values = clip(100 * place + number, 9_000 if number == 2 else 16_000)
            values[:2] = place, number
            files[name(word, number)] = wav(values)
    files["validation_list.txt"] = "".join(name(word, 0) + "\n" for word in words).encode()
    files["testing_list.txt"] = "".join(name(word, 1) + "\n" for word in reversed(words)).encode()
    return files


def made(tmp_path, files, request=PARTIAL, *, packed=True):
    """Splits as lists, facts and arrays."""
    path = tmp_path / ("a.tar.gz" if packed else "speech_commands_v0.02")
    (write_tar if packed else write_folder)(path, files)
    generated = speech_commands.generate(request, FakeSources(path), 1, silent)
    return {split: list(examples) for split, examples in generated.splits.items()}, generated


def refused(tmp_path, files, line, request=PARTIAL):
    with pytest.raises(DataError, match=line) as refusal:
        made(tmp_path, files, request)
    assert "\n" not in str(refusal.value)


VAL_OF_100 = [0, 5, 14, 26, 29, 33, 43, 48, 50, 60, 69, 74, 82, 96, 99]
"""Of 100 records, ten of each label, sorted: train_test_split(train_size=0.7, random_state=0, stratify=labels), then of
the rest as it came train_size=0.5, random_state=1; the first part of that, in scikit-learn 1.9.1."""


# The words and the task.


def test_the_words():
    assert ", ".join(SC35) == OFFICIAL_ORDER
    assert SC10 == ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
    assert set(SC10) <= set(SC35)
    assert (len(SC35), len(set(SC35))) == (35, 35)


@pytest.mark.parametrize(("task", "classes"), [("sc35", 35), ("sc10", 10)])
def test_the_task(task, classes):
    spec = speech_commands.task_spec(DataRequest(task))
    assert (spec.kind, spec.input_kind, spec.input_width) == (TaskKind.CLASSIFICATION, InputKind.CHANNELS, 1)
    assert (spec.length, spec.classes, spec.dtype, spec.normalisation) == (16_000, classes, "int16", None)
    assert sum(speech_commands.SIZES[task].values()) == speech_commands.CLIPS[task]
    with pytest.raises(DataError, match=f"{task} has no length window"):
        speech_commands.task_spec(DataRequest(task, (24, 96)))


# sc35.


@pytest.mark.parametrize("packed", [True, False])
def test_the_lists_make_the_splits(tmp_path, packed):
    """Clips come sorted by label and file name, whatever the order of the source; short ones stay short."""
    splits, generated = made(tmp_path, archive(), packed=packed)
    labels = [SC35.index(word) for word in ("bed", "yes", "zero")]
    assert labels == [0, 16, 34]
    found = {split: [(e.label, *e.values[:2, 0].tolist()) for e in examples] for split, examples in splits.items()}
    places = dict(zip(labels, (1, 2, 0), strict=True))
    assert found["val"] == [(label, places[label], 0) for label in labels]
    assert found["test"] == [(label, places[label], 1) for label in labels]
    assert found["train"] == [(label, places[label], number) for label in labels for number in (2, 3, 4, 5)]
    assert [len(e.values) for e in splits["train"][:2]] == [9_000, 16_000]
    assert all(e.values.dtype == np.int16 and e.values.shape[1:] == (1,) for e in splits["train"])
    expected = clip(1 * 100 + 3)
    np.testing.assert_array_equal(splits["train"][1].values[2:, 0], expected[2:])
    facts = json.loads(json.dumps(generated.facts()))
    assert facts["found"]["clips"] == 18
    assert facts["found"]["shorter"] == 3
    assert facts["found"]["missing_files"] == {"val": 0, "test": 0}
    assert len(facts["found"]["missing_words"]) == 32
    assert facts["vocabulary"] == list(SC35)
    assert facts["sources"] == [{"file": "a.tar.gz" if packed else "speech_commands_v0.02", "official": False}]


def test_a_limit_takes_evenly_spaced_clips_and_their_statistics(tmp_path):
    whole, _ = made(tmp_path, archive())
    splits, generated = made(tmp_path, archive(), DataRequest("sc35", limit=2))
    assert {split: len(examples) for split, examples in splits.items()} == {"train": 2, "val": 2, "test": 2}
    middle = whole["train"][len(whole["train"]) // 2]
    np.testing.assert_array_equal(splits["train"][1].values, middle.values)
    assert splits["train"][0].label != splits["train"][1].label
    w = np.zeros((2, 16_000))
    for row, example in zip(w, splits["train"], strict=True):
        row[: len(example.values)] = example.values[:, 0] / 2**15
    np.testing.assert_allclose(generated.arrays()["position_mean"], w.mean(0), rtol=1e-12)
    np.testing.assert_allclose(generated.arrays()["std"], w.std(ddof=1), rtol=1e-12)


def test_lists_may_have_other_line_ends_and_name_what_is_not_there(tmp_path):
    files = archive()
    listed = files["testing_list.txt"].replace(b"\n", b"\r\n").replace(b"bed/", b"./bed/")
    files["testing_list.txt"] = listed + name("wow", 3).encode() + b"\r\n\r\n"
    splits, generated = made(tmp_path, files)
    assert [e.label for e in splits["test"]] == [0, 16, 34]
    assert generated.facts()["found"]["missing_files"] == {"val": 0, "test": 1}


def test_background_noise_and_hidden_files_are_no_clips(tmp_path):
    files = archive() | {"bed/._a_nohash_0.wav": b"\0", "_silence_/a.wav": wav(clip(1)), "bed/notes.txt": b""}
    splits, _ = made(tmp_path, files)
    assert sum(map(len, splits.values())) == 18


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"bed/a.wav": wav(clip(1), 8_000)}, "^bed/a.wav: has 8000 samples a second, expected 16000$"),
        ({"bed/a.wav": wav(clip(1), channels=2)}, "^bed/a.wav: number of channels is 2, expected 1"),
        ({"bed/a.wav": wav(clip(1))[:-2]}, "^bed/a.wav: chunk b'data' has 32000 bytes and 31998 are left"),
        ({"bed/a.wav": wav(clip(1, 16_001))}, "^bed/a.wav: has 16001 samples, expected at most 16000$"),
        ({"bad/a.wav": wav(clip(1))}, "^bad/a.wav: bad is none of the 35 words$"),
        ({"validation_list.txt": None}, "^sc35: validation_list.txt is not in the source"),
        ({"testing_list.txt": None}, "^sc35: testing_list.txt is not in the source"),
        (
            {"validation_list.txt": b"bed/a.wav\n\nbed/a.wav\n"},
            "^validation_list.txt line 3: bed/a.wav is already in li",
        ),
        ({"validation_list.txt": b"bed\n"}, "^validation_list.txt line 1: 'bed', expected word/file.wav with one of"),
        ({"validation_list.txt": b"bad/a.wav"}, "^validation_list.txt line 1: 'bad/a.wav', expected"),
        ({"validation_list.txt": b"bed/../bad/a.wav"}, "^validation_list.txt line 1: 'bad/a.wav', expected"),
        ({"validation_list.txt": b"bed/a/b.wav"}, "^validation_list.txt line 1: 'bed/a/b.wav', expected"),
        ({"validation_list.txt": b"\xff\xfe"}, "^validation_list.txt line 1"),
        ({"validation_list.txt": b""}, "^sc35: no clip of the source belongs to val$"),
        (
            {"validation_list.txt": name("bed", 1).encode()},
            f"^testing_list.txt: {name('bed', 1)} is in validation_list",
        ),
    ],
)
def test_what_is_refused_of_any_source(tmp_path, changes, line):
    files = {file: data for file, data in (archive() | changes).items() if data is not None}
    refused(tmp_path, files, line)


def test_a_clip_that_comes_twice(tmp_path):
    files = archive()
    refused(tmp_path, files | {"./" + name("bed", 3): files[name("bed", 3)]}, "comes twice in the source")


def test_what_is_refused_of_the_official_one(tmp_path):
    """Without `partial` everything must be there."""
    request = DataRequest("sc35")
    refused(tmp_path, archive(), "^sc35: the source has no clip of the word backward$", request)
    files = archive(SC35, 3)
    refused(tmp_path, files, "^sc35: train has 35 clips, expected 84843$", request)
    files["testing_list.txt"] += b"bed/gone.wav\n"
    refused(tmp_path, files, r"^testing_list.txt: bed/gone.wav is not in the source \(1 of 36 are missing\)$", request)


def test_a_list_is_read_by_lines():
    assert read_list(b"bed/b.wav\r\n./cat/a.wav\n", "list") == [(0, "b.wav"), (1, "a.wav")]


# sc10.


def test_sc10_drops_other_lengths_and_splits_by_label(tmp_path):
    """Ten clips of each word are left of eleven; 70, 15 and 15 of 100, in every word 7, 1 or 2, 1 or 2."""
    files = archive((*SC10, "bed"), 11) | {"validation_list.txt": b"nonsense"}
    request = DataRequest("sc10", partial=True)
    splits, generated = made(tmp_path, files, request)
    assert {split: len(examples) for split, examples in splits.items()} == {"train": 70, "val": 15, "test": 15}
    found = generated.facts()["found"]
    assert (found["clips"], found["other_lengths_dropped"], found["missing_words"]) == (100, 10, [])
    seen = []
    for examples in splits.values():
        assert (np.diff(labels_of(examples)) >= 0).all()
        seen += [(e.label, *e.values[:2, 0].tolist()) for e in examples]
    assert sorted(seen) == [(k, k, number) for k in range(10) for number in range(11) if number != 2]
    assert np.bincount(labels_of(splits["train"])).tolist() == [7] * 10
    numbers = [[0, 1, 3, 4, 5, 6, 7, 8, 9, 10].index(e.values[1, 0]) for e in splits["val"]]
    assert [10 * label + number for label, number in zip(labels_of(splits["val"]), numbers, strict=True)] == VAL_OF_100
    packed = [e.values for e in splits["train"]]
    folder, _ = made(tmp_path, files, request, packed=False)
    for one, other in zip(packed, [e.values for e in folder["train"]], strict=True):
        np.testing.assert_array_equal(one, other)


def test_sc10_of_too_few_clips(tmp_path):
    request = DataRequest("sc10", partial=True)
    refused(tmp_path, archive(SC10[:3], 2), "6 records of 3 classes cannot be split into 4 and 2 by label", request)
    refused(tmp_path, archive(SC10, 11), "^sc10: train has 70 clips, expected 24482$", DataRequest("sc10"))


# Stored records.


def stored(splits):
    return {split: Stored(examples) for split, examples in splits.items()}


def test_statistics_of_the_stored_records(tmp_path):
    splits, generated = made(tmp_path, archive())
    splits["test"][1] = splits["test"][1]._replace(values=splits["train"][4].values)
    found = speech_commands.check(PARTIAL, stored(splits), generated.facts(), 1, silent)
    assert found["train_clips"] == 12
    assert found["train_shorter"] == 3
    assert found["val_labels"] == 3
    assert found["test_majority"] == 1 / 3
    assert found["repeated"] == 1


@pytest.mark.parametrize(
    ("changes", "task", "line"),
    [
        ({"values": np.zeros((3, 1))}, "sc35", "val record 1: is float64 of shape .3, 1., expected int16 .n, 1."),
        ({"values": np.zeros(3, np.int16)}, "sc35", "val record 1: is int16 of shape .3,."),
        ({"values": np.zeros((16_001, 1), np.int16)}, "sc35", "val record 1: has 16001 samples, expected 1 to 16000"),
        ({"values": np.zeros((0, 1), np.int16)}, "sc35", "val record 1: has 0 samples"),
        ({"values": np.zeros((15_999, 1), np.int16)}, "sc10", "has 15999 samples, expected 16000 to 16000"),
        ({"label": 35}, "sc35", "val record 1: has label 35, expected 0 to 34"),
        ({"label": -1}, "sc35", "val record 1: has label -1"),
        ({"label": None}, "sc35", "val record 1: has label None"),
        ({"label": 17}, "sc35", "val record 2: has label 2 after label 17: clips are sorted by label"),
    ],
)
def test_a_wrong_record_is_found(changes, task, line):
    splits = speech_commands.smoke(DataRequest(task))
    splits["val"][1] = splits["val"][1]._replace(**changes)
    with pytest.raises(DataError, match=line):
        speech_commands.check(DataRequest(task, partial=True), stored(splits), {}, 1, silent)


def test_counts_are_asserted_of_the_whole_only():
    splits = stored(speech_commands.smoke(DataRequest("sc35")))
    for request in (DataRequest("sc35", partial=True), DataRequest("sc35", limit=70)):
        assert speech_commands.check(request, splits, {}, 1, silent)["train_clips"] == 70
    with pytest.raises(DataError, match=r"^train has 70 records, expected 84843$"):
        speech_commands.check(DataRequest("sc35"), splits, {}, 1, silent)


def test_every_label_is_asserted_of_the_whole(monkeypatch):
    splits = speech_commands.smoke(DataRequest("sc35"))
    monkeypatch.setitem(speech_commands.SIZES, "sc35", {"train": 70, "val": 34, "test": 35})
    del splits["val"][20]
    with pytest.raises(DataError, match=r"^val has no record of label 20$"):
        speech_commands.check(DataRequest("sc35"), stored(splits), {}, 1, silent)


@pytest.mark.parametrize("task", ["sc35", "sc10"])
def test_the_sample(task):
    request = DataRequest(task)
    one, other = speech_commands.smoke(request), speech_commands.smoke(request)
    speech_commands.check(DataRequest(task, partial=True), stored(one), {}, 1, silent)
    for split, examples in one.items():
        assert set(labels_of(examples)) == set(range(len(speech_commands.WORDS[task])))
        assert all((a.values == b.values).all() for a, b in zip(examples, other[split], strict=True))
    shortest = min(len(e.values) for e in one["train"])
    assert (shortest == 16_000) == (task == "sc10")


# Reading them.


def arrays():
    rng = np.random.default_rng(0)
    mean, std = rng.normal(0, 1e-3, 16_000), rng.uniform(0.01, 0.2, 16_000)
    return {"position_mean": mean, "position_std": std, "mean": np.array(1e-4), "std": np.array(0.1)}


def test_published_normalisation():
    """Against the published order of operations: its epsilon outweighs the deviation."""
    a, v = arrays(), clip(0)
    for request in (DataRequest("sc35"), DataRequest("sc10", choices=(("normalisation", "published"),))):
        scale, shift = normalisation_arrays(request, a)
        assert scale.shape == shift.shape == (16_000, 1)
        divided = v / 2**15 / 2**15
        expected = (divided - a["position_mean"] / 2**15) / (a["position_std"] / 2**15 + 1e-5)
        found = v.astype(np.float32)[:, None] * scale + shift
        np.testing.assert_allclose(found[:, 0], expected, rtol=0, atol=5e-7)
    assert np.abs(found[:, 0] - (v / 2**15 - a["position_mean"]) / (a["position_std"] + 0.32768)).max() < 5e-7


def test_global_normalisation():
    request = DataRequest("sc35", choices=(("normalisation", "global"),))
    scale, shift = normalisation_arrays(request, arrays())
    assert scale.shape == shift.shape == (1,)
    v = clip(0)
    np.testing.assert_allclose(v.astype(np.float32) * scale + shift, (v / 2**15 - 1e-4) / 0.1, rtol=0, atol=2e-6)
    with pytest.raises(DataError, match=r"^normalisation=none: expected published or global$"):
        normalisation_arrays(DataRequest("sc35", choices=(("normalisation", "none"),)), arrays())


def test_halved():
    values = np.arange(2 * 7 * 1).reshape(2, 7, 1)
    assert halved(values)[..., 0].tolist() == [[0, 2, 4, 6], [7, 9, 11, 13]]
    assert halved(np.zeros((3, 16_000, 1))).shape == (3, 8_000, 1)


if os.environ.get("LINREC_DATA_SOURCE"):
    FOLDER = pathlib.Path(os.environ["LINREC_DATA_SOURCE"]) / "speech_commands"

    def test_three_hundred_real_clips():
        sources = FakeSources(FOLDER / "speech_commands_v0.01_sample.tar.gz")
        generated = speech_commands.generate(PARTIAL, sources, 1, silent)
        splits = {split: list(examples) for split, examples in generated.splits.items()}
        assert {split: len(examples) for split, examples in splits.items()} == {"train": 205, "val": 44, "test": 51}
        facts = generated.facts()["found"]
        assert (facts["clips"], facts["shorter"]) == (300, 21)
        assert facts["missing_words"] == ["backward", "follow", "forward", "learn", "visual"]
        assert facts["missing_files"] == {"val": 6_754, "test": 6_784}
        found = speech_commands.check(PARTIAL, stored(splits), {}, 1, silent)
        assert (found["train_labels"], found["repeated"]) == (30, 0)
        scale, shift = normalisation_arrays(PARTIAL, generated.arrays())
        v = np.zeros((205, 16_000), np.float32)
        for row, example in zip(v, splits["train"], strict=True):
            row[: len(example.values)] = example.values[:, 0]
        # With the dominating epsilon the deviation of the published input is far from 1.
        assert 0.1 < np.std(v * scale[:, 0] + shift[:, 0]) < 0.3

    def test_ten_real_words():
        request = DataRequest("sc10", partial=True)
        sources = FakeSources(FOLDER / "speech_commands_v0.01_sample.tar.gz")
        generated = speech_commands.generate(request, sources, 1, silent)
        splits = {split: list(examples) for split, examples in generated.splits.items()}
        found, facts = speech_commands.check(request, stored(splits), {}, 1, silent), generated.facts()["found"]
        assert facts["clips"] + facts["other_lengths_dropped"] == 100
        assert sum(map(len, splits.values())) == facts["clips"]
        assert found["train_labels"] == 10
