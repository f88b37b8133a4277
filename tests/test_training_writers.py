"""metrics.jsonl survives a kill at any byte and says exactly what was computed; the progress says what is left."""

import contextlib
import io
import json
import math
import os
import re
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from training.writers import MetricsLog, Progress, RunLog, damage, read_metrics


def row(step: int, **values) -> dict:
    return {"step": step, "seed": 0, "split": "train", "loss": step / 3, **values}


@pytest.fixture
def path(tmp_path):
    """A metrics.jsonl with rows of the steps 0 to 4."""
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path, None) as log:
        for step in range(5):
            log.write(row(step))
    return path


def test_rows_come_back_as_written(path):
    assert read_metrics(path) == [row(step) for step in range(5)]


def test_a_row_is_in_the_file_as_soon_as_it_is_written(path):
    log = MetricsLog(path, 4)
    log.write(row(5))
    assert path.read_bytes().endswith(b"\n")
    assert read_metrics(path)[-1] == row(5)
    log.close()


def test_rows_beyond_the_restored_step_are_dropped_silently(path):
    with MetricsLog(path, 2) as log:
        assert log.repairs == ()
        log.write(row(3, loss=7.0))
    assert read_metrics(path) == [row(0), row(1), row(2), row(3, loss=7.0)]


def test_a_start_from_nothing_drops_every_row(path):
    MetricsLog(path, None).close()
    assert path.read_bytes() == b""


def test_an_intact_file_is_not_rewritten(path):
    before = path.stat().st_ino, path.read_bytes()
    MetricsLog(path, 4).close()
    assert (path.stat().st_ino, path.read_bytes()) == before


def test_a_last_line_cut_at_any_byte_is_repaired_and_said(path):
    content = path.read_bytes()
    start = content[:-1].rfind(b"\n") + 1
    for end in range(start + 1, len(content) - 1):
        path.write_bytes(content[:end])
        assert read_metrics(path) == [row(step) for step in range(4)]
        with MetricsLog(path, 4) as log:
            assert log.repairs == ("metrics.jsonl: the last line, 5, was cut: dropped it",)
        assert path.read_bytes() == content[:start]


def test_a_last_line_that_lacks_only_its_end_is_kept(path):
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with MetricsLog(path, 4) as log:
        assert log.repairs == ("metrics.jsonl: the last line, 5, was cut: it lacked only its line end",)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "damage",
    [b'{"step": 1, "seed"', b"\xff\xfe", b"\0\0\0", b"[1]", b'{"loss": 1.0}', b'{"step": 1, "loss": NaN}', b""],
)
def test_a_damaged_line_in_the_middle_is_dropped_and_said(path, damage):
    lines = path.read_bytes().split(b"\n")
    lines[1] = damage
    path.write_bytes(b"\n".join(lines))
    with MetricsLog(path, 4) as log:
        assert log.repairs == ("metrics.jsonl: dropped 1 damaged line(s), the first is line 2",)
    assert path.read_bytes() == b"\n".join(lines[:1] + lines[2:])


@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_flipped_bit_never_gives_another_row(path, place, bit):
    written = [row(step) for step in range(5)]
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1 << bit
    damaged = path.with_name("damaged.jsonl")
    damaged.write_bytes(content)
    assert all(found in written for found in read_metrics(damaged))
    assert damage(damaged, 4, 5) or len(read_metrics(damaged)) == 5


def test_lines_of_before_there_was_a_check_are_rows(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(re.fullmatch("[0-9a-f]{8}", line.pop("crc32")) for line in lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_metrics(path) == [row(step) for step in range(5)]
    with MetricsLog(path, 4) as log:
        assert log.repairs == ()


@pytest.mark.parametrize("lost", [0, 2, 4])
def test_a_lost_line_is_said(path, lost):
    """No line that is left tells of it: how many there were stands in the checkpoint."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:lost] + lines[lost + 1 :]))
    line = "metrics.jsonl: 4 of 5 rows are left; nothing can bring the others back"
    assert damage(path, 4, 5) == (line,)
    assert damage(path, 4, 4) == damage(path, 4) == ()
    with MetricsLog(path, 4, 5) as log:
        assert log.repairs == (line,)
        assert log.count == 4
        log.write(row(5))
        assert log.count == 5
    assert damage(path.with_name("none.jsonl"), 4, 5) == (
        "none.jsonl: 0 of 5 rows are left; nothing can bring the others back",
    )


def test_one_damage_is_said_once_unless_more_is_gone_than_was_dropped(path):
    """Of five rows one is hit; then another one is gone without a trace."""
    lines = path.read_bytes().splitlines(keepends=True)
    dropped = "metrics.jsonl: dropped 1 damaged line(s), the first is line 2"
    path.write_bytes(b"".join([lines[0], b"x" + lines[1], *lines[2:]]))
    assert damage(path, 4, 5) == (dropped,)
    path.write_bytes(b"".join([lines[0], b"x" + lines[1], *lines[3:]]))
    lost = "metrics.jsonl: 3 of 5 rows are left; nothing can bring the others back"
    assert damage(path, 4, 5) == (dropped, lost)
    with MetricsLog(path, 4, 5) as log:
        assert log.repairs == (dropped, lost)


def test_a_damaged_line_behind_the_checkpoint_hides_no_lost_row(path):
    """Steps 0 to 2 are in the checkpoint; a kill has cut the row of step 4, and the row of step 1 is gone."""
    lines = path.read_bytes().splitlines(keepends=True)
    cut = "metrics.jsonl: the last line, 5, was cut: dropped it"
    path.write_bytes(b"".join(lines)[:-9])
    assert damage(path, 2, 3) == (cut,)
    path.write_bytes(b"".join([lines[0], *lines[2:]])[:-9])
    lost = "metrics.jsonl: 2 of 3 rows are left; nothing can bring the others back"
    assert damage(path, 2, 3) == (cut.replace("5", "4"), lost)


def test_the_rewrite_is_a_rename(path, monkeypatch):
    """What is open under the old name keeps the old content: the file is never half written."""
    with path.open("rb") as old:
        content = path.read_bytes()
        MetricsLog(path, 2).close()
        assert old.read() == content
    assert [entry.name for entry in path.parent.iterdir()] == ["metrics.jsonl"]


def test_float32_is_written_exactly(path):
    values = np.random.default_rng(0).normal(size=100).astype(np.float32)
    with MetricsLog(path, None) as log:
        log.write(
            {"step": np.int32(1), "loss": values[0], "state_energy": values, "lr": jnp.float32(0.1), "alive": True}
        )
    (line,) = path.read_text().splitlines()
    written = json.loads(line)
    assert written["step"] == 1
    assert written["loss"] == float(values[0])
    assert np.array_equal(np.asarray(written["state_energy"]), values.astype(np.float64))
    assert written["lr"] == float(np.float32(0.1))
    assert written["alive"] is True


def test_what_is_not_finite_is_null_with_a_flag_and_comes_back_as_nan(path):
    given = {
        "step": 1,
        "loss": np.float32(np.nan),
        "grad_norm": math.inf,
        "state_energy": jnp.asarray([1.0, -jnp.inf]),
        "state_energy_t": [[np.float32(np.nan), 2.0], [3.0, 4.0]],
        "accuracy": 0.5,
        "state_align": None,
    }
    with MetricsLog(path, None) as log:
        log.write(given)
    strict = json.loads(path.read_text(), parse_constant=lambda constant: pytest.fail(constant))
    assert strict["loss"] is None
    assert strict["state_energy"] == [1.0, None]
    assert strict["nonfinite"] == ["loss", "grad_norm", "state_energy", "state_energy_t"]
    (back,) = read_metrics(path)
    assert math.isnan(back["loss"])
    assert math.isnan(back["grad_norm"])
    assert np.array_equal(back["state_energy"], [1.0, math.nan], equal_nan=True)
    assert np.array_equal(back["state_energy_t"], [[math.nan, 2.0], [3.0, 4.0]], equal_nan=True)
    assert (back["accuracy"], back["state_align"]) == (0.5, None)


def test_a_value_that_json_cannot_say_is_refused_before_anything_is_written(path):
    before = path.read_bytes()
    with MetricsLog(path, 4) as log, pytest.raises(TypeError):
        log.write({"step": 5, "loss": object()})
    assert path.read_bytes() == before


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run_of_eleven_steps(tmp_path) -> str:
    """Two seconds a step, from step 100 to 111; returns what train.log got."""
    seconds = iter(range(0, 1000, 2))
    log = RunLog(tmp_path / "train.log")
    progress = Progress(log, 100, 111, clock=lambda: float(next(seconds)))
    for step in range(101, 112):
        progress.update(step, loss=2.0)
        if step == 105:
            log.say("saved")
    progress.close()
    log.close()
    return (tmp_path / "train.log").read_text()


LINES = [
    "step 101/111  loss 2.0000",
    "step 104/111  loss 2.0000  0.5 steps/s  0:00:14 left",
    "saved",
    "step 107/111  loss 2.0000  0.5 steps/s  0:00:08 left",
    "step 110/111  loss 2.0000  0.5 steps/s  0:00:02 left",
    "step 111/111  loss 2.0000  0.5 steps/s  0:00:00 left",
]


def test_in_a_log_progress_is_a_line_every_few_seconds_and_at_the_end(tmp_path, capsys):
    recorded = run_of_eleven_steps(tmp_path)
    assert capsys.readouterr().out.splitlines() == LINES
    assert [line.split(" ", 2)[2] for line in recorded.splitlines()] == LINES, "train.log: date, time, message"


def test_a_clock_that_jumps_costs_a_rate_and_no_line(tmp_path, capsys):
    """Back, and so far forward that the time left is no date: each is said at once."""
    seconds = iter([100.0, 50.0, 51.0, 1e30, 1e30, -1e30])
    log = RunLog(tmp_path / "train.log")
    progress = Progress(log, 0, 10**6, clock=lambda: next(seconds))
    for step in range(1, 7):
        progress.update(step, loss=2.0)
    progress.close()
    log.close()
    lines = [line.split("  ")[0::2] for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == [f"step {step}/1000000" for step in (1, 2, 4, 6)]
    assert [len(line) > 1 for line in lines] == [False, False, True, False], "a rate only where time went on"


def test_on_a_terminal_progress_is_one_line_that_messages_do_not_break(tmp_path, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    recorded = run_of_eleven_steps(tmp_path)
    shown = terminal.getvalue()
    assert shown.count("\n") == 2, "the message's and the bar's own"
    before, after = shown.split("saved\n")
    assert before.endswith("\r"), "the bar is cleared before the message"
    assert after.startswith("\r")
    assert "100%" in after.splitlines()[-1]
    assert LINES[-1] in after
    assert [line.split(" ", 2)[2] for line in recorded.splitlines()] == LINES


def test_a_log_goes_on_where_nobody_reads_the_output(tmp_path, monkeypatch):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as output, contextlib.closing(RunLog(tmp_path / "train.log")) as log:
        monkeypatch.setattr(sys, "stdout", output)
        log.say("first")
        log.say("second")
        monkeypatch.undo()
    assert [line.split()[-1] for line in (tmp_path / "train.log").read_text().splitlines()] == ["first", "second"]
