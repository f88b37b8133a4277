"""The demo's bookkeeping, figure and tables, on run folders written by hand."""

import json
import math
import shutil

import pytest

from configs import demo
from scripts import demo as script
from scripts import demo_summary, figures
from training import workdir
from training.config import from_config_dict
from training.errors import ConfigError
from training.writers import MetricsLog

ENERGY = {"rotrnn": 2.0, "rotrnn_folded": 20.0, "lru": 3.0}


def write_run(folder, cell):
    """A finished run: seed s and block b have energy ENERGY * 2^(s + b) at the end, gain half of it."""
    values = demo.values_of(cell)
    blocks = range(values["depth"])
    folder.mkdir(parents=True)
    with MetricsLog(folder / "metrics.jsonl", None) as log:
        for step in (0, demo.STEPS // 2, demo.STEPS):
            for seed in demo.SEEDS:
                energy = [1.0 if step == 0 else ENERGY[values["layer"]] * 2.0 ** (seed + block) for block in blocks]
                gain = [e / 2 for e in energy]
                factors = {"state_gain": gain, "state_gain_max": [3 * g for g in gain], "state_energy_median": energy}
                more = {"state_align": [4.0 for _ in blocks], "state_temporal": [0.5 for _ in blocks]}
                log.write({"step": step, "seed": seed, "split": "train", "state_energy": energy, **factors, **more})
                log.write({"step": step, "seed": seed, "split": "val", "accuracy": 0.1 + step / 2000, "loss": 2.0})
    seeds = {
        str(seed): {"accuracy": 0.3 + 0.01 * seed, "interval": [0.28, 0.34], "step": demo.STEPS} for seed in demo.SEEDS
    }
    baselines = {
        "val": {"majority": 0.162, "root_operator": 0.345},
        "test": {"majority": 0.164, "root_operator": 0.341},
    }
    records = [
        {"split": split, "checkpoint": "last", "step_rescale": 1.0, "count": 2000, "seeds": seeds, "mean": 0.31}
        | {"std": 0.01, "baselines": guesses}
        for split, guesses in baselines.items()
    ]
    (folder / "results.json").write_text(json.dumps(records))
    (folder / "claimed").mkdir()
    workdir.claim(folder / "claimed", from_config_dict(demo.get_config(cell).to_dict()), {"data_sha256": "0" * 64})
    (folder / "claimed" / "config.json").rename(folder / "config.json")
    (folder / "claimed").rmdir()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    folders = {cell: out / name for cell, name in demo.CELLS.items()}
    for cell, folder in folders.items():
        write_run(folder, cell)
    return out, folders


def test_summary_names_every_run_layer_and_seed(runs):
    out, folders = runs
    printed = demo_summary.summarise(out, folders)
    numbers = json.loads((out / "summary.json").read_text())
    assert len(numbers["cells"]) == 9
    for cell in numbers["cells"]:
        assert {(x["seed"], x["block"]) for x in cell["layers"]} == {
            (s, b) for s in (0, 1, 2) for b in range(cell["depth"])
        }
        first = next(x for x in cell["layers"] if (x["seed"], x["block"]) == (2, 1))
        assert first["energy_end"] == 8 * ENERGY[cell["layer"]]
        assert first["gain_end"] == 4 * ENERGY[cell["layer"]]
    rows = (out / "summary.md").read_text().splitlines()
    assert sum(row.startswith(("| RotRNN", "| LRU")) for row in rows) == 9 + 3 * 3 * (2 + 4 + 2)
    for path in ("state_energy.png", "summary.md", "summary.json"):
        assert str(out / path) in printed
        assert (out / path).stat().st_size > 0


def test_overview_has_geometric_means_scores_intervals_and_baselines(runs):
    out, folders = runs
    overview = demo_summary.summarise(out, folders)
    # Depth 2, seeds 0..2, blocks 0..1: the mean exponent of 2 is 1 + 1/2.
    assert (
        f"| RotRNN | 2 | small | 1.00 | {2 * 2**1.5:.2f} (2.00 to 16.00) | {2**1.5:.3f} (24) | 4.00 | 0.50 |"
        in overview
    )
    assert "| 10.0, 30.0 | 31.0 ± 1.0 (test set ± 3.0) |" in overview
    assert "2,000 val expressions: majority class 16.2 %, from the root operator alone 34.5 %" in overview
    assert "2,000 test expressions: majority class 16.4 %, from the root operator alone 34.1 %" in overview


def test_the_meaning_is_told_in_numbers_of_the_runs(runs):
    out, folders = runs
    text = demo_summary.summarise(out, folders)
    # RotRNN: the largest gain of a head at the end of seed 2, block 3 is 3 * 2^5, and 1 would be right.
    assert "(here within 1e+02)" in text
    # Depth 2 twice and depth 4: the mean of seed + block is 1 + 1/2 and 1 + 3/2 over 6, 6 and 12 layers.
    assert f"({10 * 2**2.0:.3g} on average at the end) and in the LRU ({1.5 * 2**2.0:.3g})" in text
    assert "align, here 4 on average" in text
    assert "temporal, 0.5)" in text
    assert json.loads((out / "summary.json").read_text())["meaning"] in text


def test_figure_gets_every_layer_and_seed_of_every_run(runs, monkeypatch):
    out, folders = runs
    seen = {}
    monkeypatch.setattr(figures, "state_energy", lambda rows, caption, path: seen.update(rows=rows, caption=caption))
    demo_summary.summarise(out, folders)
    assert [[panel.title for panel in row] for row in seen["rows"]][1] == [
        "RotRNN, depth 4, small rate",
        "RotRNN folded (no xi), depth 4, small rate",
        "LRU, depth 4, small rate",
    ]
    for row, depth in zip(seen["rows"], (2, 4, 2), strict=True):
        for panel in row:
            assert sorted(curve.block for curve in panel.curves) == sorted(list(range(depth)) * 3)
            assert all(list(curve.steps) == [0, 200, 400] for curve in panel.curves)
    assert math.isclose(seen["rows"][0][2].curves[-1].energy[-1], 3.0 * 8)


def test_a_run_is_finished_when_both_scores_of_its_last_checkpoint_are_recorded(runs, tmp_path):
    _, folders = runs
    cell, folder = next(iter(folders.items()))
    copy = script.Job(cell, shutil.copytree(folder, tmp_path / "run"), tmp_path)
    assert script._finished(copy)
    records = json.loads((copy.folder / "results.json").read_text())
    early = {seed: values | {"step": 100} for seed, values in records[1]["seeds"].items()}
    for last in ({"checkpoint": "best"}, {"seeds": early}):
        (copy.folder / "results.json").write_text(json.dumps([records[0], records[1] | last]))
        assert not script._finished(copy)
    for others in ([], records[:1]):
        (copy.folder / "results.json").write_text(json.dumps(others))
        assert not script._finished(copy)
    (copy.folder / "results.json").unlink()
    assert not script._finished(copy)
    assert not script._finished(copy._replace(folder=tmp_path / "missing"))


def test_damaged_scores_and_a_run_of_another_config_are_refused(runs, tmp_path):
    _, folders = runs
    cell, folder = next(iter(folders.items()))
    copy = script.Job(cell, shutil.copytree(folder, tmp_path / "run"), tmp_path)
    other = next(name for name in demo.CELLS if "lru" in name)
    with pytest.raises(ConfigError, match=r"belongs to a run of another config: .*model\.layer"):
        script._finished(copy._replace(cell=other))
    (copy.folder / "results.json").write_text("[{")
    with pytest.raises(ConfigError, match=r"results\.json is damaged"):
        script._finished(copy)


def test_a_cell_trains_and_scores_its_own_folder(tmp_path, monkeypatch):
    """On both splits, at the last checkpoint."""
    calls = []
    monkeypatch.setattr("training.loop.train", lambda config, *where: calls.append((config.model.layer, *where)))
    monkeypatch.setattr("training.results.score", lambda *what: calls.append(what))
    monkeypatch.setattr("multiprocessing.parent_process", lambda: None)
    script.run_cell(script.Job("layer=lru,depth=2,rate=small", tmp_path / "run", tmp_path / "data"))
    folders = (tmp_path / "run", tmp_path / "data")
    assert calls == [("lru", *folders), (*folders, "val", "last"), (*folders, "test", "last")]


def test_a_run_that_lost_rows_is_refused(runs, tmp_path):
    _, folders = runs
    cell, folder = next(iter(folders.items()))
    shutil.copytree(folder, tmp_path / "run")
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(lines[:-2]))
    with pytest.raises(ConfigError, match=f"lacks rows of step {demo.STEPS}: remove .* and run again"):
        demo_summary.summarise(tmp_path, {cell: tmp_path / "run"})


def test_bad_arguments_are_refused_in_one_line(capsys):
    with pytest.raises(SystemExit) as end:
        script.main(["demo", "--ou=x"])
    assert end.value.code == 2
    assert capsys.readouterr().err == "error: unrecognized arguments: --ou=x (--help explains)\n"


def test_progress_counts_the_last_whole_row(tmp_path):
    assert script._steps_done(tmp_path) == 0
    (tmp_path / "metrics.jsonl").write_text('{"step": 10}\n{"step": 20}\n{"step": 3')
    assert script._steps_done(tmp_path) == 20


def test_finished_demo_only_prints(runs, monkeypatch, capsys):
    out, _ = runs
    monkeypatch.setattr(script, "_run_all", lambda *_: pytest.fail("nothing is left to train"))
    script.main(["demo", f"--out={out}"])
    assert "| LRU | 4 | small |" in capsys.readouterr().out


def test_unfinished_runs_are_trained_in_worker_order(runs, tmp_path, monkeypatch):
    """All nine when nothing is there, the deep ones first."""
    started = []
    monkeypatch.setattr(script.prepare_data, "main", lambda _: 0)
    monkeypatch.setattr(script, "run_all", lambda work, jobs: started.extend(jobs) or iter(()))
    monkeypatch.setattr(script, "summarise", lambda *_: "")
    script.main(["demo", f"--out={tmp_path}", f"--data_dir={tmp_path}"])
    assert [job.depth for job in started] == [4, 4, 4, 2, 2, 2, 2, 2, 2]
    assert {job.cell for job in started} == set(demo.CELLS)
