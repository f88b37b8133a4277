"""The ListOps data set: its statistics, what its own check refuses, its baselines."""

import copy
import math

import numpy as np
import pytest

from data import listops
from data import listops_law as law
from data.errors import DataError
from data.parallel import silent
from data.prepared import smoke_data
from data.spec import DataRequest, InputKind, TaskKind
from data.splits import MemorySplit
from tests.data_sets import in_memory, made

OFFICIAL = DataRequest("listops", limit=1000)
SHORT = DataRequest("listops", (24, 96), 700)


@pytest.fixture(scope="module")
def official():
    """3 000 official expressions and the facts of their generation."""
    return made(OFFICIAL, 2)


@pytest.fixture(scope="module")
def short():
    return made(SHORT)


def records(split: MemorySplit) -> list[bytes]:
    return [split.symbols[a:b].tobytes() for a, b in zip(split.offsets, split.offsets[1:], strict=False)]


def rebuilt(split: MemorySplit, changed: list[bytes]) -> MemorySplit:
    return MemorySplit.from_records(changed, split.labels.tolist(), split.length)


def test_task_specs():
    spec = listops.task_spec(DataRequest("listops"))
    assert (spec.kind, spec.input_kind) == (TaskKind.CLASSIFICATION, InputKind.TOKENS)
    assert (spec.name, spec.input_width, spec.length, spec.classes) == ("listops", 20, 2048, 10)
    assert listops.task_spec(SHORT).length == 96
    assert listops.task_spec(SHORT).name == "listops_24_96"


@pytest.mark.parametrize("window", [(2, 96), (24, 25), (96, 24), (500, 2001), (-5, 10)])
def test_impossible_windows_are_refused(window):
    with pytest.raises(DataError, match=rf"length window {window[0]}:{window[1]}"):
        listops.task_spec(DataRequest("listops", window))


def test_statistics_of_a_small_draw(official):
    # 3 000 expressions (3 030 kept trees of about 36 700 drawn) against the values published for 100 000, at six
    # standard errors of the small draw.
    splits, facts = official
    found = listops.check(OFFICIAL, splits, facts, 2, silent)
    n, drawn = 3_000, 3_030 / 0.0825

    def proportion(p, count):
        return 6 * math.sqrt(p * (1 - p) / count)

    assert found["acceptance"] == pytest.approx(0.0825, abs=proportion(0.0825, drawn))
    assert found["root_leaf_share"] == pytest.approx(0.75, abs=proportion(0.75, drawn))
    assert found["too_long_share"] == pytest.approx(0.011, abs=proportion(0.011, drawn))
    assert found["length_mean"] == pytest.approx(1036, abs=6 * 394 / math.sqrt(n))
    assert found["operators_per_tree"] == pytest.approx(147, abs=6 * 56 / math.sqrt(n))
    for label, share in enumerate([0.167, 0.092, 0.077, 0.084, 0.090, 0.086, 0.078, 0.073, 0.088, 0.167]):
        assert found[f"label_{label}_share"] == pytest.approx(share, abs=proportion(share, n))
    assert 501 <= found["length_min"] < found["length_max"] <= 1999
    assert found["deepest_share"] > 0.995


def test_records_are_expressions_closed_by_eos_with_their_value(short):
    for split in short[0].values():
        assert law.evaluate(split.symbols.tobytes()) == split.labels.tolist()
        lengths = np.diff(split.offsets)
        assert lengths.min() >= 26
        assert lengths.max() <= 96
        assert split.length == 96


@pytest.mark.parametrize("processes", [2, 3])
def test_number_of_processes_changes_nothing(short, processes):
    splits, facts = made(SHORT, processes)
    assert facts == short[1]
    for name, split in splits.items():
        for field in ("symbols", "offsets", "labels"):
            np.testing.assert_array_equal(getattr(split, field), getattr(short[0][name], field))


def test_splits_are_consecutive_slices_without_duplicates(monkeypatch):
    # A window with few short expressions, so that duplicates do occur.
    monkeypatch.setattr(listops, "SIZES", {"train": 1000, "val": 300, "test": 300})
    splits, facts = made(DataRequest("listops", (4, 8), 900))
    assert {name: len(split) for name, split in splits.items()} == {"train": 900, "val": 300, "test": 300}
    distinct = []
    for index in range(facts["draws"]["chunks"]):
        distinct += law.draw_chunk(index, seed=listops.SEED, window=(4, 8)).expressions
    assert facts["draws"]["duplicates"] == len(distinct) - len(set(distinct)) > 0
    in_order = list(dict.fromkeys(distinct))
    assert [record for split in splits.values() for record in records(split)] == in_order[:1500]


def test_a_window_with_too_few_expressions_is_refused():
    with pytest.raises(DataError, match=r"window 3:5 gave 400 distinct .* 1500 are needed"):
        made(DataRequest("listops", (3, 5), 500))


def test_check_refuses_a_wrong_label(short):
    splits, facts = short
    labels = splits["val"].labels.copy()
    labels[17] = (labels[17] + 1) % 10
    wrong = {**splits, "val": MemorySplit(splits["val"].symbols, splits["val"].offsets, labels, 96)}
    with pytest.raises(DataError, match="val record 17 has a label that is not the value"):
        listops.check(SHORT, wrong, facts, 1, silent)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record: record[:-1] + bytes([law.ZERO]), "record 5 does not end with <eos>"),
        (lambda record: record[1:], "record 5 is not a ListOps expression"),
        (lambda record: record[:3] + bytes([250]) + record[4:], "record 5 is not a ListOps expression"),
        (lambda record: record[:3] + bytes([law.EOS]) + record[4:], "701 <eos> in 700 records"),
        (lambda record: bytes([law.MAX, law.ZERO, law.ZERO, law.CLOSE, law.EOS]), "record 5 has a length outside"),
    ],
)
def test_check_refuses_a_damaged_record(short, change, message):
    splits, facts = short
    train = records(splits["train"])
    long = max(range(len(train)), key=lambda index: len(train[index]))
    train[5], train[long] = train[long], train[5]  # long enough that one id less stays in the window
    labels = splits["train"].labels.copy()
    labels[[5, long]] = labels[[long, 5]]
    train[5] = change(train[5])
    damaged = {**splits, "train": MemorySplit.from_records(train, labels.tolist(), 96)}
    with pytest.raises(DataError, match=message):
        listops.check(SHORT, damaged, facts, 1, silent)


def test_check_refuses_a_record_in_two_splits(short):
    splits, facts = short
    test, labels = records(splits["test"]), splits["test"].labels.copy()
    test[3], labels[3] = records(splits["train"])[9], splits["train"].labels[9]
    with pytest.raises(DataError, match="test record 3 equals train record 9"):
        listops.check(SHORT, {**splits, "test": MemorySplit.from_records(test, labels.tolist(), 96)}, facts, 1, silent)


def test_check_refuses_another_mixture_of_operators(short):
    # Every SM becomes MED; labels are the right ones for it, so that only the law of the operators is broken.
    splits, facts = short
    changed = {}
    for name, split in splits.items():
        symbols = np.where(split.symbols == law.SM, law.MED, split.symbols).astype(np.uint8)
        labels = np.array(law.evaluate(symbols.tobytes()), np.int32)
        changed[name] = MemorySplit(symbols, split.offsets, labels, split.length)
    with pytest.raises(DataError, match=r"share of \[MED is 0\.\d+, expected 0\.25"):
        listops.check(SHORT, changed, facts, 1, silent)


@pytest.mark.parametrize(
    ("counter", "factor", "statistic"),
    [("drawn", 1.2, "single digits"), ("kept", 1.2, "acceptance"), ("too_long", 2, "too_long_share")],
)
def test_check_refuses_draws_that_break_the_law(official, counter, factor, statistic):
    splits, facts = official
    broken = copy.deepcopy(facts)
    broken["draws"][counter] = int(facts["draws"][counter] * factor)
    with pytest.raises(DataError, match=statistic):
        listops.check(OFFICIAL, splits, broken, 2, silent)


def test_check_refuses_too_many_duplicates(official):
    splits, facts = official
    broken = {**facts, "draws": {**facts["draws"], "duplicates": 11}}
    with pytest.raises(DataError, match="11 duplicates drawn, expected at most 10"):
        listops.check(OFFICIAL, splits, broken, 2, silent)


@pytest.mark.parametrize("request_", [DataRequest("listops"), SHORT])
def test_smoke_sample_has_the_form_of_the_data(request_):
    spec, splits = listops.task_spec(request_), in_memory(smoke_data(request_))
    assert {name: len(split) for name, split in splits.items()} == listops.SMOKE_SIZES
    low, high = request_.length_window or (500, 2000)
    for split in splits.values():
        assert split.length == spec.length
        assert law.evaluate(split.symbols.tobytes()) == split.labels.tolist()
        lengths = np.diff(split.offsets) - 1
        assert lengths.min() > low
        assert lengths.max() < high


def test_baselines_are_learned_on_train_and_counted_by_hand():
    def split(*pairs):
        ids = [bytes([operator, law.ZERO, law.ZERO, law.CLOSE, law.EOS]) for operator, _ in pairs]
        return MemorySplit.from_records(ids, [label for _, label in pairs], 8)

    train = split((law.MAX, 9), (law.MAX, 9), (law.MIN, 0), (law.MIN, 0), (law.MIN, 9), (law.MED, 4))
    val = split((law.MAX, 9), (law.MIN, 0), (law.MED, 4), (law.MED, 9))
    test = split((law.MIN, 9), (law.MIN, 9))
    found = listops.baselines(SHORT, {"train": train, "val": val, "test": test})
    assert found["val"] == {"majority": 0.5, "root_operator": 0.75}
    assert found["test"] == {"majority": 1.0, "root_operator": 0.0}


def test_root_operator_beats_the_majority_as_published(official):
    # About 36 % against 17 %; 1 000 records: 1.5 points of standard error each.
    found = listops.baselines(OFFICIAL, official[0])["val"]
    assert found["root_operator"] == pytest.approx(0.36, abs=0.07)
    assert found["majority"] == pytest.approx(0.167, abs=0.06)
