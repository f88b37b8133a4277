"""The command of the study: figures, tables, numbers; what it refuses."""

import json
import math

import pytest
from commands import assert_refused, call
from PIL import Image

from scripts.signal_study import draw
from scripts.signal_tables import tables
from theory.monte_carlo import silent
from theory.signal_propagation import log_s

SCRIPT = "scripts/signal_propagation.py"
QUICK = ("--draws=1", "--widths=4")
"""Were it not refused."""

FIGURES = ("regimes", "profiles", "real_complex", "sharing", "families")


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("signal") / "new"
    arguments = [f"--out={folder}", f"--json={folder}/numbers.json", "--draws=1", "--widths=9,16"]
    ended = call(SCRIPT, *arguments)
    assert ended.code == 0, ended
    return folder, ended


def test_figures_are_written_and_small(out):
    folder, ended = out
    for name in FIGURES:
        assert f"{folder}/{name}.png" in ended.out
        assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        with Image.open(folder / f"{name}.png") as image:
            assert image.width == 1080
            assert len(image.convert("L").getcolors(256) or []) > 20
        assert (folder / f"{name}.png").stat().st_size < 150_000


def test_tables_hold_exact_and_drawn_values(out):
    folder, ended = out
    page = (folder / "tables.md").read_text()
    assert page in ended.out
    assert "| 256 | 29 | 47 | 62 | 86 | 85 | 239 | 247 | 362 |" in page
    assert "| 1000000 | 10000 | 1.00 | 21.66680 | 0.896 | 0.9978 | 1.0314 |" in page
    assert page.count("| 16 | real | 16 |") == 4 + 5
    assert "DIFFERS" not in page


def test_numbers_are_those_behind_the_figures(out):
    folder, _ = out
    found = json.loads((folder / "numbers.json").read_text())
    assert {(curve["n"], curve["law"], len(curve["log_mean"])) for curve in found["log_q"]} == {
        (n, law, 2 * round(math.sqrt(n)) + 1) for n in (9, 16) for law in ("complex", "real")
    }
    assert [curve["law"] for curve in found["log_s"]] == ["complex", "real", "complex", "complex untied"]
    budget = found["budgets"]["256"]
    assert budget["regime"] == "critical"
    assert budget["log_growth"] == pytest.approx(float(log_s(256, 32)) - math.log(33))
    assert budget["mean_overflows"]["float32"]["S"] == 247


def test_draws_are_kept_and_give_the_same_page(out):
    folder, _ = out
    kept = {path: path.stat().st_mtime_ns for path in (folder / "draws").iterdir()}
    again = draw((9, 16), 1, folder / "draws", silent)
    assert {path: path.stat().st_mtime_ns for path in (folder / "draws").iterdir()} == kept
    assert tables(again) == (folder / "tables.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--draws=5"], "--out"),
        (["--out=x", "--draws=0"], "whole number of at least 1"),
        (["--out=", *QUICK], "argument --out: a path is missing"),
        (["--out=x", "--json=", *QUICK], "argument --json: a path is missing"),
        (["--out=x", "--draws=1000000"], "1000000 draws: expected at most 100000"),
        (["--out=x", "--json=docs", *QUICK], "--json=docs is a folder"),
        (["--out=x", "--json=x", *QUICK], "--json=x is a folder"),
        (["--out=x", "--widths=2,16"], "width 2: expected at least 4"),
        (["--out=x", "--widths=10000"], "width 10000: expected at most 8192"),
        (["--out=x", "--json=nowhere/x.json"], "--json=nowhere/x.json: there is no folder nowhere"),
    ],
)
def test_what_is_refused(arguments, line):
    assert_refused(call(SCRIPT, *arguments), line)


@pytest.mark.parametrize("content", [b"PK nothing", b""])
def test_a_damaged_file_of_draws_is_refused(tmp_path, content):
    (tmp_path / "draws").mkdir()
    (tmp_path / "draws" / "complex_16_8.npz").write_bytes(content)
    ended = call(SCRIPT, f"--out={tmp_path}", "--draws=1", "--widths=16")
    assert ended.code == 2
    assert "complex_16_8.npz is damaged" in ended.err
