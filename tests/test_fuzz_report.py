"""Whatever the files of runs hold, the report is made of the runs that can be read, and the others are named."""

import csv
import io
import json

import pytest
from fuzzing import fuzzed, json_like, refusing
from hypothesis import example, given
from hypothesis import strategies as st
from report_runs import write_run

from scripts.report import benchmarks, charts, stability, studies
from scripts.report.runs import read_runs
from scripts.report.settings import settings_of

FILES = ("config.json", "results.json", "cost.json", "metrics.jsonl")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs, and the JSON of the files of the second."""
    out = tmp_path_factory.mktemp("runs")
    write_run(out / "a", "task=listops,layer=rotrnn", {0: 0.6, 1: 0.5}, energies=2)
    write_run(out / "b", "task=listops,layer=lru", {0: 0.4, 1: 0.3}, energies=2)
    return out, {name: (out / "b" / name).read_bytes() for name in FILES}


def report_of(out):
    """Everything but the pictures."""
    found, left_out = read_runs([out])
    settings, twice, _ = settings_of(found)
    tables = [
        *benchmarks.tables(settings),
        stability.table(settings),
        studies.ablations(settings),
        studies.costs(settings),
    ]
    for table in filter(None, tables):
        assert table.markdown()
        assert table.tex()
        assert table.html()
        assert len({len(row) for row in csv.reader(io.StringIO(table.csv()))}) == 1
    assert stability.over_training_csv(settings)
    assert stability.over_time_csv(settings)
    assert charts.all_figures(settings)
    return [*left_out, *twice, *studies.missing(settings)]


def _contents(name):
    """Of a file of a run, altered; of rows the first one."""
    return st.just(name).flatmap(lambda name: json_like(*VALUES[name]).map(lambda content: (name, content)))


def _values():
    """What the files of the fixture hold: hypothesis needs it before there are fixtures."""
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        run = write_run(Path(folder) / "b", "task=listops,layer=lru", {0: 0.4, 1: 0.3}, energies=2)
        contents = {name: (run / name).read_text().splitlines() for name in FILES}
    return {name: [json.loads(line) for line in lines[:2]] for name, lines in contents.items()}


VALUES = _values()


def config_with(**changes):
    found = VALUES["config.json"][0]
    return "config.json", json.dumps(found | {"config": found["config"] | changes}).encode()


@given(st.sampled_from(FILES).flatmap(_contents))
@example(config_with(seeds=[0, 2**53 - 1]))  # a list of as many numbers
@example(
    config_with(model=VALUES["config.json"][0]["config"]["model"] | {"layer": "unknown"})
)  # ValueError of a family
@example(("config.json", b"[" * 2_000))
@example(("results.json", b'[{"split": "test", "checkpoint": "best", "count": 9, "seeds": {"0": {"accuracy": 7}}}]'))
@example(("results.json", b'{"split": 1}'))
@example(("metrics.jsonl", json.dumps(VALUES["metrics.jsonl"][0] | {"state_energy_t": [[1.0]]}).encode()))
@example(("metrics.jsonl", json.dumps(VALUES["metrics.jsonl"][0] | {"state_energy": [[1.0]]}).encode()))
@example(("cost.json", b'{"peak_memory_bytes": "x"}'))
@fuzzed
def test_one_altered_run(runs, found):
    out, intact = runs
    name, content = found
    for file, written in intact.items():
        (out / "b" / file).write_bytes(written)
    (out / "b" / name).write_bytes(content + b"\n" + intact[name] if name == "metrics.jsonl" else content)
    with refusing():
        report_of(out)
