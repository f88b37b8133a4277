"""No file of a run is read as something that was not written: damage is said, with the file, or changes nothing."""

import json
import random
import shutil

import pytest
from commands import TINY, assert_refused, call

from scripts.cells import is_trained
from scripts.report.runs import read_runs
from training import workdir
from training.cost import recorded_peak
from training.errors import ConfigError
from training.results import read_results

FILES = ("config.json", "metrics.jsonl", "results.json", "cost.json")
pytestmark = pytest.mark.usefixtures("compiled_once")


@pytest.fixture(scope="module")
def scored(undisturbed, tmp_path_factory):
    """A run that was trained and scored; its tests leave it as it is."""
    folder = shutil.copytree(undisturbed, tmp_path_factory.mktemp("scored") / "run")
    assert call("eval.py", f"--workdir={folder}").code == 0
    return folder


@pytest.fixture
def copy(scored, tmp_path):
    """A copy of that run, always in the same place."""
    return shutil.copytree(scored, tmp_path / "run")


def as_reported(folder):
    """What a report makes of the folder, or why it is left out, wholly or in part."""
    try:
        (run,), left_out = read_runs([folder])
    except ConfigError as error:
        return str(error)
    if left_out:
        return " ".join(left_out)
    rows = [
        known(row, ("step", "seed", "split", "loss", "accuracy", "seconds")) for row in (*run.training, *run.validation)
    ]
    results = [known(record, ("split", "seeds", "mean", "count", "data_sha256")) for record in run.results]
    return repr((run.config, known(run.facts, workdir.KINDS), rows, results, known(run.cost, ("peak_memory_bytes",))))


def known(record, names):
    """Some entries of a record: where the name of its hash was hit, it has one more."""
    return {name: record.get(name) for name in names}


def as_scored(folder):
    """What training and scoring read of it, or the line that they refuse it with."""
    try:
        config, record = workdir.read_config(folder)
        results = [known(record, ("split", "seeds", "mean")) for record in read_results(folder / "results.json")]
        return repr((config, known(record, workdir.KINDS), results, recorded_peak(folder)))
    except ConfigError as error:
        return str(error)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("read", [as_reported, as_scored])
def test_a_flipped_bit_is_seen_or_changes_nothing(copy, name, read):
    rng, intact, path = random.Random(name), read(copy), copy / name
    content, seen = path.read_bytes(), 0
    for _ in range(20):
        damaged = bytearray(content)
        damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        found = read(copy)
        seen += found != intact
        assert found == intact or name in found
    assert seen >= (0 if read is as_scored and name == "metrics.jsonl" else 15)


@pytest.mark.parametrize("name", FILES)
def test_a_cut_file_is_seen(copy, name):
    path, intact = copy / name, as_reported(copy)
    content = path.read_bytes()
    for end in (1, len(content) // 3, len(content) // 2, len(content) - 3):
        path.write_bytes(content[:end])
        assert name in as_reported(copy)
    path.write_bytes(content)
    assert as_reported(copy) == intact


def test_lost_rows_are_said_by_whoever_reads_them(copy):
    """Whole lines are gone, and those that are left are intact: only the checkpoint knows how many there were."""
    lines = (copy / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_bytes(b"".join(lines[:3] + lines[5:]))
    line = f"metrics.jsonl: {len(lines) - 2} of {len(lines)} rows are left; nothing can bring the others back"
    assert as_reported(copy) == f"{copy}: {line}"
    ended = call("eval.py", f"--workdir={copy}", "--checkpoint=last")
    assert (ended.code, ended.err) == (0, f"warning: {line}\n")
    record = next(r for r in read_results(copy / "results.json") if r["checkpoint"] == "last")
    assert record["repairs"] == [line]
    assert f"repaired: {line}" in call("train.py", TINY, f"--workdir={copy}").out


def test_a_run_of_other_versions_goes_on_and_says_so(copy):
    """As after an update of a library, or from an accelerator to a CPU."""
    path = copy / "config.json"
    record = workdir.read_config(copy)[1]
    versions = record["versions"] | {"jax": "0.9.0"}
    path.write_text(json.dumps({**record, "versions": versions, "platform": "gpu", "schema": 1}))
    shutil.rmtree(copy / "checkpoints" / "12")
    differences = [("jax 0.9.0", record["versions"]["jax"]), ("schema 1", "3"), ("platform gpu", record["platform"])]
    ended = call("train.py", TINY, f"--workdir={copy}")
    assert ended.code == 0
    lines = [f"begun with {there}, going on with {here}" for there, here in differences]
    assert [line for line in ended.out.splitlines() if line.startswith("warning: ")] == [f"warning: {x}" for x in lines]
    lines += [f"trained with {there}, scored with {here}" for there, here in differences]
    ended = call("eval.py", f"--workdir={copy}")
    assert (ended.code, ended.err) == (0, "".join(f"warning: {line}\n" for line in lines))
    (found,) = read_results(copy / "results.json")
    assert found["repairs"] == lines


def test_a_record_says_what_is_needed_to_distrust_it(scored):
    (record,) = read_results(scored / "results.json")
    _, run = workdir.read_config(scored)
    assert record["trained"] == {
        key: run[key] for key in ("versions", "schema", "git_commit", "devices", "platform", "cores")
    }
    assert record["scored"] == record["trained"]
    assert "repairs" not in record
    assert len(record["config_sha256"]) == len(record["data_sha256"]) == 64
    assert (record["padding"], record["policy"]) == ("full", "best validation accuracy")
    assert record["manifest_sha256"] == ""  # a sample made in memory has none


def newest(folder):
    """Its newest checkpoint."""
    return max((folder / "checkpoints").glob("[0-9]*"), key=lambda path: int(path.name))


@pytest.mark.parametrize("whole", [False, True])
def test_checkpoints_that_were_taken_away_are_said_and_recorded(copy, whole):
    """All, or their hashes: the run begins again, as it would if it had not come so far."""
    for folder in (copy / "checkpoints").glob("[0-9]*"):
        shutil.rmtree(folder) if whole else (folder / "sha256.json").unlink()
    line = "checkpoint 4 is gone, and metrics.jsonl goes on to step 12: going on from step 0"
    ended = call("train.py", TINY, f"--workdir={copy}")
    assert ended.code == 0
    assert f"repaired: {line}" in ended.out
    ended = call("eval.py", f"--workdir={copy}", "--checkpoint=last")
    assert (ended.code, ended.err) == (0, f"warning: {line}\n")


def test_a_score_of_what_is_left_says_so(copy):
    shutil.rmtree(copy / "checkpoints" / "12")
    with (copy / "metrics.jsonl").open("ab") as file:  # as if the run had been longer
        file.write(json.dumps({"step": 13, "seed": 0, "split": "train", "loss": 2.0}).encode() + b"\n")
    line = "checkpoint 12 is gone, and metrics.jsonl goes on to step 13: going on from step 8"
    ended = call("eval.py", f"--workdir={copy}", "--checkpoint=last")
    assert (ended.code, ended.err) == (0, f"warning: {line}\n")
    assert line in next(r for r in read_results(copy / "results.json") if r["checkpoint"] == "last")["repairs"]


def test_a_run_whose_last_checkpoint_is_damaged_is_not_over(copy):
    config, _ = workdir.read_config(copy)
    (copy / "results.json").unlink()
    assert is_trained(config, copy)
    victim = max(newest(copy).rglob("*"), key=lambda path: path.stat().st_size * path.is_file())
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    assert not is_trained(config, copy)


def test_results_without_a_config_are_those_of_another_run(copy, tmp_path):
    left = tmp_path / "left"
    left.mkdir()
    shutil.copy(copy / "results.json", left)
    assert_refused(call("train.py", TINY, f"--workdir={left}"), f"{left} holds a run but no config.json")


def test_a_peak_that_is_no_number_is_damage(copy):
    (copy / "cost.json").write_text('{"peak_memory_bytes": 1e999}')
    with pytest.raises(ConfigError, match=r"cost.json is damaged"):
        recorded_peak(copy)


@pytest.mark.parametrize("command", [("train.py", TINY), ("eval.py",)])
def test_a_home_that_nobody_has_is_one_line(command):
    assert_refused(call(*command, "--workdir=~nobodyx/run"), "'~nobodyx/run' is no path")
