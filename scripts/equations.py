"""The page of equations leads to lines of code; this finds rows whose line has moved, and sets them right.

    python -m scripts.equations     rewrites the line numbers of docs/equations.md

Exit code 1: a row names code that its file does not have, or has more than once at the same distance.
"""

import pathlib
import re
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parent.parent
PAGE = "docs/equations.md"
ROW = re.compile(r"^\| [^|]+ \| `([^`|]+)` \| \[([^]:]+):(\d+)\]\(\.\./([^)#]+)#L(\d+)\) \|$")
HEAD = {"| published | in the code | where |", "| --- | --- | --- |"}


class Row(NamedTuple):
    """Line of the page, code that it names, file and line where that should stand."""

    number: int
    code: str
    path: str
    at: int


def rows(text: str) -> list[Row]:
    """Every row of the page. Raises ValueError for a line with a table or a link of another form."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|") or line in HEAD:
            if "#L" in line:
                raise ValueError(f"{PAGE}:{number}: a link to a line outside of a table: {line}")
            continue
        match = ROW.match(line)
        if not match or match[2] != match[4] or match[3] != match[5]:
            raise ValueError(f"{PAGE}:{number}: not | formula | `code` | [path:line](../path#Lline) |: {line}")
        found.append(Row(number, match[1], match[2], int(match[3])))
    return found


def places(row: Row) -> list[int]:
    """The lines of its file that hold the code of a row, nearest first."""
    file = ROOT / row.path
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return sorted((i for i, line in enumerate(lines, 1) if row.code in line), key=lambda i: (abs(i - row.at), i))


def wrong(found: list[Row]) -> list[str]:
    """One line for each row whose code does not stand where it says."""
    return [
        f"{PAGE}:{row.number}: `{row.code}` is not in {row.path}:{row.at}; it stands in lines {places(row)} there"
        for row in found
        if row.at not in places(row)
    ]


def renewed(text: str) -> str:
    """The page with every row at the nearest line that holds its code."""
    lines = text.splitlines()
    for row in rows(text):
        if near := places(row):
            old, new = (f"[{row.path}:{at}](../{row.path}#L{at})" for at in (row.at, near[0]))
            lines[row.number - 1] = lines[row.number - 1].replace(old, new)
    return "\n".join(lines) + "\n"


def main() -> int:
    """Returns the exit code."""
    page = ROOT / PAGE
    text = renewed(page.read_text(encoding="utf-8"))
    page.write_text(text, encoding="utf-8")
    messages = wrong(rows(text))
    print("\n".join(messages) or f"{PAGE}: {len(rows(text))} rows stand")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
