"""The page of the study of stability: what is kept of a run, and when a claim holds."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from report_runs import STEPS, TIMES, plain, rewrite, with_growing_mode, write_run

from configs import stability
from data.sealed import sealed
from scripts import stability_claims, stability_figures, stability_page, stability_records, stability_report
from scripts.report.runs import read_runs
from scripts.stability_figures import digits_key
from scripts.stability_records import Key, condensed, every_key, key_of
from training.errors import ConfigError

ACCURACIES = {0: 0.40, 1: 0.42, 2: 0.44, 3: 0.41, 4: 0.43}


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Everything that is written lies in a folder of its own."""
    monkeypatch.setattr(stability_records, "RECORDS", tmp_path / "stability.json")
    monkeypatch.setattr(stability_report, "RECORDS", tmp_path / "stability.json")
    monkeypatch.setattr(stability_report, "PAGE", tmp_path / "stability.md")
    monkeypatch.setattr(stability_figures, "FOLDER", tmp_path / "figures")
    return tmp_path


def run_of(folder, cell, **options):
    """A finished run of a cell, with the energies of report_runs."""
    facts = {"git_commit": "abc", "schema": 3}
    write_run(
        folder / cell, cell, ACCURACIES, family=stability, facts=facts, **{"energies": 2, "split": "val", **options}
    )
    return read_runs([folder / cell])[0][0]


def record(energies, gains=None, layers=None, steps=(0, 100, 200), over_time=None, factors=None, unit=2.0):
    """A cell with these energies (seed -> probe)."""
    probes = dict.fromkeys(stability_records.PROBES, energies) | {"gain": gains or energies}
    return {
        "cell": "",
        "steps": list(steps),
        "layers": layers or {seed: [[e, e] for e in curve] for seed, curve in energies.items()},
        "probes": probes,
        "gain_error": 1e-7,
        "times": TIMES,
        "over_time": {when: dict.fromkeys(("energy", "white", "coloured"), over_time) for when in ("start", "end")},
        "unit": dict.fromkeys(energies, unit),
        "factors": dict.fromkeys(stability_records.FACTORS, factors or {seed: [1.0, 1.0] for seed in energies}),
        "accuracy": {seed: 0.4 + 0.01 * int(seed) for seed in energies},
        "guesses": {"majority": 0.16},
        "seconds": 60.0,
        "machine": "2 cores",
        "date": "2026-11-30",
    }


def curves(*ends, start=1.0):
    """Seed -> from `start` to its end."""
    return {str(seed): [start, math.sqrt(start * end), end] for seed, end in enumerate(ends)}


STILL, RISEN = curves(1.0, 1.02, 0.98), curves(6.0, 6.3, 5.8)


def test_a_cell_has_one_key_whatever_its_defaults():
    assert key_of("task=listops,layer=lru,depth=4,rate=small,updates=6000,seeds=0:3") == Key("lru", updates=6_000)
    assert key_of("task=fsdd,layer=s5,depth=2,rate=small,seeds=0:3") == Key("s5", 2, "small", "fsdd", 600)
    keys = every_key()
    assert len(keys) == len(set(keys)) == 50
    assert {key.layer for key in keys} == set(stability_figures.NAMES) == set(stability.LAYERS)


def test_what_is_kept_of_a_run_are_means_over_its_layers(tmp_path):
    kept = condensed(run_of(tmp_path, "task=listops,layer=lru,depth=2,rate=small"))
    assert kept is not None
    assert kept["steps"] == list(STEPS)
    # Seed s and layer l have 2^(s + l + step/10): the geometric mean over two layers is half a power more.
    assert kept["layers"]["3"] == [[8.0, 16.0], [8 * 2 ** (STEPS[-1] / 10), 16 * 2 ** (STEPS[-1] / 10)]]
    assert kept["probes"]["energy"]["3"] == pytest.approx([2 ** (3.5 + step / 10) for step in STEPS], rel=1e-3)
    assert kept["probes"]["gain_max"]["3"] == [3 * 16, 3 * 16 * 2 ** (STEPS[-1] / 10)]
    assert kept["unit"]["3"] == 16  # energy_raw of report_runs
    assert kept["factors"]["gain"]["3"] == [8 * 2 ** (STEPS[-1] / 10), 16 * 2 ** (STEPS[-1] / 10)]
    assert kept["gain_error"] == 32 * 2 ** (STEPS[-1] / 10) - 1  # of the second layer of seed 4
    over_time = kept["over_time"]["end"]["energy"]["0"]
    assert over_time[:2] == pytest.approx([2**0.5, 2 * 2**0.5], rel=1e-3)
    assert over_time[2] is None
    assert kept["accuracy"] == {str(seed): value for seed, value in ACCURACIES.items()}


def test_where_a_mode_grows_there_are_no_factors(tmp_path):
    cell = "task=listops,layer=s5,depth=6,rate=large"
    run_of(tmp_path, cell)
    rewrite(tmp_path / cell, with_growing_mode)
    kept = condensed(read_runs([tmp_path / cell])[0][0])
    assert kept is not None
    for of in ("gain", "gain_max", "align", "temporal"):
        assert [curve[-1] is None for curve in kept["probes"][of].values()] == [False, True, False, False, False]
    assert kept["factors"]["gain"]["1"] == [8.0, None]
    cells = {Key("s5", 6, "large"): kept, Key("rotrnn", 6, "large"): kept}
    # Between layers energies are 2 apart; between start and end 4.
    assert "| S5, large rate | 2 | 2 | 1 | – | – | – | 2, 2, 2, 2, 2 |" in claim(cells, "constant over depth")
    assert "| large rate, depth 6 | 4 [4, 4] | – | – | – |" in claim(cells, "constant over training")
    page = stability_page.page(cells, [])
    assert "| – (1 of 5 seeds) | – (1 of 5 seeds) | – (1 of 5 seeds) | – (1 of 5 seeds) | 20 |" in page
    (lines,) = (panel.lines for row in stability_figures._training(cells) for panel in row if "S5" in panel.title)
    assert np.isnan(np.asarray(lines[-2].y)).tolist() == [False, False, True]


def test_its_accuracy_is_that_of_the_whole_validation_split(tmp_path):
    cell = "task=listops,layer=lru,depth=2,rate=small"
    run = run_of(tmp_path, cell)
    (val,) = run.results
    wrong = {"seeds": {str(seed): {"accuracy": 0.9, "alive": True} for seed in ACCURACIES}}
    for other in ({"split": "test"}, {"every": 2}, {"checkpoint": "last"}):
        kept = condensed(replace(run, results=[val | wrong | other, val]))
        assert kept is not None
        assert kept["accuracy"]["0"] == ACCURACIES[0]
        assert condensed(replace(run, results=[val | other])) is None


def test_a_run_that_lost_a_probe_is_refused_and_each_process_counts(tmp_path):
    run = run_of(tmp_path, "task=listops,layer=lru,depth=2,rate=small")
    with pytest.raises(ConfigError, match="probes of some seeds are lost"):
        condensed(replace(run, training=run.training[1:]))
    clock = [1.0, 3.0, 0.5, 2.0]
    kept = condensed(replace(run, training=[*run.training, *({"seed": 9, "seconds": second} for second in clock)]))
    assert kept is not None
    assert kept["seconds"] == 5 + 3 + 2


def test_a_smoke_run_is_no_cell_of_the_study(tmp_path):
    for cell in ("task=listops,layer=lru,depth=2,rate=small,smoke", "task=listops,layer=lru,depth=3,rate=small"):
        run = run_of(tmp_path, cell)
        with pytest.raises(ConfigError, match="in a folder named after its cell"):
            condensed(run)


def test_a_run_of_another_config_is_refused_and_one_that_is_not_over_left_out(tmp_path):
    cell = "task=listops,layer=lru,depth=2,rate=small"
    assert condensed(run_of(tmp_path, cell, updates=10)) is None
    with pytest.raises(ConfigError, match=r"expected a run of configs/stability.py in a folder named after its cell"):
        condensed(run_of(tmp_path / "other", cell, changes={"optim.lr": 0.5}))
    (renamed,), _ = read_runs([(tmp_path / cell).rename(tmp_path / "renamed")])
    with pytest.raises(ConfigError, match="in a folder named after its cell"):
        condensed(renamed)


def test_cells_of_before_stay_until_they_are_run_again(places):
    first, second = (f"task=listops,layer={layer},depth=2,rate=small" for layer in ("rotrnn", "lru"))
    run_of(places / "here", first)
    stability_report.main(["", str(places / "here")])
    run_of(places / "there", second)
    stability_report.main(["", str(places / "there")])
    kept = json.loads((places / "stability.json").read_text())
    assert [r["cell"] for r in kept] == [first, second]
    page = (places / "stability.md").read_text()
    assert "2 of its 50 cells" in page
    assert "Not run yet: RotRNN (8 cells), LRU (8 cells), S5 (9 cells)" in page
    assert "| `task=listops,layer=lru,depth=2,rate=small` | 5.66 | 22.6 (5.66 to 90.5) | 90.5 | 22.6 | 384 |" in page
    with Image.open(places / "figures" / "stability_training.png") as image:
        assert len(set(np.asarray(image.convert("L")).ravel().tolist())) > 20
    # From the file alone, the same page; what is of another config leaves it.
    stability_report.main([""])
    assert (places / "stability.md").read_text() == page
    other = kept[0]["config"] | {"optim": kept[0]["config"]["optim"] | {"lr": 0.5}}
    smoke = kept[0] | {"cell": f"{first},smoke", "config": plain(stability.get_config(f"{first},smoke"))}
    for changed in (kept[0] | {"config": other}, smoke):
        (places / "stability.json").write_text(json.dumps([sealed(changed), kept[1]]))
        stability_report.main([""])
        assert "1 of its 50 cells" in (places / "stability.md").read_text()


def test_damaged_records_are_refused(places):
    run_of(places / "here", "task=listops,layer=lru,depth=2,rate=small")
    stability_report.main(["", str(places / "here")])
    written = (places / "stability.json").read_text()
    (record,) = json.loads(written)
    unsealed = {key: value for key, value in record.items() if key != "sha256"}
    edited = written.replace('"accuracy":{"0":0.4', '"accuracy":{"0":0.5')
    assert edited != written
    for text in ("{", '{"a": 1}', '[{"cell": "task=listops"}]', "[3]", edited, json.dumps([unsealed])):
        (places / "stability.json").write_text(text)
        with pytest.raises(ConfigError, match=r"stability.json is damaged .*: put back the committed one"):
            stability_report.main([""])


def test_records_of_another_form_are_refused_and_stay(places):
    run_of(places / "here", "task=listops,layer=lru,depth=2,rate=small")
    stability_report.main(["", str(places / "here")])
    (record,) = json.loads((places / "stability.json").read_text())
    older = json.dumps([sealed({key: value for key, value in record.items() if key not in ("sha256", "form", "unit")})])
    (places / "stability.json").write_text(older)
    with pytest.raises(ConfigError, match=r"was written by another version: move it away"):
        stability_report.main(["", str(places / "here")])
    assert (places / "stability.json").read_text() == older


def claim(cells, title):
    """The lines of the part with that title."""
    lines = stability_claims.claims(cells)
    start = next(k for k, line in enumerate(lines) if line.startswith("###") and title in line)
    end = next((k for k, line in enumerate(lines[start + 1 :], start + 1) if line.startswith("###")), len(lines))
    return "\n".join(lines[start:end])


def test_energy_is_constant_over_training_only_if_its_interval_says_so():
    title = "constant over training"
    for energies, verdict in (
        (STILL, "**Holds** of the energy"),
        (RISEN, "**Does not hold** of the energy"),
        (curves(0.5, 1.0, 2.0), "**Not decided** of the energy"),
    ):
        said = claim({Key("rotrnn", 2): record(energies, gains=STILL)}, title)
        assert "gain is 1 to within 1e-07" in said
        assert verdict in said
    assert "| small rate, depth 2 | 0.99" not in said


def test_the_ratio_of_a_row_is_that_of_the_curves():
    found = stability_claims.ratio({"0": 2.0, "1": 8.0, "2": 4.0}, {"0": 1.0, "1": 2.0, "2": 1.0, "9": 5.0})
    logs = np.log([2, 4, 4])
    half = 4.302652729911275 * logs.std(ddof=1) / math.sqrt(3)
    assert (found.mean, found.low, found.high) == pytest.approx(np.exp(logs.mean() + np.array([0, -half, half])))


def test_depth_compares_the_highest_layer_with_the_lowest():
    layers = {seed: [[2.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 2.0, 6.0]] for seed in ("0", "1")}
    layers["2"] = [[1.0, 2.0, 1.0], [1.0, 1.0, 1.0], [2.0, 12.0, 3.0]]
    factors = {"0": [1.0, 9.0, 3.0], "1": [1.0, 9.0, 3.0], "2": [2.0, 6.0, 9.0]}
    cells = {Key("rotrnn", 6): record(STILL, layers=layers, factors=factors), Key("lru", 6): record(STILL)}
    said = claim(cells, "constant over depth")
    assert "**Does not hold**" in said
    assert "| RotRNN, small rate | 2 | 6 | 3 | 3 | 3 | 3 | 3, 3, 2 |" in said
    cells[Key("rotrnn", 6)] = record(STILL)
    assert "**Holds**" in claim(cells, "constant over depth")


def test_seeds_are_compared_at_the_end():
    said = claim({Key("rotrnn", 2): record(curves(1.0, 2.0, 4.0))}, "for every seed")
    # Two of three logarithms apart by one: their deviation, and what chi square of 2 degrees makes of it.
    assert "| RotRNN | 2 [1.43, 78] | 2.00 |" in said
    assert "**Does not hold**" in said
    assert "**Holds**" in claim({Key("rotrnn", 2): record(curves(*np.geomspace(0.98, 1.02, 9)))}, "for every seed")
    assert "**Not decided**" in claim({Key("rotrnn", 2): record(curves(1.0, 1.2, 1.4))}, "for every seed")


def test_a_gain_that_moves_breaks_the_guarantee():
    moved = record(STILL) | {"gain_error": 1e-4}
    said = claim({Key("rotrnn", 2): moved, Key("rotrnn", 4): record(STILL)}, "constant over training")
    assert "**Does not hold** of what its parameters guarantee" in said
    assert "gain is 1 to within 0.0001" in said


def test_an_lru_drifts_more_only_where_the_interval_is_above_one():
    cells = {Key("rotrnn", 2): record(STILL), Key("lru", 2): record(RISEN)}
    assert (
        "That it drifts: **Holds**. That it drifts more than RotRNN: **Holds**. That it settles later: in 1 of 1"
        in claim(cells, "drifts")
    )
    turned = claim({Key("rotrnn", 2): record(RISEN), Key("lru", 2): record(STILL)}, "drifts")
    assert "That it drifts: **Does not hold**. That it drifts more than RotRNN: **Does not hold**." in turned
    assert "That it settles later: in 0 of 1" in turned
    both = cells | {Key("rotrnn", 4): record(RISEN), Key("lru", 4): record(STILL)}
    assert "**Holds in 1 of 2**, the contrary in 1" in claim(both, "drifts")


def test_a_curve_has_settled_when_it_stays_near_its_end():
    assert stability_claims.settled_at(record({"0": [1.0, 1.05, 1.1], "1": [1.0, 2.0, 2.1]})) == 50
    # It came near, left again, and ended there.
    assert stability_claims.settled_at(record({"0": [2.0, 3.0, 2.0]})) == 200
    assert stability_claims.settled_at(record({"0": [2.0, None, 2.0]})) == 200


def test_normalisation_matters_at_all_t_only_if_every_interval_leaves_out_one():
    xi, folded = ({str(s): [e * (1 + 0.01 * s), 2 * e, None] for s in range(3)} for e in (1.0, 5.0))
    cells = {Key("rotrnn"): record(STILL, over_time=xi), Key("rotrnn_folded"): record(STILL, over_time=folded)}
    said = claim(cells, "matters at all t")
    assert "**Holds**: at 2 of 2 times" in said
    assert "t = 4: 5" in said
    higher = cells | {Key("rotrnn_folded"): record(STILL, over_time=folded, unit=6.0)}
    assert "t = 4: 15" in claim(higher, "matters at all t")
    digits = {
        key: record(STILL, over_time=of)
        for key, of in ((digits_key("rotrnn"), xi), (digits_key("rotrnn_folded"), folded))
    }
    assert "| RotRNN, folded, spoken digits | t = 1: 5" in claim(cells | digits, "matters at all t")
    assert "at 4 of 4 times" in claim(cells | digits, "matters at all t")
    cells[Key("rotrnn_folded")] = record(STILL, over_time={seed: [v[0] * 5, 2.0, None] for seed, v in xi.items()})
    assert "**Not at every t**: at 1 of 2 times" in claim(cells, "matters at all t")


def test_a_changed_rotrnn_is_compared_with_rotrnn_at_the_same_rate():
    large, small, changed = Key("rotrnn", 4, "large"), Key("rotrnn_off", 4), Key("rotrnn_off", 4, "large")
    cells = {key: record(STILL, over_time=STILL) for key in (large, small, changed)}
    cells[large] = record(RISEN, over_time=STILL, unit=0.5)
    cells[changed]["accuracy"] = {"0": 0.42, "1": 0.43, "2": 0.45}
    said = claim(cells, "changed one at a time")
    # 1, 1.02, 0.98 over 6, 6.3, 5.8: logarithms -1.797 +- 4.303 * 0.0218 / sqrt(3); and units of 2 and of 0.5.
    assert "| RotRNN, off, large rate, depth 4 | 1 [0.951, 1.05] | 4 | 0.663 [0.628, 0.7] | 1 [0.951, 1.05] |" in said
    # Two, two and three points: 2.33 +- 4.303 * 0.333.
    assert "| +2.3 [+0.9, +3.8] |" in said
    assert "small rate" not in said


def test_every_claim_has_its_place_when_all_cells_are_there():
    cells = {key: {**record(RISEN, over_time=STILL), "cell": "c"} for key in every_key()}
    page = stability_page.page(cells, ["training"])
    assert [line.split()[1] for line in page.splitlines() if line.startswith("###")] == [f"{n}." for n in range(1, 11)]
    assert "Not run yet" not in page
    assert "| `c` | 1 | 6.03 (5.8 to 6.3) | 6.3 | 6.03 | 6.3 | 6.03 | 6.03 | 200 | 41.0 ± 1.0 |" in page
    assert "listops 16.0 %" in page
