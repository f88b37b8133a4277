"""Windows of a text: how many there are, what is a label in them, and that no token is lost or counted twice."""

import numpy as np
import pytest

from data import batching
from data.errors import DataError
from data.examples import Example
from data.spec import NO_LABEL, DataRequest
from data.windows import (
    CHUNK,
    Packing,
    checked_ids,
    choice,
    cut,
    evaluation_windows,
    read_records,
    training_windows,
)
from tests.fake_sources import Stored

SEPARATED, PUBLISHED = Packing.SEPARATED, Packing.PUBLISHED
TRAIN, VAL = 1_003_854, 111_540  # characters of shakespeare-char


def reader(stream):
    return lambda start, stop: stream[start:stop]


def counting(tokens):
    """A stream in which every id tells its place."""
    return reader(np.arange(tokens, dtype=np.int64))


def whole(tokens):
    return np.array([0, tokens])


@pytest.mark.parametrize(
    ("packing", "train", "val", "targets"), [(SEPARATED, 3_921, 436, 111_539), (PUBLISHED, 3_906, 434, 434 * 256)]
)
def test_shakespeare_has_the_published_numbers_of_windows(packing, train, val, targets):
    assert len(training_windows(counting(TRAIN), whole(TRAIN), 256, packing)) == train
    windows = evaluation_windows(counting(VAL), whole(VAL), 256, packing)
    assert (len(windows), windows.targets) == (val, targets)
    last = windows.gather([val - 1])
    assert last["lengths"] == (179 if packing is SEPARATED else 256)


@pytest.mark.parametrize("tokens", [5, 8, 9, 10, 12, 13, 14, 101])
def test_every_token_but_the_first_is_evaluated_once(tokens):
    windows = evaluation_windows(counting(tokens), whole(tokens), 4, SEPARATED)
    batch = windows.gather(range(len(windows)))
    labels = batch["labels"][batch["labels"] != NO_LABEL]
    np.testing.assert_array_equal(labels, np.arange(1, tokens))
    assert windows.targets == len(labels) == batch["lengths"].sum()
    trained = training_windows(counting(tokens), whole(tokens), 4, SEPARATED)
    batch = trained.gather(range(len(trained)))
    np.testing.assert_array_equal(batch["labels"].ravel(), np.arange(1, 4 * ((tokens - 1) // 4) + 1))
    assert trained.targets == batch["labels"].size


def test_a_batch_is_padded_and_its_labels_are_the_next_tokens():
    stream = np.arange(100, 110, dtype=np.uint16)
    batch = evaluation_windows(reader(stream), whole(10), 4, SEPARATED).gather([2, 0])
    np.testing.assert_array_equal(batch["inputs"], [[108, 0, 0, 0], [100, 101, 102, 103]])
    np.testing.assert_array_equal(batch["labels"], [[109] + 3 * [NO_LABEL], [101, 102, 103, 104]])
    np.testing.assert_array_equal(batch["lengths"], [1, 4])
    assert [batch[key].dtype for key in ("inputs", "labels", "lengths")] == [np.uint16, np.int32, np.int32]


def test_published_windows_are_disjoint_and_stay_in_their_segment():
    offsets = np.array([0, 11, 14, 14, 24])  # room for 2, 0, 0 and 2 blocks of 5
    for windows in (f(counting(24), offsets, 4, PUBLISHED) for f in (training_windows, evaluation_windows)):
        batch = windows.gather(range(len(windows)))
        np.testing.assert_array_equal(batch["inputs"][:, 0], [0, 5, 14, 19])
        np.testing.assert_array_equal(batch["labels"][:, -1], [4, 9, 18, 23])
        assert windows.targets == 16


@pytest.mark.parametrize("length", [1, 4, 5])
@pytest.mark.parametrize("offsets", [(0, 27), (0, 11, 12, 17, 27), (0, 6, 12)])
@pytest.mark.parametrize("packing", Packing)
def test_carried_windows_have_every_token_but_the_first_of_a_segment_as_label_once(packing, offsets, length):
    """Consecutive windows begin with the last label before, sliding ones read half a window again."""
    plain = evaluation_windows(counting(offsets[-1]), np.array(offsets), length, packing)
    expected = [token for token in range(1, offsets[-1]) if token not in offsets]
    half = length // 2
    for windows, context in ((plain.consecutive(), 0), (plain.sliding(), half)):
        seen = []
        for index in range(len(windows)):
            batch = windows.gather([index])
            labels = batch["labels"][0][batch["labels"][0] != NO_LABEL]
            first = windows.starts_segment(index)
            assert first == (batch["inputs"][0, 0] in offsets)
            if not first:
                assert batch["inputs"][0, context] == seen[-1]
            assert len(labels) == batch["lengths"][0] - (0 if first else context)
            seen += labels.tolist()
        assert seen == expected
        assert windows.targets == len(expected)


def test_shakespeare_carried():
    windows = evaluation_windows(counting(VAL), whole(VAL), 256, PUBLISHED)
    assert (len(windows.consecutive()), windows.consecutive().targets) == (436, 111_539)
    assert (len(windows.sliding()), windows.sliding().targets) == (1 + 870, 111_539)  # 256 labels, then 128 a window


def test_windows_take_the_place_of_a_split_in_batches():
    windows = training_windows(counting(41), whole(41), 4, SEPARATED)
    assert batching.steps_per_epoch(windows, 5) == 2  # pyright: ignore[reportArgumentType]
    epoch = [batching.training_batch(windows, 3, step, 5)["inputs"] for step in (0, 1)]  # pyright: ignore[reportArgumentType]
    np.testing.assert_array_equal(np.sort(np.concatenate(epoch).ravel()), np.arange(40))
    windows = evaluation_windows(counting(43), whole(43), 4, SEPARATED)
    weights = [batch["weight"].sum() for batch in batching.evaluation_batches(windows, 8)]  # pyright: ignore[reportArgumentType]
    assert weights == [8, 3]


@pytest.mark.parametrize("make", [training_windows, evaluation_windows])
@pytest.mark.parametrize(("length", "line"), [(10, r"windows of 10 \+ 1 tokens in a text of 10"), (0, "windows of 0")])
def test_windows_that_do_not_fit_are_refused(make, length, line):
    with pytest.raises(DataError, match=line):
        make(counting(10), whole(10), length, SEPARATED)


def test_cutting_changes_no_id():
    pieces = [np.arange(n) for n in (3, 2 * CHUNK, 0, 1, CHUNK - 4, 7, 9)]
    chunks = list(cut(pieces))
    np.testing.assert_array_equal(np.concatenate(chunks), np.concatenate(pieces))
    assert [len(chunk) for chunk in chunks] == [CHUNK, CHUNK, CHUNK, 16]
    assert [len(chunk) for chunk in cut([np.arange(CHUNK)])] == [CHUNK]
    assert list(cut([])) == []


def test_reading_across_records():
    offsets = np.array([0, 4, 4, 9, 12])
    stream = np.arange(12)
    read = read_records(lambda index: stream[offsets[index] : offsets[index + 1]], offsets)
    for start in range(12):
        for stop in range(start + 1, 13):
            np.testing.assert_array_equal(read(start, stop), stream[start:stop])


def test_an_unknown_choice_is_refused():
    assert choice(DataRequest("tinystories"), "packing", Packing) is SEPARATED
    assert choice(DataRequest("x", choices=(("packing", "published"),)), "packing", Packing) is PUBLISHED
    with pytest.raises(DataError, match=r"x: unknown packing 'dense' \(known: separated, published\)"):
        choice(DataRequest("x", choices=(("packing", "dense"),)), "packing", Packing)


@pytest.mark.parametrize(
    ("values", "label", "line"),
    [
        (np.array([1, 9], np.uint8), None, "val record 1 has id 9, expected less than 9"),
        (np.array([1], np.uint16), None, "val record 1 is not a piece of text in uint8 ids"),
        (np.array([[1]], np.uint8), None, "val record 1 is not a piece of text"),
        (np.array([], np.uint8), None, "val record 1 is not a piece of text"),
        (np.array([1], np.uint8), 0, "val record 1 is not a piece of text"),
    ],
)
def test_a_record_that_is_no_text_is_found(values, label, line):
    good = Example(np.array([8], np.uint8), None)
    with pytest.raises(DataError, match=line):
        list(checked_ids("val", Stored([good, Example(values, label)]), "uint8", 9))
