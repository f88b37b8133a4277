"""Runs whose names, config and data are written to be taken for commands: no language of the report obeys them."""

import csv
import html.parser
import os
import re

import pytest
from report_runs import write_run

from scripts import figures
from scripts.report import charts
from scripts.report.__main__ import main
from scripts.report.table import Cell, Line, Table, code, harmless

SCRIPT = "<script>alert(1)</script>"
HOSTILE = f"""=1+1|x,'"&{SCRIPT}<img src=x onerror=y>$\\input{{x}}$ `a` [b](javascript:c) *d* %e #f ~g ^^M"""
LINE = "\n# injected\n\n<script>\n| a | b |\r\n\\input{x}\n=2+2\x1b[2J"


class Tags(html.parser.HTMLParser):
    """Tags with their attributes, and the text of a page."""

    def __init__(self, page):
        super().__init__()
        self.found, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def drawn(figure, folder):
    """Those with all labels and all titles; drawing takes most of the time of a report."""
    if figure.name.startswith(("learning", "energy_training")):
        figures.grid(figure.rows, figure.keys, folder / figure.name, figure.same_y)
    else:
        (folder / f"{figure.name}.png").write_bytes(b"picture")


def saved(figure, stem):
    figure.savefig(stem.with_suffix(".png"), dpi=20)
    figures.plt.close(figure)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The folder of a report on runs with such names in every place that a name can reach, and what was printed."""
    runs, out = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("made") / f"r{SCRIPT.replace('/', '')}"
    folder = f"{HOSTILE.replace('/', '')}{LINE}"
    facts = {"data_sha256": HOSTILE, "devices": [f"{HOSTILE}:0"]}
    record = {"data_sha256": HOSTILE, "choices": {HOSTILE: HOSTILE}, "baselines": {HOSTILE + LINE: 0.2}}
    places = {
        "init_from": HOSTILE + LINE, "model.options.normalise": f"={HOSTILE}", "compile_cache": HOSTILE,
        f"model.options.{HOSTILE.replace('.', '')}": "-x",
    }  # fmt: skip
    for name, changes in {
        folder: places,
        "plain": {},
        "named": {"data.task": f"@{HOSTILE}{LINE}", "model.layer": f"_{HOSTILE}"},
    }.items():
        write_run(
            runs / name,
            "task=listops,layer=rotrnn",
            {0: 0.5, 1: 0.6},
            energies=2,
            changes=changes,
            facts=facts,
            **record,
        )
    (runs / f"broken{LINE}").mkdir()
    (runs / f"broken{LINE}" / "config.json").write_text("{")
    undecodable = os.fsencode(runs) + b"/\xff\xfe"
    os.mkdir(undecodable)
    with open(undecodable + b"/config.json", "w") as file:
        file.write("[]")
    with pytest.MonkeyPatch.context() as patch:
        printed = []
        patch.setattr(figures, "_save", saved)
        patch.setattr(charts.Figure, "draw", drawn)
        patch.setattr("builtins.print", lambda *parts, **_: printed.append(" ".join(map(str, parts))))
        main(["report", str(runs), f"--out={out}"])
    return out, printed


def test_what_is_printed_are_lines(report):
    assert len(report[1]) > 3
    assert all(line.isprintable() for line in report[1])
    assert any(r"\udcff\udcfe: left out: " in line for line in report[1])


def test_the_page_has_no_tag_but_its_own(report):
    page = Tags((report[0] / "report.html").read_text(encoding="utf-8"))
    ours = "html head meta title style body h1 h2 h3 p code div table thead tr th tbody td b sup ul li details summary"
    ours += " figure img figcaption"
    assert {tag for tag, _ in page.found} <= {*ours.split()}
    for tag, attributes in page.found:
        allowed = {"img": {"alt", "src"}, "h3": {"id"}, "html": {"lang"}, "meta": {"charset"}}
        assert attributes.keys() <= allowed.get(tag, {"class"})
        assert attributes.get("src", "data:image/png;base64,").startswith("data:image/png;base64,")
    assert page.text.count(SCRIPT) > 5
    assert "\x1b" not in page.text


def test_markdown_has_no_tag_and_no_line_but_its_own(report):
    for path in (report[0] / "report.md", *(report[0] / "tables").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        for line in text.splitlines():
            assert line == "" or re.match(
                r"#{1,3} (Report|Tables|Figures|Missing|Left out|[A-Z])|\||- |!\[|Made by|Numbers|[A-Z]", line
            ), line
            assert "injected" not in line or not line.startswith("#")
        rows = [line for line in text.splitlines() if line.startswith("|")]
        assert rows
        spans = re.sub(r"(?<!\\)(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
        assert not re.search(r"(?<!\\)<", spans)
        assert not re.search(r"(?<!\\)\]\(javascript", spans)


def test_every_table_has_as_many_cells_in_each_row(report):
    for path in (report[0] / "tables").glob("*.md"):
        rows = [
            re.sub(r"\\.", "", line) for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|")
        ]
        assert len({row.count("|") for row in rows}) == 1, path.name


def test_no_cell_of_a_csv_is_a_formula(report):
    texts = []
    for path in (report[0] / "tables").glob("*.csv"):
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
        assert len({len(row) for row in rows}) == 1, path.name
        texts += [cell for row in rows for cell in row]
    for cell in texts:
        assert cell.isprintable()
        assert not re.match(r"[=@]|[+-](?!\d)", cell), cell
    assert any(cell.startswith("'=") for cell in texts) or any(cell.startswith("'@") for cell in texts)


def test_latex_has_no_command_but_its_own(report):
    ours = "textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar|textbf|textsuperscript|begin|end"
    ours += "|caption|label|toprule|midrule|bottomrule|par|footnotesize|pm|dagger|ddagger|S|P|times|Delta|to"
    for path in (report[0] / "tables").glob("*.tex"):
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("% (")]
        text = "\n".join(lines)
        assert {*re.findall(r"\\([A-Za-z]+)", text)} <= {*ours.split("|")}
        assert not re.search(r"(?<!\\)[#~^]|(?<!\\)%(?! \()", text)
        assert not re.search(r"\\\\\n\s*[*\[]", text)


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3+cmd|' /C calc'!A0", "@SUM(A1)", "-x", "+"])
def test_formulas_are_texts(text):
    assert harmless(text) == f"'{text}"


@pytest.mark.parametrize(
    "text", ["+9.67 (-1.00 to +18.2)", "-3.67", "-3.67 * a", "", "–", "1.00 ± 0.10 †", "a=b", "'=1"]
)
def test_numbers_and_texts_are_as_they_were(text):
    assert harmless(text) == text


def test_what_begins_behind_the_end_of_a_row_is_no_part_of_it():
    r"""LaTeX reads \\* and \\[length] across the line."""
    table = Table("x", "x", ["a"], [Line([Cell("[3cm]")]), Line([Cell("*")])], [("", "first"), ("*", "second")])
    assert not re.search(r"\\\\\s*[*\[]", table.tex())


def test_a_command_of_several_lines_stays_in_its_span_and_its_comment():
    command = "python train.py '--workdir=a\n\n<script>\n\\input{x}'"
    table = Table("x", "x", ["a"], [Line([Cell("1")], (command,))])
    assert code(command).count("\n") == 0
    assert all(line.startswith(("% (1)", "\\", "a ", "1 ")) for line in table.tex().splitlines())
    assert r"a\n\n" in table.csv()
