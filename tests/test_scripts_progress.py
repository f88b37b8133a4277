"""Progress in a log: plain lines, not too many, with the time left."""

from scripts.progress import Progress


def test_lines_in_a_log_tell_what_is_left(capsys):
    now = [0.0]
    with Progress(clock=lambda: now[0]) as progress:
        for done in range(0, 101, 10):
            progress("reading", done, 100)
            now[0] += 2
        progress("writing", 0, 5)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "reading: 0 of 100",
        "reading: 30 of 100, 0:00:14 left",
        "reading: 60 of 100, 0:00:08 left",
        "reading: 90 of 100, 0:00:02 left",
        "reading: 100 of 100",
        "writing: 0 of 5",
    ]
