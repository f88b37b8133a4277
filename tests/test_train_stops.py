"""Runs that stop early, by a non-finite value, an interrupt or damage, and what the same command then does; folders in
which a run may not go on."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import jax.numpy as jnp
import numpy as np
import pytest
from commands import TINY, assert_refused, call, start

from data.batching import records_of_batch
from data.sealed import sealed
from scripts import replay as again
from scripts.kill_subjects import differ_runs
from training import checkpoint, loop, memory, nonfinite, workdir
from training.errors import ConfigError
from training.files import read_sealed
from training.step import FINE, StepMetrics
from training.writers import read_metrics

CONTINUE = "--config.on_nonfinite=continue"
pytestmark = pytest.mark.usefixtures("compiled_once")


@pytest.fixture
def copy(undisturbed, tmp_path):
    """A copy of that run."""
    return shutil.copytree(undisturbed, tmp_path / "run")


def final_leaves(folder):
    """The last checkpoint by path, as arrays (S, ...)."""
    folder = folder / "checkpoints"
    last = checkpoint.steps(folder)[-1]
    restored = checkpoint.restore(folder, None, last)
    assert restored is not None
    return {path: np.asarray(leaf) for path, leaf in restored.tree.items()}


def rows_of(folder, seed):
    """The metrics of a seed without the time they took."""
    rows = read_metrics(folder / "metrics.jsonl")
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows if row["seed"] == seed]


def poison(monkeypatch, path, at=5):
    """Makes a parameter of the second seed infinite before update `at`, counted from 0: step at + 1 is the bad one."""

    def make(program, mesh):
        compiled = memory.compile_step(program, mesh)

        def poisoned(state, batch, done):
            if int(done) == at:
                group = state.params
                for key in path[:-1]:
                    group = group[key]
                group[path[-1]] = group[path[-1]].at[1].set(jnp.inf)
            return compiled.call(state, batch, done)

        return compiled._replace(call=poisoned)

    monkeypatch.setattr(loop, "compile_step", make)


def test_a_seed_gone_bad_stops_the_run_and_says_so_again(undisturbed, tmp_path, monkeypatch):
    poison(monkeypatch, ("head", "bias"))
    line = "stopped: seed 1, step 6: the loss is not finite\n"
    folder, steady = tmp_path / "stopped", tmp_path / "steady"
    first = call("train.py", TINY, f"--workdir={folder}")
    assert (first.code, first.err) == (3, line)
    # Seen one step late: the rows of that step are there, and the state is saved.
    assert checkpoint.steps(folder / "checkpoints")[-1] == 7
    rows = rows_of(folder, 1)
    assert rows[-2]["step"] == 6
    assert np.isnan(rows[-2]["loss"])
    assert rows_of(folder, 0) == [row for row in rows_of(undisturbed, 0) if row["step"] <= 7]
    again = call("train.py", TINY, f"--workdir={folder}")
    assert (again.code, again.err) == (3, line)

    # Continued, the other seed ends as if nothing had happened, and the bad one where it was.
    assert call("train.py", TINY, f"--workdir={folder}", CONTINUE).code == 0
    leaves, expected = final_leaves(folder), final_leaves(undisturbed)
    assert leaves["alive"].tolist() == [True, False]
    for path, leaf in expected.items():
        assert leaves[path][0].tobytes() == leaf[0].tobytes(), path
    assert rows_of(folder, 0) == rows_of(undisturbed, 0)
    assert leaves["params/encoder/dense/kernel"][1].tobytes() != expected["params/encoder/dense/kernel"][1].tobytes()

    # A run that was to go on from the first ends the same; and a dead seed can still be scored.
    ended = call("train.py", TINY, f"--workdir={steady}", CONTINUE)
    assert ended.code == 0
    assert "seed 1, step 6: the loss is not finite" in ended.out
    assert differ_runs(folder, steady) == []
    scored = call("eval.py", f"--workdir={folder}", "--checkpoint=last")
    assert scored.code == 0
    assert scored.out.endswith(
        "; not finite and held since: seed 1; loss not finite, accuracy without meaning: seed 1\n"
    )
    (record,) = json.loads((folder / "results.json").read_text())
    assert {seed: values["alive"] for seed, values in record["seeds"].items()} == {"0": True, "1": False}
    # What was planted is in its parameters, so its loss is null.
    assert record["seeds"]["1"]["loss"] is None
    assert record["seeds"]["0"]["loss"] > 0
    # Asked to stop on it, the run says once more what was not finite.
    assert call("train.py", TINY, f"--workdir={folder}")[::2] == (3, line)


def test_the_block_at_fault_is_named_and_the_step_can_be_taken_again(tmp_path, monkeypatch, capsys):
    poison(monkeypatch, ("blocks", 0, "layer", "D"), at=1)
    ended = call("train.py", TINY, f"--workdir={tmp_path / 'run'}")
    assert ended.code == 3
    line = "seed 1, step 2: the loss is not finite, first in the output of blocks/0"
    assert ended.err == f"stopped: {line}\n"

    # What the run leaves: the batch and the sizes of all layers, by which the step is taken once more.
    config, _ = workdir.read_config(tmp_path / "run")
    (incident,) = nonfinite.read(tmp_path / "run", config)
    train, size = loop.load_data(config, tmp_path).splits["train"], config.train.batch_size
    assert incident.records == records_of_batch(train, 1, 1, size).tolist()
    assert len(set(incident.records)) == size
    assert (incident.line, incident.block, incident.layers["blocks/0"]["parameters"]) == (line, 0, None)
    assert incident.layers["head"]["parameters"] is not None
    again.main(["", f"--workdir={tmp_path / 'run'}"])
    first, heads, *table, last = capsys.readouterr().out.splitlines()
    assert first == f"{line}; records {' '.join(map(str, incident.records))} of the train split"
    assert heads.split() == ["layer", "parameters", "gradient", "state_energy"]
    assert [row.split()[0] for row in table] == ["encoder", "blocks/0", "head"]
    assert table[1].split()[1:4] == ["not", "finite", "not"]
    assert last == "taken again: the loss is not finite"

    # Of the seed that was finite there is nothing to take; and where the step goes well here, that is said.
    with pytest.raises(ConfigError, match=r"nonfinite has no step of seed 0: choose from 1$"):
        again.main(["", f"--workdir={tmp_path / 'run'}", "--seed=0"])
    monkeypatch.setattr("training.replay.make_train_step", lambda _: lambda *_: (None, FINE_STEP))
    again.main(["", f"--workdir={tmp_path / 'run'}", "--seed=1"])
    assert capsys.readouterr().out.splitlines()[-1] == "taken again: everything is finite"


FINE_STEP = StepMetrics(*[jnp.zeros(1)] * 4, bad=jnp.full(1, FINE))


def test_a_bad_last_step_stops_too_and_its_evaluation_is_not_lost(tmp_path, monkeypatch):
    poison(monkeypatch, ("head", "bias"), at=11)
    folder = tmp_path / "run"
    for _ in range(2):
        assert call("train.py", TINY, f"--workdir={folder}").err == "stopped: seed 1, step 12: the loss is not finite\n"
    assert [row["step"] for row in rows_of(folder, 0) if row["split"] == "val"] == [0, 4, 8, 12]
    assert call("train.py", TINY, f"--workdir={folder}", CONTINUE).code == 0


def test_a_rate_that_is_too_large_ends_every_seed(tmp_path):
    """A run without a seed left ends, also one that is to continue."""
    command = [TINY, "--config.optim.lr=1e38", "--config.optim.ssm_lr=1e38", f"--workdir={tmp_path / 'run'}"]
    first = call("train.py", *command, CONTINUE)
    assert first.code == 3
    for seed in (0, 1):
        assert f"seed {seed}, step " in first.err
    assert first.err.count("\n") == 1
    assert all(np.isfinite(leaf).all() for path, leaf in final_leaves(tmp_path / "run").items() if "params" in path)
    assert not final_leaves(tmp_path / "run")["alive"].any()
    assert call("train.py", *command, CONTINUE)[::2] == first[::2]
    assert call("train.py", *command)[::2] == first[::2]


def stopped_at(step):
    return f"stopped at step {step} of 12 and saved: the same command goes on there\n"


STOPPING = "stopping after the step in progress; Control-C again stops at once\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_saves_the_step_in_progress_and_the_run_goes_on(undisturbed, tmp_path, monkeypatch, capfd, number):
    """As a scheduler sends them, or Control-C: in a step that would not be saved otherwise."""
    folder, flush = tmp_path / "run", loop.Run._flush

    def signalled(self, pending, state, progress=None):
        if pending is not None and pending.step == 5:
            signal.raise_signal(number)
        return flush(self, pending, state, progress)

    monkeypatch.setattr(loop.Run, "_flush", signalled)
    ended = call("train.py", TINY, f"--workdir={folder}")
    # The rows of a step are written behind the next one.
    assert checkpoint.steps(folder / "checkpoints") == [4, 7]
    assert (ended.code, ended.err) == (75, stopped_at(7))
    assert capfd.readouterr().err == (STOPPING if number == signal.SIGINT else "")
    monkeypatch.undo()
    ended = call("train.py", TINY, f"--workdir={folder}")
    assert ended.code == 0
    assert "going on from step 7" in ended.out
    assert differ_runs(undisturbed, folder) == []


@pytest.mark.parametrize("start", [0, 8])
def test_a_signal_before_the_first_step_ends_a_run_at_once(undisturbed, tmp_path, monkeypatch, start):
    """While it compiles: of a new run, and of one that goes on."""
    folder, compile_step = tmp_path / "run", loop.compile_step

    def interrupted(program, mesh):
        signal.raise_signal(signal.SIGTERM)
        return compile_step(program, mesh)

    if start:
        shutil.copytree(undisturbed, folder)
        shutil.rmtree(folder / "checkpoints" / "12")
    monkeypatch.setattr(loop, "compile_step", interrupted)
    monkeypatch.setattr(loop.Run, "_evaluate", None)
    ended = call("train.py", TINY, f"--workdir={folder}")
    line = f"stopped at step {start} of 12 before anything was trained: the same command goes on there\n"
    assert (ended.code, ended.err) == (75, line)
    assert checkpoint.steps(folder / "checkpoints") == [start] * bool(start)
    monkeypatch.undo()
    assert call("train.py", TINY, f"--workdir={folder}").code == 0
    assert differ_runs(undisturbed, folder) == []


def test_a_finished_run_says_so_without_compiling(copy, monkeypatch):
    for name in ("compile_step", "begin"):
        monkeypatch.setattr(loop, name, lambda *_: pytest.fail("compiled"))
    ended = call("train.py", TINY, f"--workdir={copy}")
    assert (ended.code, ended.out) == (0, f"going on from step 12\nfinished already: 12 steps in {copy}\n")


def test_a_signal_ends_a_process_of_its_own(tmp_path):
    folder = tmp_path / "run" / "checkpoints"
    process = start("train.py", TINY, f"--workdir={tmp_path / 'run'}", "--config.train.steps=1000000")
    deadline = time.monotonic() + 120
    while not checkpoint.steps(folder):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    line = f"stopped at step {checkpoint.steps(folder)[-1]} of 1000000 and saved: the same command goes on there\n"
    assert (process.returncode, said) == (75, line)


def test_a_second_interrupt_ends_at_once():
    code = "from training import cli; stop = cli.asked_to_stop(); print('ready', flush=True)\nwhile True: stop()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline().decode() == STOPPING
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b"interrupted: the same command goes on where this one stopped\n"
    assert process.returncode == 130


def damage(step_folder, how):
    """Damages the largest file of a checkpoint."""
    largest = max((path for path in step_folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    if how == "truncated":
        content = content[: len(content) // 2]
    else:
        content[len(content) // 2] ^= 16
    largest.write_bytes(content)


@pytest.mark.parametrize("how", ["truncated", "one bit flipped"])
def test_a_damaged_newest_checkpoint_is_passed_over(undisturbed, copy, how):
    damage(copy / "checkpoints" / "12", how)
    # Scored before it is mended, it says what it passed over.
    assert call("eval.py", f"--workdir={copy}", "--checkpoint=last").code == 0
    (record,) = json.loads((copy / "results.json").read_text())
    assert record["seeds"]["0"]["step"] == 8
    assert "checkpoint 12 is damaged" in record["repairs"][0]

    ended = call("train.py", TINY, f"--workdir={copy}")
    assert (ended.code, ended.err) == (0, "")
    (said,) = [line for line in ended.out.splitlines() if line.startswith("repaired: ")]
    assert "checkpoint 12 is damaged" in said
    assert "renamed damaged-12, going on from checkpoint 8" in said
    assert said in (copy / "train.log").read_text()
    assert differ_runs(undisturbed, copy) == []
    assert (copy / "checkpoints" / "damaged-12").is_dir()
    assert call("eval.py", f"--workdir={copy}", "--checkpoint=last").code == 0
    (record,) = json.loads((copy / "results.json").read_text())
    assert record["seeds"]["0"]["step"] == 12
    assert [f"repaired: {line}" for line in record["repairs"]] == [said]


def test_metrics_cut_in_a_line_are_mended(undisturbed, copy):
    shutil.rmtree(copy / "checkpoints" / "12")
    content = (copy / "metrics.jsonl").read_bytes()
    (copy / "metrics.jsonl").write_bytes(content[: content.rindex(b'"accuracy"')])
    ended = call("train.py", TINY, f"--workdir={copy}")
    assert ended.code == 0
    (said,) = [line for line in ended.out.splitlines() if line.startswith("repaired: ")]
    assert said.startswith("repaired: metrics.jsonl: the last line, ")
    assert differ_runs(undisturbed, copy) == []
    assert call("eval.py", f"--workdir={copy}").code == 0
    (record,) = json.loads((copy / "results.json").read_text())
    assert [f"repaired: {line}" for line in record["repairs"]] == [said]


def test_a_run_with_nothing_intact_is_refused_and_left_as_it_is(copy):
    for saved in ("8", "12"):
        damage(copy / "checkpoints" / saved, "truncated")
    before = {path: path.read_bytes() for path in (copy / "checkpoints").rglob("*") if path.is_file()}
    assert_refused(call("train.py", TINY, f"--workdir={copy}"), "every checkpoint in ")
    assert_refused(call("eval.py", f"--workdir={copy}"), "every checkpoint in ")
    assert {path: path.read_bytes() for path in (copy / "checkpoints").rglob("*") if path.is_file()} == before


def test_a_full_disk_ends_with_one_line(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("training.writers.MetricsLog.write", full)
    assert call("train.py", TINY, f"--workdir={tmp_path / 'run'}")[::2] == (2, "error: No space left on device\n")


def test_a_folder_in_which_another_process_trains_is_refused(copy):
    with workdir.alone(copy):
        assert_refused(call("train.py", TINY, f"--workdir={copy}"), f"process {os.getpid()} on ")
    assert call("train.py", TINY, f"--workdir={copy}").code == 0


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"schema": 4}, "a run of another version (schema 4, here 3): update linrec to read it"),
        ({"data_sha256": 5}, "is damaged (TypeError: data_sha256 is 5)"),
        ({"cores": "a"}, "is damaged (TypeError: cores is 'a')"),
    ],
)
def test_a_config_json_of_another_version_or_type_is_refused(copy, change, line):
    record = read_sealed(copy / "config.json")
    (copy / "config.json").write_text(json.dumps(sealed(record | change)))
    for ended in (call("train.py", TINY, f"--workdir={copy}"), call("eval.py", f"--workdir={copy}")):
        assert_refused(ended, line)


def test_a_run_that_was_moved_goes_on_and_is_scored(undisturbed, copy, tmp_path):
    """Nothing that is read says where the folder lies."""
    moved = tmp_path / "elsewhere" / "the same run"
    shutil.rmtree(copy / "checkpoints" / "12")
    moved.parent.mkdir()
    copy.rename(moved)
    ended = call("train.py", TINY, f"--workdir={moved}")
    assert (ended.code, ended.err) == (0, "")
    assert "going on from step 8" in ended.out
    assert differ_runs(undisturbed, moved) == []
    assert call("eval.py", f"--workdir={moved}").code == 0
    assert not copy.exists()
    # Where a step was saved is a note of orbax, which reads no more than that it is there.
    files = [path for path in moved.rglob("*") if path.is_file() and path.name != "commit_success.txt"]
    contents = {path: path.read_bytes() for path in files}
    for place in (undisturbed, copy, moved):
        assert [path for path, content in contents.items() if str(place).encode() in content] == []


def test_home_is_found_behind_an_equals_sign(copy, monkeypatch):
    monkeypatch.setenv("HOME", str(copy.parent))
    assert call("eval.py", f"--workdir=~/{copy.name}").code == 0


def test_other_data_than_the_run_began_with_are_refused(copy):
    record = read_sealed(copy / "config.json")
    (copy / "config.json").write_text(json.dumps(sealed(record | {"data_sha256": "0" * 64})))
    for ended in (call("train.py", TINY, f"--workdir={copy}"), call("eval.py", f"--workdir={copy}")):
        assert_refused(ended, f"was begun on other data (sha256 {'0' * 16} there, {record['data_sha256'][:16]} here)")


def test_a_reader_that_has_enough_ends_a_command_in_silence():
    """As in `command | head -1`."""
    code = "import sys; from training import cli; sys.exit(cli.guarded(lambda _: [print(i) for i in range(10**5)], []))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.readline()
        command.stdout.close()
        assert command.stderr.read() == b""
    assert command.returncode == 0
