"""One table, written as markdown, csv, LaTeX and HTML. What comes from runs is escaped in each."""

import csv
import html
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from data.errors import one_line


@dataclass(frozen=True)
class Cell:
    """marks: keys of notes below the table, such as †."""

    text: str = "–"
    bold: bool = False
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Line:
    """A row: its cells, and where it is from: the commands that made it, or a source in words."""

    cells: Sequence[Cell]
    commands: tuple[str, ...] = ()
    source: str = ""


@dataclass(frozen=True)
class Table:
    """name: of its files. columns: of all cells; the source of each row is added as the last one.

    notes: (mark, text) below the table; a mark "" is a remark on the whole.
    """

    name: str
    title: str
    columns: Sequence[str]
    lines: Sequence[Line]
    notes: Sequence[tuple[str, str]] = field(default_factory=tuple)

    def markdown(self) -> str:
        heads = [_markdown(column) for column in (*self.columns, "made by")]
        rows = [heads, ["---"] * len(heads)]
        rows += [[*(_marked(cell, _markdown, "**", "**", "{}") for cell in line.cells), _markdown(source)]
                 for line, source in self._sourced()]  # fmt: skip
        body = [f"| {' | '.join(row)} |" for row in rows]
        notes = [f"- {_markdown(_note(*note))}" for note in self.notes]
        made = [f"- ({number}) {'; '.join(map(code, commands))}" for number, commands in self._numbered()]
        parts = [f"### {_markdown(self.title)}", "\n".join(body), "\n".join([*notes, *made])]
        return "\n\n".join(part for part in parts if part) + "\n"

    def csv(self) -> str:
        """Marks behind the values, notes left out; the last columns hold source and commands in full."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([*self.columns, "bold", "source", "commands"])
        for line in self.lines:
            cells = [" ".join([cell.text, *cell.marks]) for cell in line.cells]
            bold = "; ".join(name for name, cell in zip(self.columns, line.cells, strict=True) if cell.bold)
            writer.writerow(map(harmless, [*cells, bold, line.source, "; ".join(line.commands)]))
        return out.getvalue()

    def tex(self) -> str:
        """A table with booktabs; commands are comments."""
        rows = [" & ".join(_tex(column) for column in self.columns) + r" & made by \\", r"\midrule"]
        for line, source in self._sourced():
            cells = [_marked(cell, _tex, r"\textbf{", "}", r"\textsuperscript{{{}}}") for cell in line.cells]
            rows.append(" & ".join([*cells, _tex(source)]) + r" \\")
        notes = "\\\\\n".join(_tex(_note(*note)) for note in self.notes)
        commands = [f"% ({number}) {one_line('; '.join(commands))}" for number, commands in self._numbered()]
        return "\n".join(
            [
                *commands,
                r"\begin{table}",
                rf"\caption{{{_tex(self.title)}}}",
                rf"\label{{tab:{self.name}}}",
                rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}l}}",
                r"\toprule",
                *rows,
                r"\bottomrule",
                r"\end{tabular}",
                *([rf"\par\footnotesize {notes}"] if notes else []),
                r"\end{table}",
                "",
            ]
        )

    def html(self) -> str:
        heads = "".join(f"<th>{as_html(column)}</th>" for column in (*self.columns, "made by"))
        rows = []
        for line, source in self._sourced():
            cells = [_marked(cell, as_html, "<b>", "</b>", "<sup>{}</sup>") for cell in line.cells]
            kind = ' class="own"' if line.commands else ""
            rows.append(f"<tr{kind}>{''.join(f'<td>{c}</td>' for c in (*cells, as_html(source)))}</tr>")
        notes = "".join(f"<li>{as_html(_note(*note))}</li>" for note in self.notes)
        made = "".join(
            f"<li>({number}) {' '.join(f'<code>{as_html(c)}</code>' for c in commands)}</li>"
            for number, commands in self._numbered()
        )
        commands = f"<details><summary>made by</summary><ul>{made}</ul></details>\n" if made else ""
        return (
            f'<h3 id="{as_html(self.name)}">{as_html(self.title)}</h3>\n<div class="wide"><table><thead><tr>'
            f"{heads}</tr></thead>\n<tbody>{chr(10).join(rows)}</tbody></table></div>\n"
            f'<div class="notes"><ul>{notes}</ul>\n{commands}</div>\n'
        )

    def _numbered(self) -> list[tuple[int, tuple[str, ...]]]:
        """Number -> commands; rows made by the same commands share one."""
        return list(enumerate(dict.fromkeys(line.commands for line in self.lines if line.commands), start=1))

    def _sourced(self) -> list[tuple[Line, str]]:
        number = {commands: f"({number})" for number, commands in self._numbered()}
        return [(line, number.get(line.commands, line.source)) for line in self.lines]


def _note(mark: str, text: str) -> str:
    return f"{mark} {text}" if mark else text


def _marked(cell: Cell, escape: Callable[[str], str], start: str, end: str, mark: str) -> str:
    text = escape(cell.text)
    marks = mark.format(escape(",".join(cell.marks))) if cell.marks else ""
    return (f"{start}{text}{end}" if cell.bold else text) + (f" {marks}" if marks else "")


def harmless(text: str) -> str:
    """A cell of a csv: on one line, and what a spreadsheet would take for a formula, with an apostrophe before it."""
    line = one_line(text)
    return f"'{line}" if line.startswith(("=", "+", "-", "@")) and not SIGNED.fullmatch(line) else line


SIGNED = re.compile(r"[-+]\d+(\.\d+)?( \([-+]\d+(\.\d+)? to [-+]\d+(\.\d+)?\))?( \S{1,2})*")
"""A difference of ours, with its interval and its marks."""


def code(text: str) -> str:
    """A span of code in markdown, whatever backticks are in it."""
    text = one_line(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{text}{fence}" if len(fence) == 1 else f"{fence} {text} {fence}"


def _spaced(text: str) -> str:
    """On one line, with spaces for what is white."""
    return one_line(" ".join(text.split()))


def as_html(text: str) -> str:
    """Text and nothing else, also within quotes."""
    return html.escape(one_line(text))


def _markdown(text: str) -> str:
    """Html in markdown is live, so what could begin a tag is escaped, too."""
    return re.sub(r"([\\`*_|<>\[\]#~])", r"\\\1", _spaced(text)).replace("&", "&amp;")


TEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "†": r"$\dagger$", "‡": r"$\ddagger$",
    "§": r"\S{}", "¶": r"\P{}", "–": "--", "×": r"$\times$", "Δ": r"$\Delta$", "→": r"$\to$", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", "*": "{*}", "[": "{[}",
}  # fmt: skip


def _tex(text: str) -> str:
    r"""A star or a bracket behind the \\ of the line before would be part of that."""
    return "".join(TEX.get(letter, letter) for letter in _spaced(text))
