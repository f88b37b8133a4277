"""State-tracking probes: groups are groups, labels are what the tokens ask for, damage is seen."""

import dataclasses
import itertools

import numpy as np
import pytest

from configs import probes as configs
from data import prepared, probes, registry
from data.errors import DataError
from data.parallel import silent
from data.prepared import smoke_data
from data.probes import PROBES, cyclic, permutations, table_of
from data.spec import NO_LABEL, DataRequest
from tests.data_sets import in_memory, made

GROUPS = {
    "parity": cyclic(2),
    "mod3": cyclic(3),
    "s3": table_of(permutations(3, even=False)),
    "a5": table_of(permutations(5, even=True)),
}


@pytest.mark.parametrize(
    ("name", "order", "commutes"), [("parity", 2, True), ("mod3", 3, True), ("s3", 6, False), ("a5", 60, False)]
)
def test_tables_are_those_of_groups(name, order, commutes):
    table, every = GROUPS[name], np.arange(order)
    assert table.shape == (order, order)
    np.testing.assert_array_equal(table[0], every)
    np.testing.assert_array_equal(table[:, 0], every)
    np.testing.assert_array_equal(table[table], table[:, table])  # (g h) k = g (h k)
    assert all(sorted(row) == every.tolist() for row in (*table, *table.T))
    assert (table == table.T).all() == commutes


def test_a_product_of_permutations_applies_the_right_one_first():
    elements = permutations(3, even=False)
    swap, turn = elements.index((1, 0, 2)), elements.index((1, 2, 0))
    assert elements[GROUPS["s3"][swap, turn]] == (0, 2, 1)  # 0 -> 1 -> 0, 1 -> 2 -> 2, 2 -> 0 -> 1


def records(split):
    for index in range(len(split)):
        place = slice(split.offsets[index], split.offsets[index + 1])
        yield split.symbols[place].astype(int), split.labels[place]


@pytest.mark.parametrize("name", GROUPS)
def test_word_problems(name):
    """Every label is the product so far, taken here from the right."""
    splits = in_memory(smoke_data(DataRequest(name)))
    for split, steps in (("train", 40), ("val", 40), ("test", 160)):
        assert splits[split].length == steps
        for tokens, labels in itertools.islice(records(splits[split]), 3):
            assert len(tokens) == steps
            for t in (0, 1, 7, steps - 1):
                product = 0
                for token in tokens[t::-1]:
                    product = GROUPS[name][token, product]
                assert labels[t] == product


@pytest.mark.parametrize(("split", "longest"), [("train", 40), ("test", 160)])
def test_copy_asks_for_its_symbols_after_the_sign(split, longest):
    lengths = []
    for tokens, labels in records(in_memory(smoke_data(DataRequest("copy")))[split]):
        lengths.append(len(tokens))
        assert set(tokens[:5]) <= set(range(1, 9))
        assert tokens[-5:].tolist() == [9, 0, 0, 0, 0]
        assert not tokens[5:-5].any()
        np.testing.assert_array_equal(labels[-5:], tokens[:5] - 1)
        assert (labels[:-5] == NO_LABEL).all()
    assert 11 <= min(lengths) < 16
    assert longest * 0.95 < max(lengths) <= longest


@pytest.mark.parametrize(("split", "longest"), [("train", 40), ("test", 160)])
def test_adding_asks_for_the_sum_of_two_marked_digits(split, longest):
    lengths = []
    for tokens, labels in records(in_memory(smoke_data(DataRequest("adding")))[split]):
        lengths.append(len(tokens))
        first, second = np.flatnonzero(tokens >= 10)
        assert first < len(tokens) // 2 <= second
        assert labels[-1] == tokens[first] - 10 + tokens[second] - 10
        assert (labels[:-1] == NO_LABEL).all()
    assert 10 <= min(lengths) < 15
    assert longest * 0.95 < max(lengths) <= longest


@pytest.mark.parametrize("name", PROBES)
def test_prepared_data_come_back_as_they_were_made(name, tmp_path):
    request = DataRequest(name, limit=50)
    expected_splits, _ = made(request)
    manifest = prepared.prepare(request, tmp_path, processes=1)
    assert manifest["counts"] == {"train": 50, "val": 50, "test": 50}
    opened = prepared.open_data(request, tmp_path)
    read = in_memory(opened)
    for split, expected in expected_splits.items():
        assert dataclasses.astuple(read[split])[3:] == (expected.length, True, None)
        for found, wanted in zip(dataclasses.astuple(read[split])[:3], dataclasses.astuple(expected)[:3], strict=True):
            np.testing.assert_array_equal(found, wanted)
    assert prepared.verify(request, tmp_path, processes=1)["name"] == registry.folder_of(request)
    baseline = opened.baselines["test"]["majority"]
    scored = read["test"].labels[read["test"].labels != NO_LABEL]
    assert 0 < baseline <= np.bincount(scored).max() / len(scored)


def test_splits_and_limits():
    """A limit keeps the first records; the splits are draws of their own."""
    small, large = (made(DataRequest("a5", limit=n))[0] for n in (5, 20))
    np.testing.assert_array_equal(small["train"].symbols, large["train"].slice(0, 5).symbols)
    np.testing.assert_array_equal(small["train"].labels, large["train"].slice(0, 5).labels)
    assert (small["train"].symbols != small["val"].symbols).mean() > 0.9


def test_batches_have_no_label_where_there_is_none():
    batch = in_memory(smoke_data(DataRequest("adding")))["train"].gather([3, 1])
    assert batch["labels"].shape == batch["inputs"].shape == (2, 40)
    assert ((batch["labels"] != NO_LABEL).sum(1) == 1).all()
    last = batch["lengths"] - 1
    assert (batch["labels"][[0, 1], last] != NO_LABEL).all()


@pytest.mark.parametrize(
    ("name", "field", "value", "line"),
    [
        ("s3", "labels", 5, "val record 2 has labels that its tokens do not give"),
        ("copy", "labels", 0, "val record 2 has labels that its tokens do not give"),
        ("parity", "symbols", None, "parity: share of token 0 in val is 1, expected 0.5"),
    ],
)
def test_a_wrong_record_is_found(name, field, value, line):
    request = DataRequest(name)
    splits = in_memory(smoke_data(request))
    changed = getattr(splits["val"], field).copy()
    if value is None:
        changed[:] = 0
        splits["val"] = dataclasses.replace(splits["val"], symbols=changed, labels=np.zeros_like(splits["val"].labels))
    else:
        place = splits["val"].offsets[2]
        changed[place] = value if changed[place] != value else value - 1
        splits["val"] = dataclasses.replace(splits["val"], labels=changed)
    with pytest.raises(DataError, match=line):
        probes.check(request, splits, {}, 1, silent)


def test_a_length_window_is_refused():
    with pytest.raises(DataError, match="s3 has no length window"):
        registry.task_spec(DataRequest("s3", (24, 96)))


def test_the_config_knows_every_probe():
    assert set(configs.TASKS) == set(PROBES)
