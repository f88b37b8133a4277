"""One table in four languages: nothing that comes from a run is taken for a command of any of them."""

import csv
import html.parser
import io

from scripts.report.table import Cell, Line, Table

NASTY = '<script>alert("x")</script> a|b $x_1$ 50% & #{\\}'
TABLE = Table(
    "nasty",
    f"Title {NASTY}",
    ["model", "value"],
    [
        Line(
            [Cell(NASTY), Cell("1.00 ± 0.10", bold=True, marks=("†", "a"))], ("python train.py '<x>'", "python eval.py")
        ),
        Line([Cell("published"), Cell()], source="arXiv <1>"),
    ],
    [("", "a remark"), ("†", "colour"), ("a", NASTY)],
)


class Tags(html.parser.HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = set(), ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.text += data + " "


def test_html_shows_names_as_they_are():
    found = Tags(TABLE.html())
    assert "script" not in found.tags
    assert "x" not in found.tags
    assert found.text.count(NASTY) == 3
    assert "python train.py '<x>'" in found.text
    assert "<b>1.00 ± 0.10</b> <sup>†,a</sup>" in TABLE.html()


def test_markdown_has_as_many_cells_in_every_row():
    lines = TABLE.markdown().splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert [row.replace("\\|", "").count("|") for row in rows] == [4] * 4
    assert "<script>" not in TABLE.markdown().replace("\\<", "")
    assert "| **1.00 ± 0.10** †,a | (1) |" in TABLE.markdown()
    assert "- (1) `python train.py '<x>'`; `python eval.py`" in lines
    assert "| published | – | arXiv \\<1\\> |" in lines


def test_latex_has_no_command_but_its_own():
    text = TABLE.tex()
    assert r"\textbf{1.00 $\pm$ 0.10} $^{$\dagger$,a}$" not in text  # a dollar within dollars ends the formula
    assert r"\textbf{1.00 $\pm$ 0.10} \textsuperscript{$\dagger$,a}" in text
    assert r"\textless{}script\textgreater{}" in text
    assert r"\$x\_1\$ 50\% \& \#\{\textbackslash{}\}" in text
    assert text.splitlines()[0] == "% (1) python train.py '<x>'; python eval.py"
    assert text.count("&") - text.count(r"\&") == 3 * 2


def test_csv_reads_back():
    head, first, second = csv.reader(io.StringIO(TABLE.csv()))
    assert head == ["model", "value", "bold", "source", "commands"]
    assert first == [NASTY, "1.00 ± 0.10 † a", "value", "", "python train.py '<x>'; python eval.py"]
    assert second == ["published", "–", "", "arXiv <1>", ""]
