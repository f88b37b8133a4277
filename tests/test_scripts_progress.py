"""Progress: plain lines in a log, not too many, with the time left; a bar on a terminal."""

import io

from scripts.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_in_a_log_tell_what_is_left(capsys):
    now = [0.0]
    with Progress(clock=lambda: now[0]) as progress:
        for done in range(0, 101, 10):
            progress("reading", done, 100)
            now[0] += 2
        progress("writing", 0, 5)
        progress("streaming", 7_000, 0)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "reading: 0 of 100",
        "reading: 30 of 100, 0:00:14 left",
        "reading: 60 of 100, 0:00:08 left",
        "reading: 90 of 100, 0:00:02 left",
        "reading: 100 of 100",
        "writing: 0 of 5",
        "streaming: 7,000",
    ]


def test_a_clock_that_jumps_back_or_by_ages_is_followed(capsys):
    now = [0.0]
    with Progress(clock=lambda: now[0]) as progress:
        for done, now[0] in enumerate((0.0, 1e40, -1e40, 1 - 1e40)):
            progress("reading", done, 100)
    first, far, back = capsys.readouterr().err.splitlines()
    assert (first, back) == ("reading: 0 of 100", "reading: 2 of 100, 0:00:00 left")
    assert far.startswith("reading: 1 of 100, ")
    assert " days, " in far


def test_a_terminal_shows_a_bar_for_each_stage(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    with Progress() as progress:
        for stage in ("reading", "writing"):
            for done in (0, 5, 10):
                progress(stage, done, 10)
    text = screen.getvalue()
    for stage in ("reading", "writing"):
        assert f"\r{stage}: 100%|" in text
        assert "10.0/10.0" in text
    assert "10 of 10" not in text
