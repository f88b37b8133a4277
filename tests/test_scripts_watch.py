"""The live table says what the files of runs say, of whatever state they are in, and touches nothing."""

import fcntl
import io
import json
import math
import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest
from commands import ROOT
from report_runs import write_run

from data.errors import one_line
from scripts import watch, watched
from scripts.watch import Runs, main
from scripts.watched import HEADS
from training.writers import MetricsLog

ARGUMENT = "task=listops,layer=lru,depth=2,smoke"


def run(folder, seeds=(0, 1), **more):
    """A run that is at step 20 of 40."""
    accuracies = dict.fromkeys(seeds)
    return write_run(folder, ARGUMENT, accuracies, energies=2, changes={"train.steps": 40, **more})


def cells(folders, now=None):
    """Name of a run -> its cells by head."""
    lines = Runs(folders).table(time.time() if now is None else now)
    starts = [lines[0].index(head) for head in HEADS]
    cut = [[line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)] for line in lines[1:]]
    return {row[0]: dict(zip(HEADS[1:], row[1:], strict=True)) for row in cut}


def test_a_run_on_its_way_is_told_in_numbers(tmp_path):
    run(tmp_path / "run")
    (found,) = cells([tmp_path]).values()
    # Losses are 3 - step/10, energies 2^(seed + layer + step/10), a row comes every 2 s, a batch is 8 records of 50.
    assert found == {
        "state": "running",
        "step": "20/40",
        "loss": "1.0000 1.0000",
        "validation": "30.0 30.0 %",
        "state energy": "4 to 16",
        "updates/s": "5",
        "tokens/s": f"{5 * 2 * 8 * 50:,}",
        "left": "0:00:04",
    }


def test_many_seeds_are_a_mean_and_a_spread(tmp_path):
    folder = run(tmp_path / "run", seeds=range(4))
    with MetricsLog(folder / "metrics.jsonl", 20) as log:
        for seed, loss in enumerate((1.0, 2.0, 3.0, math.nan)):
            log.write({"step": 30, "seed": seed, "split": "train", "loss": loss, "seconds": 7.0})
    (found,) = cells([tmp_path]).values()
    assert found["loss"] == "2.0000 ± 1.0000"
    assert found["state"] == "running, dead seeds 3"


def test_clocks_that_jump_are_no_reason_to_fail(tmp_path):
    """Those of the run, by which a rate would need ages, and that of the watcher, before the run and long after it."""
    folder = run(tmp_path / "run", seeds=(0,), **{"train.steps": 10**9})
    with MetricsLog(folder / "metrics.jsonl", 20) as log:
        for step, seconds in ((21, -1e9), (22, 1e30)):
            log.write({"step": step, "seed": 0, "split": "train", "loss": 1.0, "seconds": seconds})
    for now, state in ((0.0, "running"), (1e12, "stopped")):
        (found,) = cells([tmp_path], now).values()
        assert (found["state"], found["step"]) == (state, f"22/{10**9}")


def test_a_language_model_shows_its_loss(tmp_path):
    folder = run(tmp_path / "run", seeds=(0,))
    with MetricsLog(folder / "metrics.jsonl", 20) as log:
        log.write({"step": 20, "seed": 0, "split": "val", "loss": 1.5, "bits": 2.164, "accuracy": 0.5, "seconds": 5.0})
    (found,) = cells([tmp_path]).values()
    assert found["validation"] == "loss 1.5000"


def test_states(tmp_path):
    later = time.time() + 3600
    stopped, finished, held = (tmp_path / name for name in ("a", "b", "c"))
    run(stopped)
    run(finished, **{"train.steps": 20})
    with (run(held) / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        states = [found["state"] for found in cells([tmp_path], later).values()]
        assert states[:2] == ["stopped", "finished"]
        assert re.fullmatch(r"running, no row for (0:59:5\d|1:00:00)", states[2])
        assert watched.is_locked(held / "lock")
        assert not watched.is_locked(stopped / "lock"), "and asking has not taken it"
    assert [found["left"] for found in cells([tmp_path], later).values()] == [""] * 3
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "config.json").write_text('{"config": ')
    assert cells([tmp_path], later)[str(tmp_path / "d")]["state"].startswith("unreadable (JSONDecodeError")


def test_what_is_new_appears_and_what_is_gone_does_not(tmp_path):
    runs, folder = Runs([tmp_path]), tmp_path / "late"
    assert runs.table(0.0) == [f"no run yet in {tmp_path}"]
    run(folder)
    assert "20/40" in runs.table(0.0)[1]
    line = json.dumps({"step": 30, "seed": 0, "split": "train", "loss": 0.5, "seconds": 7.0}).encode()
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(line[:20])
        file.flush()
        assert "20/40" in runs.table(0.0)[1], "a line that is being written"
        file.write(line[20:] + b"\n")
    assert "30/40" in runs.table(0.0)[1]
    MetricsLog(folder / "metrics.jsonl", 10).close()
    assert "10/40" in runs.table(0.0)[1], "a resume has dropped what came later"
    (folder / "config.json").unlink()
    assert runs.table(0.0) == [f"no run yet in {tmp_path}"]


def test_only_what_is_new_is_read(tmp_path, monkeypatch):
    folder, runs, taken = run(tmp_path / "run"), Runs([tmp_path]), []
    take = watched.Watched._take
    monkeypatch.setattr(watched.Watched, "_take", lambda self, row: (taken.append(row["step"]), take(self, row)))
    runs.table(0.0)
    assert len(taken) == 12
    runs.table(0.0)
    with MetricsLog(folder / "metrics.jsonl", 20) as log:
        log.write({"step": 30, "seed": 0, "split": "train", "loss": 0.5, "seconds": 7.0})
    runs.table(0.0)
    assert taken[12:] == [30]


def test_names_cannot_command_the_terminal(tmp_path):
    folder = tmp_path / "\x1b[2Jred\n\u202etxt"
    run(folder)
    lines = Runs([tmp_path]).table(0.0)
    assert len(lines) == 2
    assert lines[1].startswith(f"{tmp_path}/\\x1b[2Jred\\n\\u202etxt ")
    assert one_line("λ 1") == "λ 1"


ONCE = """
import sys
from scripts import watch
watch.main(["watch", *sys.argv[1:], "--once"])
print("jax" in sys.modules)
"""


def test_once_prints_one_table_without_jax(tmp_path):
    run(tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    command = [sys.executable, "-c", ONCE, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    heads, row, jax = done.stdout.splitlines()
    assert heads.split() == " ".join(HEADS).split()
    assert row.startswith(f"{tmp_path}/run  running  20/40 ")
    assert jax == "False"
    assert "\x1b" not in done.stdout
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


QUICKLY = """
import sys
from scripts import watch
from training import cli
watch.SECONDS_BETWEEN_LOOKS = 0.05
sys.exit(cli.guarded(watch.main, sys.argv))
"""


def test_it_refreshes_until_it_is_interrupted(tmp_path):
    """On a terminal in place, and Ctrl-C ends it like the other commands."""
    run(tmp_path / "run")
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", QUICKLY, tmp_path], cwd=ROOT, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        try:
            while seen.count(b"\x1b[2F\x1b[J") < 2:
                seen += os.read(ours, 4096)
                assert len(seen) < 100_000
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()
    os.close(ours)
    assert seen.startswith(b"\x1b[Jrun ")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_table_fits_the_terminal(monkeypatch):
    screen, terminal = watch.Screen(), Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(watch.shutil, "get_terminal_size", lambda: os.terminal_size((11, 5)))
    screen.show([f"{number} " + "x" * 30 for number in range(9)])
    assert terminal.getvalue() == "\x1b[J" + "".join(f"{number} xxxxxxxx\n" for number in range(3)) + "and 6 more\n"


def test_elsewhere_tables_stand_one_below_the_other(capsys):
    screen = watch.Screen()
    for _ in range(2):
        screen.show(["a", "b"])
    assert capsys.readouterr().out == "a\nb\n" * 2


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(watch.ConfigError, match=f"^{tmp_path}/none: there is no such folder$"):
        main(["watch", str(tmp_path / "none")])
