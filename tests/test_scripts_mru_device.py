"""The command for an accelerator: row by row, until the time is over."""

import itertools
import json

import pytest

from scripts import mru_device
from training.errors import PreemptedError
from training.workdir import RESULTS

FIRST = {"attention_rope": "model=small_attention", "mru_identity": "model=small_mru,variant=identity"}
"""The two most telling rows, of less depth."""


@pytest.mark.usefixtures("compiled_once")
def test_rows_are_run_until_the_time_is_over_and_go_on_there(tmp_path, monkeypatch, capsys):
    """The clock moves by 3.5 seconds whenever it is read: the time is over in the middle of the second row."""
    monkeypatch.setattr(mru_device, "ROWS", FIRST)
    command = ["mru_device", f"--out={tmp_path}", "--smoke", "--minutes=1"]
    ticks = itertools.count(0, 3.5)
    with pytest.raises(PreemptedError, match=r"mru_identity: stopped at step \d+ of 12 and saved: the same command"):
        mru_device.main(command, clock=lambda: next(ticks))
    assert "not finished: mru_identity" in capsys.readouterr().out
    assert not (tmp_path / "mru_identity" / RESULTS).exists()
    mru_device.main(command, clock=lambda: 0.0)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines if line.startswith(("| attention", "| mru"))] == [
        "| attention_rope",
        "| mru_identity",
    ]
    assert not any("not finished" in line for line in lines)
    steps = [json.loads(line) for line in (tmp_path / "mru_identity" / "metrics.jsonl").read_text().splitlines()]
    assert sorted({row["step"] for row in steps if row["split"] == "train"}) == list(range(13))


def test_the_most_telling_rows_come_first():
    assert list(mru_device.ROWS)[:3] == ["attention_rope", "mru_identity", "mru_ldu"]
    sizes = {name: mru_device._config(name, "0:1", smoke=False) for name in mru_device.ROWS}
    assert {len(c.model.layers) for c in sizes.values()} == {12}
    assert {c.train.log_every for c in sizes.values()} == {1}
    assert len({str(c) for c in sizes.values()}) == len(sizes) == 10
