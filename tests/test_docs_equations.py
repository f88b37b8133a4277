"""The page of equations: every row points at the line of code that it names."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parent.parent
PAGE = "docs/equations.md"
ROW = re.compile(r"^\| [^|]+ \| `([^`|]+)` \| \[([^]:]+):(\d+)\]\(\.\./([^)#]+)#L(\d+)\) \|$")
HEAD = {"| published | in the code | where |", "| --- | --- | --- |"}
FOLDERS = {"rotrnn", "lru", "s5", "mru", "attention", "mlp", "scans", "models", "linalg", "training"}


def page():
    return (ROOT / PAGE).read_text(encoding="utf-8")


def rows(text):
    """(line of the page, code, path, line number) of every row; a table line of another form is an error."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|") or line in HEAD:
            assert "#L" not in line, f"{PAGE}:{number}: a link to a line outside of a table: {line}"
            continue
        match = ROW.match(line)
        assert match, f"{PAGE}:{number}: not of the form | formula | `code` | [path:line](../path#Lline) |: {line}"
        code, shown, shown_line, path, at = match.groups()
        assert (shown, shown_line) == (path, at), f"{PAGE}:{number}: text and target of the link differ: {line}"
        found.append((number, code, path, int(at)))
    return found


def wrong(found):
    """One message for each row whose file does not exist or whose line lacks the code."""
    messages = []
    for number, code, path, at in found:
        file = ROOT / path
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        if not 1 <= at <= len(lines) or code not in lines[at - 1]:
            places = [place for place, line in enumerate(lines, 1) if code in line]
            messages.append(f"{PAGE}:{number}: `{code}` is not in {path}:{at}; it stands in lines {places} there")
    return messages


def test_every_row_points_at_its_code():
    messages = wrong(rows(page()))
    assert not messages, "\n".join(messages)


def test_a_row_that_is_off_by_a_line_or_names_no_file_is_found():
    for number, code, path, at in rows(page()):
        for moved in ((number, code, path, at - 1), (number, code, path, at + 1), (number, code, "no/" + path, at)):
            assert wrong([moved]), f"{PAGE}:{number}: `{code}` does not tell {path}:{at} from its neighbour"


def test_every_family_is_reached():
    found = rows(page())
    assert len(found) >= 200
    assert {path.split("/")[0] for _, _, path, _ in found} >= FOLDERS
