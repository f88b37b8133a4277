"""The page: report.md beside its tables and figures, and report.html, one file that opens offline."""

import base64
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from data.errors import one_line
from scripts.report.charts import Figure
from scripts.report.table import Table, as_html, code

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
table { border-collapse: collapse; font-size: 13px; } .wide { overflow-x: auto; }
th, td { padding: .25rem .6rem; text-align: left; border-bottom: 1px solid #ddd; white-space: nowrap; }
thead th { border-bottom: 2px solid #444; } tr.own { background: #eef6ff; }
.notes { font-size: 12.5px; color: #333; padding-left: 1.2rem; } code { font-size: 12px; background: #f4f4f4; }
figure { margin: 1.5rem 0; } figure img { max-width: 100%; } figcaption { font-size: 13px; color: #333; }
"""


@dataclass(frozen=True)
class Page:
    """command: what made it. common: what all runs share besides the defaults. left_out: folders, and why.

    csvs: files of numbers, beside the tables.
    """

    command: str
    common: Sequence[str]
    tables: Sequence[Table]
    figures: Sequence[Figure]
    missing: Sequence[str]
    left_out: Sequence[str]
    csvs: Sequence[str]

    def markdown(self) -> str:
        """With links to the files beside it."""
        parts = [f"# Report\n\nMade by {code(self.command)}.{_escaped(self._common())}\n"]
        parts += ["## Tables\n", *(table.markdown() for table in self.tables)]
        parts += ["## Figures\n"]
        parts += [f"![{f.name}](figures/{f.name}.png)\n\n{_escaped(f.caption)}\n" for f in self.figures]
        parts += [f"Numbers: {', '.join(f'[{name}](tables/{name})' for name in self.csvs)}.\n"]
        for head, lines in self._lists():
            parts.append(f"## {head}\n\n" + "\n".join(f"- {_escaped(line)}" for line in lines) + "\n")
        return "\n".join(parts)

    def html(self, figures: Path) -> str:
        """With the pictures inside. figures: the folder of their files."""
        parts = [
            f"<p>Made by <code>{as_html(self.command)}</code>.{as_html(self._common())}</p>",
            "<h2>Tables</h2>",
        ]
        parts += [table.html() for table in self.tables]
        parts += ["<h2>Figures</h2>", *(_picture(figure, figures) for figure in self.figures)]
        for head, lines in self._lists():
            items = "".join(f"<li>{as_html(line)}</li>" for line in lines)
            parts.append(f'<h2>{head}</h2>\n<ul class="notes">{items}</ul>')
        body = "\n".join(parts)
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>linrec report</title>'
            f"<style>{STYLE}</style></head>\n<body><h1>Report</h1>\n{body}\n</body></html>\n"
        )

    def _common(self) -> str:
        return f" All runs: {', '.join(self.common)}." if self.common else ""

    def _lists(self) -> list[tuple[str, Sequence[str]]]:
        lists = [("Missing", self.missing), ("Left out", self.left_out)]
        return [(head, lines) for head, lines in lists if lines]


def _picture(figure: Figure, folder: Path) -> str:
    data = base64.b64encode((folder / f"{figure.name}.png").read_bytes()).decode()
    return (
        f'<figure><img alt="{as_html(figure.name)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{as_html(figure.caption)}</figcaption></figure>"
    )


def _escaped(text: str) -> str:
    """Nothing in it begins a tag, a link, a line or a list."""
    return html.escape(re.sub(r"([\\`*_\[\]#~])", r"\\\1", one_line(text)), quote=False)
