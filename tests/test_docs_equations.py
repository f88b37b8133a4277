"""The page of equations: every row points at the line of code that it names."""

import pytest

from scripts.equations import PAGE, ROOT, renewed, rows, wrong

FOLDERS = {"rotrnn", "lru", "s5", "mru", "attention", "mlp", "dense", "scans", "models", "linalg", "training"}


def page():
    return (ROOT / PAGE).read_text(encoding="utf-8")


def test_every_row_points_at_its_code():
    messages = wrong(rows(page()))
    assert not messages, "\n".join([*messages, "python -m scripts.equations sets lines right that have moved"])


def test_a_row_that_is_off_by_a_line_or_names_no_file_is_found():
    for row in rows(page()):
        for moved in (row._replace(at=row.at - 1), row._replace(at=row.at + 1), row._replace(path="no/" + row.path)):
            assert wrong([moved]), f"{PAGE}:{row.number}: `{row.code}` does not tell its line from its neighbour"


def test_moved_lines_are_set_right():
    text, row = page(), rows(page())[0]
    old, new = (f"[{row.path}:{at}](../{row.path}#L{at})" for at in (row.at, row.at + 3))
    assert len(wrong(rows(text.replace(old, new)))) >= 1
    assert renewed(text.replace(old, new)) == text


def test_a_row_of_another_form_is_refused():
    with pytest.raises(ValueError, match=r"not \| formula"):
        rows("| lambda | log_mag | [scans/diagonal.py:1](../scans/diagonal.py#L1) |")
    with pytest.raises(ValueError, match="outside of a table"):
        rows("see [scans/diagonal.py:1](../scans/diagonal.py#L1)")


def test_every_family_is_reached():
    found = rows(page())
    assert len(found) >= 200
    assert {row.path.split("/")[0] for row in found} >= FOLDERS
