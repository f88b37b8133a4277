"""Whatever is on a command line or in the folder of a run, its parser gives values or one line of a ConfigError."""

import json
import math

import numpy as np
import pytest
from commands import ROOT
from fuzzing import bytes_like, fuzzed, json_like, refusing, text_like
from hypothesis import example, given
from hypothesis import strategies as st
from intact_files import LINES, ROWS
from tiny import tiny_config

from data import strict_json
from data.errors import DataError
from data.sealed import sealed
from scripts import sweep_plan
from scripts.watch import Runs
from training import checkpoint, nonfinite
from training.checkpoint import MANIFEST, META
from training.config import from_config_dict, to_plain
from training.errors import ConfigError
from training.language import smoothness
from training.results import find_record, read_results
from training.workdir import CONFIG, METRICS, RESULTS, read_config
from training.writers import Follower, MetricsLog, damage, read_metrics

pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")  # how ml_collections loads configs

DEEP = b"[" * 2_000
HUGE = 10**400


@pytest.fixture(autouse=True, scope="module")
def from_the_root():
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        yield


# Command lines.

CONFIGS = (
    "configs/lra.py:task=listops,layer=rotrnn,seeds=0:3,depth=2,smoke",
    "configs/lra.py:task=text,layer=mru,preset=published,real_state_size=64,direction=forward",
    "configs/language.py:task=shakespeare_char,layer=attention,depth=2,smoke",
    "configs/probes.py:task=copying,layer=lru,lr=0.01",
)
OVERRIDES = (
    ("config.optim.lr", "0.001"),
    ("config.seeds", "(0,1)"),
    ("config.data.length_window", "(24,96)"),
    ("config.model.layer", "lru"),
    ("config.model.depth", "3"),
    ("config.data.smoke", "true"),
    ("config.published", "x"),
    ("config.model.options.heads", "4"),
)


@given(text_like(*CONFIGS), st.sampled_from(OVERRIDES), text_like("(0,1)", "0.001", "true"))
@example(CONFIGS[0].replace("0:3", "0:50000000"), OVERRIDES[0], "0.1")  # a tuple of as many numbers
@example(CONFIGS[2].replace("depth=2", "depth=50000000"), OVERRIDES[0], "0.1")  # a list of as many layers
@example(CONFIGS[0], OVERRIDES[0], "9" * 400)  # OverflowError
@example(CONFIGS[0], OVERRIDES[4], "9" * 30)
@example(CONFIGS[0], OVERRIDES[1], "(" * 500)
@example(CONFIGS[0] + ",x\ny=1", OVERRIDES[6], "a\nb")
@fuzzed
def test_configs_and_overrides(config, override, value):
    with refusing(ConfigError, DataError):
        (cell,) = sweep_plan.resolve(config.replace("\0", ""), None, [{override[0]: value}])
        assert "/" not in cell.name
        assert len(cell.name.encode()) <= sweep_plan.LONGEST_NAME
        cell.config.data.request  # noqa: B018  it is checked when it is asked for


@given(text_like("a=1,2; config.b.c=(1,2),(3,4)", "layer=lru; depth=1,2"))
@example("; ".join(f"k{i}=1,2" for i in range(60)))  # 2^60 cells
@example("a=" + "," * 50_000)  # quadratic
@example("a=(1,(2,3)),4")
@example("a=((1)")
@fuzzed
def test_grids(text):
    with refusing(ConfigError):
        assert 1 <= len(sweep_plan.parse_grid(text)) <= sweep_plan.MOST


def test_brackets_within_brackets_are_one_value():
    assert sweep_plan.parse_grid("a=(1,(2,3)),4") == [{"a": "(1,(2,3))"}, {"a": "4"}]


@given(text_like("a=0:0.3; b=log:1e-4:1e-2; c=2:6"), st.sampled_from([1, 3, 10**12]))
@example(f"a=-{'9' * 308}:{'9' * 308}", 3)  # further apart than a float says
@example("a=log:1e-300:1e300", 3)
@fuzzed
def test_random_ranges(text, trials):
    with refusing(ConfigError):
        for values in sweep_plan.draw(text, trials, seed=0):
            assert all(math.isfinite(float(value)) for value in values.values())


@given(bytes_like(b"layer=lru; depth=1,2  # two\n\n# none\nlayer=mru\n"))
@fuzzed
def test_lists_of_cells(tmp_path, content):
    (tmp_path / "cells.txt").write_bytes(content)
    with refusing(ConfigError):
        sweep_plan.read_list(tmp_path / "cells.txt")


# Files of a run.

PLAIN = to_plain(tiny_config("lru"))
RECORD = {
    "schema": 2,
    "config": PLAIN,
    "cores": 2,
    "data_sha256": "0" * 64,
    "devices": ["cpu:0"],
    "versions": {"jax": "1"},
    "git_commit": None,
    "platform": "cpu",
}


def with_value(path, value):
    """The record with another value in its config, at a dotted key."""
    found = json.loads(json.dumps(RECORD))
    *groups, name = path.split(".")
    group = found["config"]
    for key in groups:
        group = group[key]
    group[name] = value
    return json.dumps(found).encode()


@given(json_like(RECORD))
@example(DEEP)  # RecursionError
@example(with_value("optim.lr", HUGE))  # OverflowError
@example(with_value("train.steps", 10**30))
@example(with_value("model.options.a\nb", 1))
@example(with_value("model.options.state_size", 0))
@fuzzed
def test_config_json(tmp_path, content):
    (tmp_path / CONFIG).write_bytes(content)
    with refusing(ConfigError):
        config, _ = read_config(tmp_path)
        assert from_config_dict(strict_json.parse(json.dumps(to_plain(config)))) == config


def line(**changes):
    return json.dumps(ROWS[1] | changes).encode() + b"\n"


@given(st.one_of(bytes_like(LINES), json_like(*ROWS).map(lambda row: LINES + row + b"\n")))
@example(LINES + DEEP + b"\n")
@example(line(nonfinite=3))  # `in` of a number
@example(line(loss=HUGE))
@example(line(step=HUGE))
@example(line(state_energy=3, loss="x"))
@example(line(loss=None))
@fuzzed
def test_metrics_jsonl(tmp_path, content):
    path = tmp_path / METRICS
    path.write_bytes(content)
    (tmp_path / CONFIG).write_text(json.dumps(RECORD))
    with refusing():
        rows = read_metrics(path)
        assert all(line.isprintable() for line in damage(path))
        if not content or content.endswith(b"\n"):  # the last line is not followed before it is complete
            followed = [row for _, found in Follower(path).batches() for row in found]
            assert repr(followed) == repr(rows)
        smoothness(rows, 0, 2, alive=True)
        assert all("\n" not in line for line in Runs([tmp_path]).table(0.0))
        with MetricsLog(path, 1) as log:
            assert all(line.isprintable() for line in log.repairs)
        assert [row["step"] for row in read_metrics(path)] == [row["step"] for row in rows if row["step"] <= 1]


@given(json_like(RECORD))
@fuzzed
def test_a_run_that_is_watched(tmp_path, content):
    (tmp_path / CONFIG).write_bytes(content)
    (tmp_path / METRICS).write_bytes(LINES)
    with refusing():
        assert all("\n" not in line for line in Runs([tmp_path]).table(0.0))


SCORES = {"split": "val", "checkpoint": "best", "seeds": {"0": {"accuracy": 0.5, "loss": 1.0}}, "step_rescale": 1.0}


@given(json_like([SCORES, SCORES | {"split": "test"}]))
@example(DEEP)
@example(b"{}")  # was taken for no records, and replaced
@example(b'""')
@fuzzed
def test_results_json(tmp_path, content):
    (tmp_path / RESULTS).write_bytes(content)
    with refusing(ConfigError):
        records = read_results(tmp_path / RESULTS)
        assert records or strict_json.parse(content) == []
        find_record(records, "val", "best")


PLAN = [{"name": "a", "flags": ["--config=x"], "config": PLAIN}]


@given(json_like(PLAN))
@example(DEEP)
@example(json.dumps([PLAN[0] | {"name": []}]).encode())
@fuzzed
def test_plans(tmp_path, content):
    (tmp_path / sweep_plan.PLAN).write_bytes(content)
    with refusing(ConfigError):
        sweep_plan.keep(tmp_path, [sweep_plan.Cell("a", ("--config=x",), tiny_config("lru"))])


INCIDENT = {
    "seed": 0,
    "step": 3,
    "tensor": "the gradient of head/bias",
    "block": 1,
    "records": [*range(tiny_config("lru").train.batch_size)],
    "layers": {"encoder": {"parameters": 1.0}, "blocks/0": {"parameters": None, "state_energy": 0.5}},
}


def sealed_again(content):
    """As by whoever altered it."""
    try:
        return json.dumps(sealed(json.loads(content))).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return content


@given(json_like(INCIDENT, sealed(INCIDENT)), st.booleans())
@example(DEEP, False)
@example(json.dumps(INCIDENT | {"step": HUGE}).encode(), True)
@example(json.dumps(INCIDENT | {"records": ["x"] * 8}).encode(), True)
@example(json.dumps(INCIDENT | {"tensor": "a\nb"}).encode(), True)
@fuzzed
def test_steps_that_were_not_finite(tmp_path, content, again):
    (tmp_path / nonfinite.FOLDER).mkdir(exist_ok=True)
    (tmp_path / nonfinite.FOLDER / "seed-0-step-3.json").write_bytes(sealed_again(content) if again else content)
    with refusing(ConfigError):
        (incident,) = nonfinite.read(tmp_path, tiny_config("lru"))
        assert incident.line.isprintable()
        nonfinite.refuse_unknown_records(tmp_path, incident, 8)
        assert {*incident.records} <= {*range(8)}


# Checkpoints.


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with one checkpoint, and the contents of its JSON files."""
    folder = tmp_path_factory.mktemp("saved")
    checkpoint.save(folder, 3, {"w": np.arange(3.0, dtype=np.float32)}, {"repairs": []})
    return folder, {name: (folder / "3" / name).read_bytes() for name in (MANIFEST, META)}


def _restored(folder, written):
    for name, content in written.items():
        (folder / "3" / name).write_bytes(content)
    with refusing(ConfigError):
        restored = checkpoint.restore(folder, None, read_only=True)
        assert restored is not None
        assert restored.tree["w"].tolist() == [0, 1, 2]


HASHES = {META: "0" * 64, "state/_METADATA": "0" * 64}


@given(json_like(HASHES))
@example(DEEP)
@example(b"{}\n")  # no file is looked at
@example(json.dumps({"../../x": "0" * 64}).encode())
@fuzzed
def test_hashes_of_a_checkpoint(saved, content):
    _restored(saved[0], saved[1] | {MANIFEST: content})


@given(json_like({"meta": {"repairs": []}, "leaves": {"w": ["float32", [3]]}}))
@example(DEEP)
@example(json.dumps({"meta": {}, "leaves": {"w": ["float32", [2**40, 2**40]]}}).encode())
@example(json.dumps({"meta": {}, "leaves": {"w": ["float32", [2**40]], "v": ["int8", [1]]}}).encode())
@example(json.dumps({"meta": {}, "leaves": {"w": ["\0", [3]]}}).encode())  # what NumPy takes for bool
@example(json.dumps({"meta": {}, "leaves": {"w": ["bool", [3]]}}).encode())
@fuzzed
def test_meta_of_a_checkpoint(saved, content):
    """Hashed again by whoever altered it."""
    folder, written = saved
    (folder / "3" / META).write_bytes(content)
    hashes = strict_json.parse(written[MANIFEST]) | {META: checkpoint._sha256(folder / "3" / META)}
    _restored(folder, {META: content, MANIFEST: checkpoint._manifest_bytes(hashes)})
