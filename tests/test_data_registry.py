"""The door to the data: names, refusals, what is loaded when."""

import subprocess
import sys

import numpy as np
import pytest

from data import listops, prepared, registry
from data.errors import DataError
from data.spec import DataRequest

REQUEST = DataRequest("listops", (24, 96), 50)


def test_requests_name_their_folders():
    assert registry.folder_of(DataRequest("listops")) == "listops"
    assert registry.folder_of(DataRequest("listops", (24, 96))) == "listops_24_96"
    assert registry.folder_of(DataRequest("listops", (24, 96), 6000)) == "listops_24_96_limit6000"
    assert registry.folder_of(DataRequest("listops", limit=7)) == "listops_limit7"
    assert DataRequest("listops", (24, 96), 6000).name == "listops_24_96"


@pytest.mark.parametrize("limit", [0, -3])
def test_a_limit_without_records_is_refused(limit):
    with pytest.raises(DataError, match=f"limit is {limit}"):
        DataRequest("listops", limit=limit)


def test_an_unknown_data_set_is_refused_with_the_nearest_name():
    with pytest.raises(DataError, match=r"unknown data set 'listop', did you mean 'listops'\? \(known: listops"):
        registry.task_spec(DataRequest("listop"))


def test_missing_data_name_the_command_that_makes_them(tmp_path):
    with pytest.raises(DataError) as caught:
        prepared.open_data(REQUEST, tmp_path)
    assert f"no data in {tmp_path}/listops_24_96_limit50" in str(caught.value)
    command = f"python -m scripts.prepare_data listops --data_dir={tmp_path} --length_window=24:96 --limit=50"
    assert str(caught.value).endswith(command)


def test_ready_data_are_not_made_again(tmp_path, monkeypatch):
    first = prepared.prepare(REQUEST, tmp_path, processes=1)
    monkeypatch.setattr(listops, "generate", lambda *_: pytest.fail("generated again"))
    (tmp_path / ".listops_24_96_limit50.lock").unlink()
    assert prepared.prepare(REQUEST, tmp_path, processes=1) == first
    assert [path.name for path in tmp_path.iterdir()] == [
        registry.folder_of(REQUEST)
    ]  # not even a lock: the place may be read-only


def test_progress_names_its_stages_and_reaches_their_ends(tmp_path):
    calls = []
    prepared.prepare(REQUEST, tmp_path, processes=1, progress=lambda *call: calls.append(call))
    assert list(dict.fromkeys(stage for stage, _, _ in calls)) == ["generate", "write", "check"]
    for stage in ("generate", "write", "check"):
        done, total = [call[1:] for call in calls if call[0] == stage][-1]
        assert done == total > 0


def test_a_check_that_fails_leaves_no_data(tmp_path, monkeypatch):
    monkeypatch.setattr(listops, "STANDARD_ERRORS", 0)
    with pytest.raises(DataError, match="ListOps: share of"):
        prepared.prepare(REQUEST, tmp_path, processes=1)
    assert not (tmp_path / registry.folder_of(REQUEST)).exists()


def test_smoke_sample_and_baselines_by_name():
    opened = prepared.smoke_data(REQUEST)
    assert opened.splits["train"].length == registry.task_spec(REQUEST).length
    found = opened.baselines
    assert set(found) == {"val", "test"}
    for guesses in found.values():
        assert set(guesses) == {"majority", "root_operator"}
        assert np.all((np.array(list(guesses.values())) >= 0) & (np.array(list(guesses.values())) <= 1))


def test_the_registry_loads_no_heavy_library():
    code = (
        "import sys; from data import prepared; from data.spec import DataRequest;"
        "prepared.smoke_data(DataRequest('listops', (24, 96)));"
        "print([name for name in ('jax', 'grain', 'tensorflow_datasets', 'array_record') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_guesses_are_those_on_what_is_validated_on():
    """Under `test_selected` validation is on the test split."""
    clean, selected = (
        prepared.smoke_data(DataRequest("text", choices=choices)).baselines
        for choices in ((), (("policy", "test_selected"),))
    )
    assert selected["val"] == selected["test"] == clean["test"]
