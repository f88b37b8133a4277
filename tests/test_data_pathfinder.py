"""The data sets made of Pathfinder images: splits, limits, resumption, what is asserted, guesses."""

import math

import numpy as np
import pytest

from data import pathfinder, pathfinder_checks
from data.errors import DataError
from data.examples import Example, Indexed
from data.parallel import silent
from data.pathfinder_checks import best_threshold, threshold_accuracy
from data.sources import Sources
from data.spec import DataRequest, InputKind, TaskKind
from data.splits import MemorySplit

SMALL = DataRequest("pathfinder", limit=60)


@pytest.fixture
def nowhere(tmp_path):
    return Sources(None, tmp_path, partial=False, progress=silent)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    sources = Sources(None, tmp_path_factory.mktemp("none"), partial=False, progress=silent)
    generated = pathfinder.generate(SMALL, sources, 1, silent)
    return {name: list(examples) for name, examples in generated.splits.items()}, generated.facts()


def held(records):
    return {name: MemorySplit.from_examples(found, 1024) for name, found in records.items()}


def checked(records, request=SMALL):
    return pathfinder.check(request, held(records), {}, 1, silent)


def test_the_task():
    for task, window in (("pathfinder", 32), ("pathx", 128), ("path256", 256)):
        spec = pathfinder.task_spec(DataRequest(task))
        assert (spec.kind, spec.input_kind) == (TaskKind.CLASSIFICATION, InputKind.CHANNELS)
        assert (spec.input_width, spec.length, spec.classes, spec.dtype) == (1, window**2, 2, "uint8")
        n = spec.normalisation
        assert n is not None
        assert [(v / n.divisor - n.mean[0]) / n.std[0] for v in (0, 255)] == [-1, 1]


@pytest.mark.parametrize(
    ("request_", "line"),
    [
        (DataRequest("pathx", (3, 9)), "pathx has no length window"),
        (DataRequest("pathfinder", choices=(("origin", "release"), ("law", "words"))), "a law is for generated images"),
    ],
)
def test_requests_without_sense_are_refused(request_, line):
    with pytest.raises(DataError, match=line):
        pathfinder.task_spec(request_)


def test_the_published_split():
    train, val, test = (pathfinder.indices_of(DataRequest("pathx"), split) for split in ("train", "val", "test"))
    assert (len(train), len(val), len(test)) == (160_000, 20_000, 20_000)
    assert train[:4].tolist() == [37542, 143173, 127710, 58234]
    assert (val[0], test[0]) == (122036, 143170)
    assert len(np.unique(np.concatenate([train, val, test]))) == 200_000


def test_records_are_the_images_of_their_indices(made):
    splits, facts = made
    for name, records in splits.items():
        indices = pathfinder.indices_of(SMALL, name)
        images, labels = pathfinder.draw(pathfinder.Job("pathfinder", "upstream", indices))
        assert len(records) == 60
        for record, image, label in zip(records, images, labels, strict=True):
            assert record.values.shape == (1024, 1)
            np.testing.assert_array_equal(record.values[:, 0], image.ravel())
            assert record.label == label
    assert (facts["law"], facts["seed"], facts["origin"]) == ("upstream", 0, "generated")


def test_a_split_goes_on_from_any_record_and_jobs_change_nothing(made, nowhere, monkeypatch):
    monkeypatch.setattr(pathfinder, "JOB_BYTES", 7 * 1024)
    generated = pathfinder.generate(SMALL, nowhere, 1, silent)
    assert generated.expected == 180
    for name, examples in generated.splits.items():
        assert isinstance(examples, Indexed)
        found = list(examples.starting_at(23))
        for one, other in zip(found, made[0][name][23:], strict=True):
            np.testing.assert_array_equal(one.values, other.values)
            assert one.label == other.label


def test_the_law_is_a_choice(nowhere):
    request = DataRequest("pathfinder", limit=20, choices=(("law", "words"),))
    generated = pathfinder.generate(request, nowhere, 1, silent)
    records = {name: list(examples) for name, examples in generated.splits.items()}
    assert generated.facts()["law"] == "words"
    statistics = checked(records, request)
    assert statistics["distractors_mean"] > 4
    with pytest.raises(DataError, match="pathfinder: train record 0 is not image 37542 of law upstream, seed 0"):
        checked(records, DataRequest("pathfinder", limit=20))


def test_statistics_of_what_was_made(made):
    statistics = checked(made[0])
    assert (statistics["train_records"], statistics["sample"], statistics["duplicates"]) == (60, 180, 0)
    assert 0.4 < statistics["distractors_mean"] < 2
    for guess in ("marker_distance_accuracy", "ink_test_accuracy", "brightness_test_accuracy"):
        assert 0.3 < statistics[guess] < 0.8


def darker(record):
    return record._replace(values=np.minimum(record.values, 254))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda r: r._replace(label=1 - r.label), "val record 5 has a label that does not say whether its discs lie"),
        (darker, "val record 5 has the maximum 254, expected 255"),
        (lambda r: r._replace(label=2), "val record 5 has label 2, expected 0 or 1"),
        (lambda r: r._replace(values=r.values[1:]), r"val record 5 is uint8 of shape \(1023, 1\)"),
        (lambda r: r._replace(values=r.values[::-1]), "val record 5 is not image [0-9]+ of law upstream, seed 0"),
    ],
)
def test_a_wrong_record_is_found(made, change, line):
    changed = [*made[0]["val"]]
    changed[5] = change(changed[5])
    with pytest.raises(DataError, match=line):
        checked({**made[0], "val": changed})


def test_an_image_that_is_there_twice_is_found(made):
    twice = [*made[0]["test"][:-1], made[0]["train"][3]]
    with pytest.raises(DataError, match="test record 59 equals train record 3: all images must be distinct"):
        checked({**made[0], "test": twice})


def test_shares_are_asserted(made):
    one = {name: [record for record in records if record.label == 1] for name, records in made[0].items()}
    stored = pathfinder_checks.read(pathfinder.task_spec(SMALL), held(one))
    with pytest.raises(DataError, match=r"share of label 1 is 1\.0000, expected 0\.5"):
        pathfinder_checks.check_generated(SMALL, stored, pathfinder_checks.statistics(stored))


def test_a_whole_set_has_its_number_of_records(made):
    with pytest.raises(DataError, match="pathfinder: 60 records in train, expected 160000"):
        checked(made[0], DataRequest("pathfinder"))


def test_thresholds():
    values, labels = np.array([3.0, 1, 2, 4, 2, 5]), np.array([1, 0, 0, 1, 0, 0])
    assert best_threshold(values, labels) == (2, 1)
    assert best_threshold(values, 1 - labels) == (2, 0)
    assert best_threshold(np.ones(3), np.array([1, 1, 0])) == (-np.inf, 1)
    assert threshold_accuracy((values, labels), (np.array([1.0, 9.0, 2.0]), np.array([0, 1, 1]))) == 2 / 3


def test_guesses_are_learned_on_train():
    def records(labels, bright):
        values = (np.full((1024, 1), 200 if b else 10, np.uint8) for b in bright)
        return [Example(value, label) for value, label in zip(values, labels, strict=True)]

    splits = {
        "train": records([0, 0, 0, 1, 1], [0, 0, 0, 1, 1]),
        "val": records([1, 0], [1, 0]),
        "test": records([1, 1, 0, 1], [0, 1, 0, 1]),
    }
    found = pathfinder.baselines(SMALL, held(splits))
    assert found["val"] == {"majority": 0.5, "ink": 1.0, "brightness": 1.0}
    assert found["test"] == {"majority": 0.25, "ink": 0.75, "brightness": 0.75}


@pytest.mark.parametrize("task", pathfinder.SETTINGS)
def test_the_smoke_sample_has_the_form(task):
    spec = pathfinder.task_spec(DataRequest(task))
    for split, records in pathfinder.smoke(DataRequest(task)).items():
        assert len(records) == pathfinder.SMOKE_SIZES[split]
        assert {int(np.asarray(record.label)) for record in records} == {0, 1}
        assert all(r.values.shape == (spec.length, 1) and r.values.dtype == np.uint8 for r in records)
        for values, label, _ in records:
            image = values.reshape(math.isqrt(spec.length), -1)
            half = image.shape[1] // 2
            left, right = ((part == 255).any(1) for part in (image[:, :half], image[:, half:]))
            assert left.any()
            assert right.any()
            assert (left == right).all() == (label == 1)
            assert (image == 200).any(1).sum() == 2
