"""The report of run folders written by hand, made in a process that has no jax."""

import csv
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from commands import ROOT, assert_refused, call
from PIL import Image
from report_runs import STEPS, TIMES, rewrite, with_growing_mode, write_run

from configs import pixels, speech_commands
from scripts.report import charts, settings, stability
from scripts.report.published import ARENA, five_task_mean, published, six_task_mean
from scripts.report.runs import read_runs

WITHOUT_JAX = "import sys; sys.modules.update(dict.fromkeys(('jax', 'flax', 'orbax', 'ml_dtypes')))"
PROGRAM = f"{WITHOUT_JAX}; import runpy; runpy.run_module('scripts.report', run_name='__main__')"
NASTY = "<b>x & y`"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of every kind that must not be mixed up."""
    out = tmp_path_factory.mktemp("runs")
    listops = "task=listops,layer={},preset=published"
    write_run(out / "rotrnn", listops.format("rotrnn"), {0: 0.60, 1: 0.61, 2: 0.62}, energies=2, padding="pool_only")
    write_run(out / "lru" / NASTY, listops.format("lru"), {0: 0.50, 1: 0.51})
    write_run(out / "lru" / "more", listops.format("lru"), {2: 0.53, 1: 0.9})
    folded = {"model.options.normalise": "folded"}
    write_run(out / "folded", listops.format("rotrnn"), {0: 0.55, 1: 0.58, 2: 0.59}, changes=folded, energies=2)
    deep = {"updates": 10, "checkpoint": "last"}
    write_run(out / "part", "task=listops,layer=s5", {0: 0.99}, changes={"data.limit": 500}, partial=True, **deep)
    write_run(out / "colour", "task=scifar,layer=lru", {0: 0.89}, family=pixels)
    text = {"policy": "test_selected"}
    write_run(out / "text", "task=text,layer=lru,preset=published", {0: 0.9}, choices=text)
    write_run(out / "speech", "task=sc35,layer=rotrnn", {0: None, 1: None}, family=speech_commands)
    write_run(out / "older", "task=listops,layer=rotrnn", {0: 0.4}, facts={"schema": 4})
    (out / "broken").mkdir()
    (out / "broken" / "config.json").write_text("{")
    return out


@pytest.fixture(scope="module")
def report(runs, tmp_path_factory):
    """The folder of the report, and how its command ended."""
    out = tmp_path_factory.mktemp("report") / "made"
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(runs), f"--out={out}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ended.returncode == 0, ended.stderr
    return out, ended.stdout


def table(report, name):
    """Rows of a table, by their first cell; commands joined."""
    with (report[0] / "tables" / f"{name}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {row["model"]: row for row in rows}


def test_our_rows_stand_beside_the_published_ones(report):
    rows = table(report, "lra")
    ours = rows["RotRNN, preset=published"]
    assert ours["ListOps"] == "61.00 ± 1.00 (3; ±2.14) ‡"
    assert ours["bold"] == "ListOps"
    assert (
        "python train.py --config=configs/lra.py:task=listops,layer=rotrnn,preset=published,seeds=0:3"
        in ours["commands"]
    )
    assert "python eval.py --workdir=" in ours["commands"]
    # Two folders are one row; the seed that was run twice counts once, in the first.
    both = rows["LRU, preset=published"]
    assert both["ListOps"].startswith("51.33 ± 1.53 (3; ")
    assert both["commands"].count("train.py") == 3
    assert both["Text"].endswith("(1; ±1.32) * ‡")
    assert both["bold"] == both["5-task"].strip("–") == ""
    assert rows["S5"]["ListOps"] == "62.15 ± 0.23"
    assert rows["S5"]["source"] == "S5 (arXiv 2208.04933)"
    assert rows["LRU"]["Image"] == "89.00 ± 0.1 †"
    assert rows["Transformer"]["Path-X"].startswith("fail ")


def test_both_averages_are_those_of_the_sources():
    printed = {"S5": (85.24, 87.46), "LRU": (84.72, 86.30), "Transformer": (54.39, 53.66), "S4-FouT": (83.48, 77.90)}
    printed |= {"LRU stage: exponential": (77.44, 72.87), "RWKV": (71.84, 68.20), "Mega (quadratic)": (86.25, 88.21)}
    for row in published():
        if row.model in printed:
            cells = [cell for task in ARENA if (cell := row.arena(task)[0]) is not None]
            values = [cell.accuracy for cell in cells]
            found = five_task_mean(values), six_task_mean(values, cells[5].failed)
            assert found == pytest.approx(printed.pop(row.model), abs=0.0051)
    assert not printed
    assert five_task_mean([60.0, None, 1, 1, 1, 1]) is None


def test_a_part_and_a_colour_are_no_rows_of_the_benchmark(report):
    assert not any(row["ListOps"].startswith("99") for row in table(report, "lra").values())
    (part,) = table(report, "not_the_benchmark").values()
    assert part["data"] == "500 training records; stopped after 10 of 76,800 updates"
    assert part["score"].startswith("99.00 (1; ")
    assert part["score"].endswith(" §")
    assert "--checkpoint=last" in part["commands"]
    assert "89.00 (1; ±1.37) †" in table(report, "scifar")["LRU"]["CIFAR-10 in colour"]
    assert "89.00 (1" not in (report[0] / "tables" / "lra.csv").read_text()


def test_differences_and_ablations_are_paired(report):
    with (report[0] / "tables" / "pairs.csv").open(newline="") as file:
        (pair,) = [
            r for r in csv.DictReader(file) if (r["a"], r["b"]) == ("RotRNN, preset=published", "LRU, preset=published")
        ]
    assert pair["a - b in % (95 %)"].startswith("+9.67 (")
    assert pair["seeds"] == "3, paired"
    assert float(pair["p, Holm"]) >= float(pair["p"])
    base, folded = table(report, "ablations").values()
    assert (base["normalise"], folded["normalise"]) == ("xi", "folded")
    assert folded["difference to the first in % (95 %)"].startswith("-3.67 (")


def test_costs_are_of_the_run(report):
    row = table(report, "cost")["RotRNN, preset=published"]
    assert (row["parameters"], row["seeds"], row["ms per update"]) == ("1,234", "3", "200")
    assert row["tokens/s"] == f"{3 * 50 * 50 / 0.2:,.0f}"
    assert row["peak memory, MiB"] == "3 (process)"


def test_energies_are_written_in_numbers(report):
    with (report[0] / "tables" / "state_energy.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["setting"] == "RotRNN, preset=published"]
    assert len(rows) == 3 * 2 * len(STEPS)
    for row in rows:
        energy = 2.0 ** (int(row["seed"]) + int(row["layer"]) - 1 + int(row["step"]) / 10)
        assert float(row["energy"]) == pytest.approx(energy)
        assert float(row["energy_median"]) == pytest.approx(energy / 2)
        assert float(row["gain"]) * float(row["align"]) * float(row["temporal"]) == pytest.approx(energy)
    line = table(report, "stability")["RotRNN, preset=published"]
    assert line["energy"] == "11.3 (4 to 32)"
    assert line["largest gain"] == "96"
    with (report[0] / "tables" / "state_energy_over_time.csv").open(newline="") as file:
        place = {"setting": "RotRNN, preset=published", "seed": "1", "layer": "2", "step": "20", "t": "4"}
        (row,) = [row for row in csv.DictReader(file) if place.items() <= row.items()]
    assert [float(row[name]) for name in ("energy", "white", "coloured")] == [8, 8, 16]
    assert 0 < float(row["law"]) < 1


def test_energies_over_time_of_any_probe(runs):
    found = settings.settings_of(read_runs([runs / "rotrnn"])[0])[0]
    lines = csv.DictReader(stability.over_time_csv(found, at=19).splitlines())
    assert {row["step"] for row in lines} == {"0", "10"}
    titles = [chart.title for figure in charts.all_figures(found, at=19) for row in figure.rows for chart in row]
    assert any(title.endswith("at step 10") for title in titles)


def test_a_gain_that_some_layer_lacks_is_no_mean_over_the_others(tmp_path):
    write_run(tmp_path / "run", "task=listops,layer=rotrnn", {0: 0.5, 1: 0.6}, energies=2)
    rewrite(tmp_path / "run", with_growing_mode)
    found = settings.settings_of(read_runs([tmp_path])[0])[0]
    shown = stability.table(found)
    assert shown is not None
    row = dict(zip(shown.columns, (cell.text for cell in shown.lines[0].cells), strict=True))
    assert row["energy"] == "8 (4 to 16)"
    assert [row[name] for name in ("gain", "largest gain", "align", "temporal")] == ["–"] * 4
    (factors,) = (f for f in charts.all_figures(found) if f.name.startswith("energy_factors"))
    (gain,) = (chart for row in factors.rows for chart in row if chart.title == "gain")
    assert [np.asarray(line.x)[-1] for line in gain.lines if line.thin] == [20, 10]


def test_a_theory_that_is_not_finite_is_left_out(tmp_path):
    write_run(tmp_path / "run", "task=listops,layer=rotrnn", {0: 0.5}, energies=1)
    beyond = {"state_white_t": [[1.0, np.inf, np.nan]]}
    rewrite(tmp_path / "run", lambda row: row | (beyond if "state_white_t" in row else {}))
    found = settings.settings_of(read_runs([tmp_path])[0])[0]
    lines = list(csv.DictReader(stability.over_time_csv(found).splitlines()))
    assert {line["t"]: line["white"] for line in lines} == dict(zip(map(str, TIMES), ("1.0", "", ""), strict=True))


def test_what_is_missing_is_said(report, runs):
    page, printed = (report[0] / "report.md").read_text(), report[1]
    speech = f"{runs}/speech: not evaluated on test: python eval.py --workdir={runs}/speech --split=test"
    for line in (
        speech,
        f"{runs}/speech: not evaluated at 8 kHz: python eval.py --workdir={runs}/speech --split=test --every=2",
        f"{runs}/speech: no state energies: metrics.jsonl has no row of a probe",
        f"{runs}/rotrnn: trained 20 of 76,800 updates: python train.py ",
        f"{runs}/older: left out: a run of another version (schema 4, here 3)",
        f"{runs}/broken: left out: ",
        f"{runs}/lru/more: seed 1 was run before, in {runs}/lru/{NASTY}, which counts",
    ):
        assert line in printed
    assert "## Missing" in page
    assert "## Left out" in page


def test_the_page_opens_offline_and_escapes_names(report):
    page = (report[0] / "report.html").read_text()
    assert not re.search(r"""(src|href)=["'](?!data:image/png;base64,)""", page)
    assert NASTY not in page
    assert "&lt;b&gt;x &amp; y`" in page
    # In markdown, names stand in spans of code, or escaped.
    text = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", (report[0] / "report.md").read_text())
    assert "<b>" not in text
    assert "&lt;b&gt;x &amp; y" in text
    pictures = sorted(path.stem for path in (report[0] / "figures").glob("*.png"))
    assert page.count("<img ") == len(pictures)
    kinds = {"energy_training", "energy_time", "energy_depth", "energy_drift", "energy_factors", "learning"}
    assert kinds == {kind for kind in kinds if any(name.startswith(f"{kind}_listops") for name in pictures)}


def test_figures_are_at_page_width_and_not_empty(report):
    for path in (report[0] / "figures").glob("*.png"):
        assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
        with Image.open(path) as image:
            assert image.width in (1080, 630)
            assert len(image.convert("L").getcolors(256) or []) > 20


def test_what_is_refused(tmp_path):
    script = "scripts/report/__main__.py"
    assert_refused(call(script, tmp_path / "nowhere", f"--out={tmp_path}"), "nowhere: there is no such folder")
    assert_refused(
        call(script, tmp_path, f"--out={tmp_path}"), "no run in there that can be read (a run has a config.json)"
    )
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    assert_refused(call(script, tmp_path, f"--out={tmp_path}"), "run: left out: 'schema' is missing in its files")
    assert_refused(call(script, tmp_path), "--out")


def test_damaged_lines_are_said(tmp_path):
    run = tmp_path / "run"
    write_run(run, "layer=lru", {0: 0.5})
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, bro\n')
    (said,) = read_runs([tmp_path])[1]
    assert f"{run}: metrics.jsonl: dropped 1 damaged line(s)" in said


def of(folder, argument, **changes):
    """The setting of one run."""
    write_run(folder, argument, {0: 0.5}, changes={f"model.options.{key}": value for key, value in changes.items()})
    found, _, _ = settings.settings_of(read_runs([folder])[0])
    return found[0]


@pytest.mark.parametrize(
    ("argument", "changes", "decays"),
    [
        ("task=listops,layer=rotrnn", {}, lambda x: np.exp(-np.exp(np.log(-np.log([0.5, 0.9999])) @ [1 - x, x]))),
        (
            "task=listops,layer=rotrnn",
            {"gamma_init": "ring", "gamma_min": 0.1, "gamma_max": 0.9},
            lambda x: np.sqrt(0.01 + x * (0.81 - 0.01)),
        ),
        ("task=listops,layer=lru", {"r_min": 0.5, "r_max": 0.9}, lambda x: np.sqrt(0.25 + x * (0.81 - 0.25))),
    ],
)
def test_the_law_is_the_mean_over_initial_decays(tmp_path, argument, changes, decays):
    """Midpoints of 4,000 intervals of the law."""
    share = (np.arange(4000) + 0.5) / 4000
    decay = (
        decays(np.array([share])[0]) if argument.endswith("lru") or changes else np.array([decays(x) for x in share])
    )
    expected = [np.mean(1 - decay ** (2 * t)) for t in TIMES]
    assert stability.law(of(tmp_path / "run", argument, **changes), TIMES) == pytest.approx(expected, rel=1e-4)


def test_there_is_no_law_where_there_is_no_closed_form(tmp_path):
    assert stability.law(of(tmp_path / "s5", "task=listops,layer=s5"), TIMES) is None
    assert stability.law(of(tmp_path / "off", "task=listops,layer=rotrnn", normalise="off"), TIMES) is None
    assert stability.law(of(tmp_path / "still", "task=listops,layer=rotrnn", start="stationary"), TIMES) == [1] * 3
    off = of(tmp_path / "lru", "task=listops,layer=lru", gamma="off", r_min=0.5, r_max=0.9)
    squared = np.linspace(0.25, 0.81, 20_001)
    expected = [np.mean((1 - squared**t) / (1 - squared)) / np.mean(1 / (1 - squared)) for t in TIMES]
    assert stability.law(off, TIMES) == pytest.approx(expected, rel=1e-3)


def test_many_settings_are_drawn_in_parts(tmp_path):
    """No more in one figure than there are colours."""
    for index in range(9):
        changes = {"optim.lr": 0.001 * (index + 1)}
        write_run(tmp_path / str(index), "task=listops,layer=lru", {0: 0.5}, changes=changes, energies=1)
    found, _, _ = settings.settings_of(read_runs([tmp_path])[0])
    names = [figure.name for figure in charts.all_figures(found)]
    assert len(set(names)) == len(names)
    assert [name for name in names if name.startswith("learning")] == [
        "learning_listops-of-listo_depth6_part1",
        "learning_listops-of-listo_depth6_part2",
    ]
    assert json.loads((tmp_path / "0" / "config.json").read_text())["parameters"] == 1234
