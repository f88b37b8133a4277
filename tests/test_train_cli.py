"""train.py and eval.py from end to end on one small run: what they write, say and refuse."""

import json
import re
import shutil

import numpy as np
import pytest
from commands import TINY, Ended, assert_refused, call, run

from scripts.kill_subjects import differ_runs
from training import describe, workdir
from training.config import SCHEMA
from training.writers import read_metrics

ENERGIES = {
    "state_energy_raw",
    "state_energy",
    "state_energy_median",
    "state_energy_drift",
    "state_energy_t",
    "state_white_t",
    "state_coloured_t",
    "state_gain",
    "state_gain_max",
    "state_align",
    "state_temporal",
}
ALWAYS = {"step", "seed", "split", "loss", "data", "seconds"}
pytestmark = pytest.mark.usefixtures("compiled_once")
STEPS, PROBED, EVALUATED = range(13), (0, 4, 8, 12), (0, 4, 8, 12)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that its tests leave as it is, and how its command ended."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    return folder, run("train.py", TINY, f"--workdir={folder}")


@pytest.fixture
def copy(finished, tmp_path):
    """A copy of that run."""
    return shutil.copytree(finished[0], tmp_path / "run")


def test_one_command_trains_to_the_end(finished):
    folder, ended = finished
    assert ended.code == 0, ended.err
    assert ended.err == ""
    expected = ["checkpoints", "config.json", "cost.json", "lock", "metrics.jsonl", "train.log"]
    assert sorted(path.name for path in folder.iterdir()) == expected
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["12", "8"]
    lines = ended.out.splitlines()
    assert lines[0] == "2,170 parameters; 1 blocks like blocks/0"
    assert any(line.split()[0] == "blocks/0/layer/nu_log" and line.endswith(" ssm") for line in lines)
    assert any(line.startswith("step 12/12  loss ") for line in lines)
    (validation,) = [line for line in lines if line.startswith("step 12: validation accuracy ")]
    assert re.search(r"95 % interval of one test on 64 records \d+\.\d to \d+\.\d %\); guessing: majority", validation)
    log = (folder / "train.log").read_text()
    assert all(line in log for line in lines)


def test_config_json_says_what_made_the_numbers(finished):
    record = json.loads((finished[0] / "config.json").read_text())
    assert record.keys() == {
        *("schema", "config", "data_sha256", "probe_times", "versions", "git_commit", "devices", "platform", "cores"),
        *("sha256", "parameters", "state_size", "steps_per_record"),  # in numbers: test_training_cost.py
    }
    config, _ = workdir.read_config(finished[0])
    assert config.seeds == (0, 1)
    assert record["schema"] == config.schema
    assert record["probe_times"][0] == 1
    assert record["probe_times"][-1] == 96
    assert record["versions"].keys() >= {"jax", "flax", "numpy", "python"}


def test_metrics_have_a_row_for_each_step_seed_and_split(finished):
    rows = read_metrics(finished[0] / "metrics.jsonl")
    by_split = {split: [(r["step"], r["seed"]) for r in rows if r["split"] == split] for split in ("train", "val")}
    assert by_split == {
        "train": [(step, seed) for step in STEPS for seed in (0, 1)],
        "val": [(step, seed) for step in EVALUATED for seed in (0, 1)],
    }
    assert [row["step"] for row in rows] == sorted(row["step"] for row in rows)
    assert all(row["data"] == "smoke" for row in rows)


def test_the_fields_of_a_row(finished):
    times = json.loads((finished[0] / "config.json").read_text())["probe_times"]
    for row in read_metrics(finished[0] / "metrics.jsonl"):
        step, nonfinite = row["step"], {"nonfinite"} & row.keys()
        if row["split"] == "val":
            assert row.keys() == ALWAYS | {"accuracy"}
            assert 0 <= row["accuracy"] <= 1
            continue
        measured = {"accuracy", "grad_norm", "lr"} if step else set()
        assert row.keys() - nonfinite == ALWAYS | measured | (ENERGIES if step in PROBED else set())
        # A time that no sequence of the probe reaches has no energy; all else is finite.
        assert row.get("nonfinite", []) in ([], ["state_energy_t"])
        if step == 0:
            assert row["loss"] is None
            assert row["state_energy_drift"] == [0.0]
        else:
            assert np.isfinite([row["loss"], row["grad_norm"]]).all()
            assert row["lr"] == pytest.approx({1: 5e-4, 2: 7.5e-4, 3: 1e-3}.get(step, row["lr"]), rel=1e-5)
        if step in PROBED:
            assert all(len(row[name]) == 1 for name in ENERGIES)
            assert len(row["state_energy_t"][0]) == len(times)


def test_the_same_command_says_that_it_is_finished(copy):
    files = [path for path in copy.rglob("*") if path.is_file() and path.name not in ("train.log", "lock")]
    before = {path: path.read_bytes() for path in files}
    ended = call("train.py", TINY, f"--workdir={copy}")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[-1] == f"finished already: 12 steps in {copy}"
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("every", [1, 1000])
def test_the_probe_changes_nothing_but_its_own_rows(finished, tmp_path, every):
    assert call("train.py", TINY, f"--workdir={tmp_path / 'run'}", f"--config.train.probe_every={every}").code == 0
    (line,) = differ_runs(finished[0], tmp_path / "run")
    assert line.startswith("metrics.jsonl differs from line ")
    metrics = [
        [{k: v for k, v in row.items() if k not in ENERGIES | {"seconds", "nonfinite"}} for row in read_metrics(path)]
        for path in (finished[0] / "metrics.jsonl", tmp_path / "run" / "metrics.jsonl")
    ]
    assert metrics[0] == metrics[1]


def test_an_unused_gpu_is_said(monkeypatch, capsys):
    monkeypatch.setattr(describe.shutil, "which", lambda name: f"/usr/bin/{name}")
    describe.warn_unused_gpu()
    assert capsys.readouterr().err.startswith("warning: a GPU is visible but JAX runs on the CPU: make setup ACCEL=")
    monkeypatch.setattr(describe.shutil, "which", lambda name: None)
    describe.warn_unused_gpu()
    assert capsys.readouterr().err == ""


def test_another_number_of_cores_is_said(copy, monkeypatch):
    cores = json.loads((copy / "config.json").read_text())["cores"]
    monkeypatch.setattr(workdir, "cores", lambda: cores + 1)
    ended = call("train.py", TINY, f"--workdir={copy}")
    assert f"warning: begun on {cores} cores, going on with {cores + 1}" in ended.out.splitlines()[0]


def records(folder):
    return json.loads((folder / "results.json").read_text())


def test_eval_scores_best_last_and_a_step(copy):
    rows = [row for row in read_metrics(copy / "metrics.jsonl") if row["split"] == "val"]
    for which in ("best", "last", "8"):
        ended = call("eval.py", f"--workdir={copy}", f"--checkpoint={which}")
        assert ended.code == 0, ended.err
        assert ended.out.startswith("val accuracy ")
        assert "root operator" in ended.out
    best, last, eighth = records(copy)
    assert [(record["split"], record["checkpoint"]) for record in (best, last, eighth)] == [
        ("val", "best"),
        ("val", "last"),
        ("val", "8"),
    ]
    for seed in (0, 1):
        history = {row["step"]: row for row in rows if row["seed"] == seed}
        top = max(row["accuracy"] for row in history.values())
        first = min(step for step, row in history.items() if row["accuracy"] == top)
        found = best["seeds"][str(seed)]
        assert (found["accuracy"], found["best_step"]) == (top, first)
        assert found["loss"] == pytest.approx(history[first]["loss"], rel=1e-6)
        low, high = found["interval"]
        assert 0 <= low < found["accuracy"] < high <= 1
        for record, step in ((last, 12), (eighth, 8)):
            assert record["seeds"][str(seed)]["accuracy"] == history[step]["accuracy"]
            assert record["seeds"][str(seed)]["step"] == step
    accuracies = [found["accuracy"] for found in last["seeds"].values()]
    assert last["mean"] == pytest.approx(np.mean(accuracies))
    assert last["std"] == pytest.approx(np.std(accuracies, ddof=1))
    assert best["baselines"].keys() == {"majority", "root_operator"}
    assert (best["count"], best["data"]) == (64, "smoke")
    assert "repairs" not in best


def test_a_second_evaluation_replaces_the_record(copy):
    for split in ("test", "val", "test"):
        assert call("eval.py", f"--workdir={copy}", f"--split={split}").code == 0
    assert [record["split"] for record in records(copy)] == ["val", "test"]


def test_eval_is_a_command_too(finished, tmp_path):
    folder = shutil.copytree(finished[0], tmp_path / "run")
    ended = run("eval.py", f"--workdir={folder}", "--split=test")
    assert (ended.code, ended.err) == (0, "")
    assert records(folder)[0]["split"] == "test"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--checkpoint=5"], "does not exist; intact: 8, 12"),
        (["--checkpoint=newest"], "--checkpoint=newest: expected best, last or a step"),
        (["--step_rescale=1.5"], "--step_rescale=1.5: layer lru holds inputs for whole steps"),
        (["--step_rescale=nan"], "--step_rescale=nan: expected a finite number"),
        (["--every=0"], "--every=0: expected at least 1"),
        (["--every=2"], "--every=2: listops_24_96 has no samples that could be left out"),
        (["--split=train"], "--split=train: value should be one of <val|test>"),
        (["--workdir=/nowhere"], "/nowhere/config.json: No such file or directory: is /nowhere the folder of a run?"),
        (["--workdir=/dev/null"], "/dev/null/config.json: Not a directory: is /dev/null the folder of a run?"),
    ],
)
def test_eval_refuses(copy, arguments, line):
    ended = call("eval.py", f"--workdir={copy}", *arguments)
    assert_refused(ended, line)
    assert not (copy / "results.json").exists()


def test_eval_without_a_workdir_or_a_checkpoint(copy):
    assert_refused(call("eval.py"), "--workdir is missing")
    shutil.rmtree(copy / "checkpoints")
    assert_refused(call("eval.py", f"--workdir={copy}"), f"{copy} has no checkpoint yet: train it first")


@pytest.mark.parametrize("text", ['[{"split": "val"', '{"split": "val"}', "[1]"])
def test_eval_refuses_damaged_results(copy, text, monkeypatch):
    monkeypatch.setattr("training.results.evaluate", lambda *_: pytest.fail("refused before any work"))
    (copy / "results.json").write_text(text)
    assert_refused(call("eval.py", f"--workdir={copy}"), f"{copy / 'results.json'} is damaged")
    assert (copy / "results.json").read_text() == text


LRA, SMOKE = "--config=configs/lra.py", "--config=configs/lra.py:smoke"
REFUSED = {
    "a cache that is too short": (
        ["--config=configs/probes.py:layer=attention,smoke", "--config.model.options.max_length=100"],
        "config.model.options.max_length=100: inputs of parity have up to 160 steps",
    ),
    "a misspelt key": ([SMOKE, "--config.optim.lrr=3"], "unknown key config.optim.lrr: did you mean 'lr'?"),
    "a misspelt group": ([SMOKE, "--config.optm.lr=3"], "unknown key config.optm: did you mean 'optim'?"),
    "an unknown key": ([SMOKE, "--config.zzz=3"], "unknown key config.zzz: known: "),
    "a key of a value": ([SMOKE, "--config.optim.lr.x=3"], "config.optim.lr has no keys of its own"),
    "an item of a tuple": ([SMOKE, "--config.seeds[0]=3"], "unknown key config.seeds[0]: did you mean 'seeds'?"),
    "after the colon": (["--config=configs/lra.py:lair=x"], "error: unknown key 'lair' after the colon: did you mean"),
    "a value there": (["--config=configs/lra.py:depth=x"], "error: depth='x' after the colon: expected an integer"),
    "text as a rate": ([SMOKE, "--config.optim.lr=fast"], "--config.optim.lr=fast: could not convert string to float"),
    "a fraction of a step": (
        [SMOKE, "--config.train.steps=2.5"],
        "--config.train.steps=2.5: invalid literal for int()",
    ),
    "text as a seed": ([SMOKE, "--config.seeds=a"], "config.seeds[0] must be of type int, got 'a'"),
    "nan as a rate": ([SMOKE, "--config.optim.lr=nan"], "config.optim.lr must be a finite number, got nan"),
    "an unknown layer": ([SMOKE, "--config.model.layer=gru"], "unknown layer 'gru': expected one of rotrnn, lru"),
    "depth 0": (["--config=configs/lra.py:smoke,depth=0"], "width=16 and depth=0 must be at least 1"),
    "odd state per head": ([SMOKE, "--config.model.options.state_size=12"], "must be even"),
    "heads that do not divide": (
        [SMOKE, "--config.model.options.heads=3"],
        "state_size=16 is not divisible by heads=3",
    ),
    "an unknown choice": ([SMOKE, "--config.model.mixing=glu"], "unknown Mixing 'glu': expected one of full_glu"),
    "an unknown data set": (
        [SMOKE, "--config.data.task=listopz"],
        "unknown data set 'listopz', did you mean 'listops'?",
    ),
    "an impossible window": (
        [SMOKE, "--config.data.length_window=(24,)"],
        "data.length_window must be () or (low, high)",
    ),
    "more records than there are": (
        [SMOKE, "--config.train.batch_size=1000"],
        "batch size 1000 with 256 training records",
    ),
    "no data": ([LRA], "/nowhere/listops; run: python -m scripts.prepare_data listops --data_dir="),
    "no such file": (["--config=configs/nope.py:a=1", "--config.x=1"], "--config: there is no file 'configs/nope.py'"),
    "a folder": (["--config", "configs"], "--config: there is no file 'configs'"),
    "no config file": (["--config=Makefile"], "--config=Makefile: invalid syntax"),
    "no get_config": (["--config=configs/layers.py"], "has no attribute 'get_config'"),
    "no config": ([], "--config is missing"),
    "an unknown flag": ([SMOKE, "--wrkdir=x"], "Unknown command line flag 'wrkdir'. Did you mean: workdir"),
    "an argument": ([SMOKE, "more"], "unexpected argument 'more': flags are written --name=value"),
}


@pytest.mark.parametrize(("arguments", "line"), REFUSED.values(), ids=REFUSED)
def test_refused_with_one_line_and_nothing_written(tmp_path, arguments, line):
    flags = [f"--workdir={tmp_path / 'run'}", f"--data_dir={tmp_path / 'nowhere'}"]
    assert_refused(call("train.py", *flags, *arguments), line)
    assert list(tmp_path.iterdir()) == []


def test_a_config_file_with_a_mistake_is_refused(tmp_path):
    (tmp_path / "mine.py").write_text("def get_config():\n    return {'depth': deep}\n")
    ended = call("train.py", f"--config={tmp_path / 'mine.py'}", f"--workdir={tmp_path / 'run'}")
    assert_refused(ended, f"--config={tmp_path / 'mine.py'}: NameError: name 'deep' is not defined")


def test_refused_without_a_workdir():
    assert_refused(call("train.py", SMOKE), "--workdir is missing")


def test_a_damaged_data_folder_is_refused(tmp_path):
    (tmp_path / "data" / "listops").mkdir(parents=True)
    flags = [LRA, f"--workdir={tmp_path / 'run'}", f"--data_dir={tmp_path / 'data'}"]
    assert_refused(call("train.py", *flags), "has no manifest.json")
    (tmp_path / "data" / "listops" / "manifest.json").write_text("{")
    assert_refused(call("train.py", *flags), "manifest.json is damaged")
    (tmp_path / "file").touch()
    assert_refused(
        call("train.py", LRA, f"--workdir={tmp_path / 'run'}", f"--data_dir={tmp_path / 'file'}"), "no data in"
    )
    assert not (tmp_path / "run").exists()


def test_a_data_folder_that_may_not_be_read_is_refused(tmp_path, monkeypatch):
    def denied(*_):
        raise PermissionError(13, "Permission denied", "/data/listops")

    monkeypatch.setattr("data.prepared.read_manifest", denied)
    ended = call("train.py", LRA, f"--workdir={tmp_path / 'run'}")
    assert ended == Ended(2, "", "error: /data/listops: Permission denied\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("size", "eval_size", "line"), [(8, 9, "train.batch_size=8"), (9, 16, "train.eval_batch_size=16")]
)
def test_a_batch_that_does_not_divide_is_refused(tmp_path, monkeypatch, size, eval_size, line):
    monkeypatch.setattr("jax.devices", lambda: [None] * 3)
    monkeypatch.setattr("jax.make_mesh", lambda *_, **__: None)
    sizes = [f"--config.train.batch_size={size}", f"--config.train.eval_batch_size={eval_size}"]
    ended = call("train.py", SMOKE, f"--workdir={tmp_path / 'run'}", *sizes)
    assert_refused(ended, f"{line} does not divide among 3 devices: choose a multiple of 3")
    assert list(tmp_path.iterdir()) == []


def test_a_workdir_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        assert_refused(call("train.py", TINY, f"--workdir={folder}"), f"cannot write to workdir {folder}: ")
    assert (tmp_path / "file").read_text() == "mine"

    def read_only(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(workdir, "write_sealed", read_only)
    folder = tmp_path / "run"
    assert_refused(
        call("train.py", TINY, f"--workdir={folder}"), f"cannot write to workdir {folder}: Read-only file system"
    )


def test_a_run_that_may_not_be_written_to_is_refused(copy, monkeypatch):
    monkeypatch.setattr(workdir.os, "access", lambda *_: False)
    assert_refused(call("train.py", TINY, f"--workdir={copy}"), f"cannot write to workdir {copy}: Permission denied")


def test_a_workdir_of_another_config_is_refused_with_the_keys(copy):
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    ended = call("train.py", TINY, f"--workdir={copy}", "--config.optim.lr=0.5", "--config.train.steps=13")
    assert_refused(
        ended, "of another config: optim.lr (0.001 there, 0.5 here); train.steps (12 there, 13 here); choose"
    )
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
    # What is done about a seed gone bad may be decided later.
    assert call("train.py", TINY, f"--workdir={copy}", "--config.on_nonfinite=continue").code == 0


def test_a_workdir_without_its_config_is_refused(copy):
    (copy / "config.json").write_text(json.dumps({"schema": SCHEMA, "config": 3}))
    assert_refused(
        call("train.py", TINY, f"--workdir={copy}"), f"{copy / 'config.json'}: config must be a group of keys, got 3"
    )
    (copy / "config.json").write_text('{"config"')
    assert_refused(call("train.py", TINY, f"--workdir={copy}"), "config.json is damaged (JSONDecodeError")
    (copy / "config.json").unlink()
    assert_refused(call("train.py", TINY, f"--workdir={copy}"), f"{copy} holds a run but no config.json")


def test_print_shows_what_would_be_run(tmp_path):
    ended = call("train.py", LRA + ":layer=lru", "--print", f"--data_dir={tmp_path}")
    assert (ended.code, ended.err) == (0, "")
    lines = [line.strip() for line in ended.out.splitlines()]
    assert "optim.groups = 'standard'" in lines
    assert "model.options.state_size = 256" in lines
    assert any(line.split()[0] == "blocks/0/layer/nu_log" and line.endswith(" ssm") for line in lines)
    assert "carried state: 512 real numbers a layer and direction" in lines
    (parameters,) = [line for line in lines if re.match(r"parameters .* MB$", line)]
    (optimiser,) = [line for line in lines if line.startswith("optimiser ")]
    assert float(optimiser.split()[-2]) == pytest.approx(2 * float(parameters.split()[-2]), abs=0.2)
    assert any(line.startswith("data: listops: not ready: no data in ") for line in lines)
    assert lines[-1] == "published: 60.2 (0.8) %, LRU (arXiv 2303.06349)"
    assert "(smoke: made in memory)" in call("train.py", SMOKE, "--print", f"--workdir={tmp_path / 'run'}").out
    assert list(tmp_path.iterdir()) == []


def test_help_shows_the_flags():
    for script, flag in (("train.py", "--workdir"), ("eval.py", "--checkpoint")):
        ended = run(script, "--help")
        assert (ended.code, ended.err) == (0, "")
        assert flag in ended.out
