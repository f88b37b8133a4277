"""The table of the probes: what is computed again, what is said of a result, and one cell from end to end."""

import json
from pathlib import Path

import pytest
from commands import assert_refused, call

from configs import probes
from scripts import probe_report, probe_table
from scripts.probe_report import LIMIT, NO, THEORY, YES, measured, report, theory
from scripts.probe_table import Cell, rates_of
from training.config import to_plain
from training.errors import ConfigError, NonFiniteError
from training.workdir import RESULTS

BINS = ["1-40", "41-80", "81-120", "121-160"]


def cell(task="s3", layer="mru_ldu"):
    return Cell(task, layer, Path("runs"), Path("data"))


def record(task="s3", layer="mru_ldu", val=(1.0, 0.5, 0.4), bins=((1.0,) * 4, (0.5,) * 4, (0.4,) * 4), rate=3e-3):
    seeds = {str(i): {"val": v, "bins": list(b), "alive": True} for i, (v, b) in enumerate(zip(val, bins, strict=True))}
    config = to_plain(cell(task, layer).config(rate))
    return {
        "task": task,
        "layer": layer,
        "rate": rate,
        "runs": {f"{rate:g}": [[0, 0.2], [1500, 0.61]]},
        "bins": BINS,
        "seeds": seeds,
        "majority": 0.2,
        "config": config,
        "machine": "2 cores",
        "date": "2026-11-29",
    }


def test_theory_names_every_layer_and_only_known_tasks():
    assert THEORY.keys() == probes.LAYERS.keys()
    assert all(set(said) <= set(probes.TASKS) and set(said.values()) <= {YES, NO, LIMIT} for said in THEORY.values())
    assert theory(record(layer="mru_orthogonal_cayley")) == LIMIT
    assert theory(record(task="mod3", layer="mru_orthogonal_cayley")) == YES
    assert theory(record(task="copy")) == ""
    assert theory(record(task="adding")) == YES
    assert theory(record(task="adding", layer="lru")) == LIMIT


def test_the_search_has_one_rate_more_where_theory_does_not_say_no():
    assert rates_of(cell()) == (3e-3, 1e-2, 1e-3)
    assert rates_of(cell(layer="lru")) == rates_of(cell(task="copy")) == rates_of(cell(task="adding")) == (3e-3, 1e-2)


@pytest.mark.parametrize(
    ("val", "bins", "verdict"),
    [
        ((1.0, 0.5), [(1.0, 0.995, 0.99, 0.99), (0.5,) * 4], "**holds**"),
        ((1.0, 0.99), [(1.0, 1.0, 0.98, 1.0), (1.0, 0.9, 1.0, 1.0)], "short"),
        ((0.98, 0.5), [(0.98, 1.0, 1.0, 1.0), (0.5,) * 4], "no"),
    ],
)
def test_the_best_seed_decides(val, bins, verdict):
    assert measured(record(val=val, bins=bins)) == verdict


def test_seeds_that_stopped_are_told():
    stopped = record()
    stopped["seeds"]["2"]["alive"] = False
    assert "| mru_ldu | yes | **holds** | 1/3 (1 stopped) |" in report([stopped])


def test_the_page_has_every_cell_its_curve_and_where_theory_stands():
    holds, fails = record(), record(layer="lru", val=(0.4, 0.5, 0.6), bins=[(0.5,) * 4] * 3)
    page = report([holds, fails, record(task="copy", layer="lru")])
    assert "| mru_ldu | yes | **holds** | 1/3 | 0.003 | 63.3 ± 32.1 | 63.3 ± 32.1 |" in page
    assert "| lru | no | no | 0/3 | 0.003 | 50.0 ± 10.0 |" in page
    assert "- lru: 20.0, 61.0 % at steps 0, 1500 (rates tried: 0.003)" in page
    assert "Agree: can, and holds at every tested length (1): mru_ldu on s3." in page
    assert "Agree: cannot, and did not (1): lru on s3." in page
    assert "## copy" in page
    assert "lru on copy" not in page
    assert "| sums with decay | rotrnn, lru, s5 | 0, 0 of 1 | 1, 1 of 1 | 0, 0 of 0 |" in page
    assert "| mru_ldu, mru_qr_cayley, mru_qr_expm, mru_determinant | 1, 1 of 1 | 0, 0 of 0 | 0, 0 of 0 |" in page


def test_a_record_of_another_config_is_computed_again(monkeypatch):
    kept = record()
    assert probe_table._is_present(cell(), kept)
    del kept["config"]["model"]["options"]["det_eps"]
    kept["config"]["schema"] = 1
    assert probe_table._is_present(cell(), kept), "a default that it did not know changes nothing"
    assert not probe_table._is_present(cell(task="a5"), kept)
    monkeypatch.setattr(probes, "STEPS", 3000)
    assert not probe_table._is_present(cell(), kept)


def test_finished_cells_are_not_trained_and_damage_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(probe_table, "RECORDS", tmp_path / "probes.json")
    monkeypatch.setattr(probe_table, "PAGE", tmp_path / "probes.md")
    monkeypatch.setattr(probe_table, "run_all", lambda work, jobs: iter([record(layer=job.layer) for job in jobs]))
    monkeypatch.setattr(probe_table.prepare_data, "main", lambda _: 0)
    command = ["probe_table", f"--out={tmp_path}", f"--data_dir={tmp_path}", "--tasks=s3"]
    probe_table.main([*command, "--layers=mru_ldu,lru"])
    assert [r["layer"] for r in json.loads((tmp_path / "probes.json").read_text())] == ["lru", "mru_ldu"]
    monkeypatch.setattr(probe_table, "run_all", lambda work, jobs: pytest.fail("trained again") if jobs else iter(()))
    probe_table.main([*command, "--layers=lru"])
    assert "mru_ldu" in (tmp_path / "probes.md").read_text()
    whole = record()
    for broken in ({"task": "s3"}, whole | {"rate": "abc"}, whole | {"seeds": {}}, whole | {"config": {}}, []):
        (tmp_path / "probes.json").write_text(json.dumps([broken]))
        with pytest.raises(ConfigError, match=r"probes\.json is damaged"):
            probe_table.main(command)
    other = whole | {"config": whole["config"] | {"train": whole["config"]["train"] | {"steps": 700}}}
    (tmp_path / "probes.json").write_text(json.dumps([other, record(layer="lru")]))
    capsys.readouterr()
    probe_table.main([*command, "--layers=lru"])
    assert "1 cells in" in capsys.readouterr().out
    assert [r["layer"] for r in json.loads((tmp_path / "probes.json").read_text())] == ["lru"]
    with pytest.raises(SystemExit):
        probe_table.main([*command, "--layers=gru"])
    assert "unknown 'gru'" in capsys.readouterr().err


def test_a_cell_tries_rates_until_a_seed_solves_it(tmp_path, monkeypatch):
    """Also when a run ends because no seed is finite; the rate with most solved seeds is kept."""
    found, trained = {3e-3: (0.5, 0.6), 1e-2: (0.995, 0.2)}, []

    def train(config, folder, data_dir, to_stop):
        trained.append(config.optim.lr)
        folder.mkdir()
        (folder / "metrics.jsonl").write_text('{"step": 0, "seed": 0, "split": "val", "accuracy": 0.25}\n')
        raise NonFiniteError("no seed is left")

    def score(folder, data_dir, split, which, reading):
        seeds = {
            str(i): {"accuracy": value, "accuracy_by_step": [None] * 39 + [value] * 121, "alive": False}
            for i, value in enumerate(found[trained[-1]])
        }
        mean = sum(found[trained[-1]]) / 2
        known = json.loads((folder / RESULTS).read_text()) if (folder / RESULTS).exists() else []
        new = {"split": split, "checkpoint": which, "step_rescale": 1.0, "seeds": seeds, "mean": mean}
        new |= {"baselines": {"majority": 0.5}}
        (folder / RESULTS).write_text(json.dumps([*known, new]))
        return new

    monkeypatch.setattr("training.loop.train", train)
    monkeypatch.setattr("training.results.score", score)
    for _ in range(2):
        result = probe_table.run_cell(Cell("parity", "mru_identity", tmp_path, tmp_path))
    assert trained == [3e-3, 1e-2]
    assert result["rate"] == 1e-2
    assert result["seeds"]["0"] == {"val": 0.995, "bins": [pytest.approx(0.995)] * 4, "alive": False}
    assert result["runs"] == {"0.003": [(0, 0.25)], "0.01": [(0, 0.25)]}
    assert probe_report.solved(result) == 1


def test_a_cell_from_end_to_end(tmp_path):
    """train.py and eval.py on the smoke form: accuracies stand at the steps that have a label."""
    flags = ["--config=configs/probes.py:task=copy,layer=mru_identity,seeds=0+1,smoke", f"--workdir={tmp_path / 'run'}"]
    ended = call("train.py", *flags)
    assert ended.code == 0, ended.err
    assert call("eval.py", f"--workdir={tmp_path / 'run'}", "--split=test", "--checkpoint=last").code == 0
    (scored,) = json.loads((tmp_path / "run" / RESULTS).read_text())
    assert scored["baselines"].keys() == {"majority"}
    for seed in scored["seeds"].values():
        by_step = seed["accuracy_by_step"]
        assert len(by_step) == 160
        assert by_step[:6] == [None] * 6
        assert all(value is None or 0 <= value <= 1 for value in by_step)
        assert sum(value is not None for value in by_step) > 50
    assert_refused(
        call("train.py", "--config=configs/probes.py:task=s4,smoke"), "task='s4' after the colon: expected one"
    )
