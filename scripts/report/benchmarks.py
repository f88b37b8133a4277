"""Tables of tasks: our settings beside the published rows."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from scripts.report.published import ARENA, HEADS, Published, Value, five_task_mean, published, six_task_mean
from scripts.report.settings import Score, Setting
from scripts.report.statistics import LEVEL, Compared, all_pairs, best, mean_and_deviation
from scripts.report.table import Cell, Line, Table

COLOUR, TEST_SELECTED, PADDED, LAST, DEAD = "†", "*", "‡", "§", "¶"
MARKS = {
    COLOUR: "colour CIFAR-10, another task than the grey Image column: no strict LRA average contains it",
    TEST_SELECTED: "the epoch was selected on the test set, as in the published code",
    PADDED: "padding is input to the layers, as in published code; unmarked rows of ours leave it out of everything",
    LAST: "the last checkpoint, none was selected",
    DEAD: "a seed met a value that was not finite and stood still from there",
}
OURS = (
    "Rows of ours: mean ± deviation over seeds in % (number of seeds; half of the 95 % interval that one test set of "
    "that size leaves). Bold: the best of our rows in a column, where it differs from every other one of ours by more "
    "than the error (p < 0.05 over the seeds, paired where they are the same, Holm-corrected over all pairs)."
)
PUBLISHED = (
    "Published rows take padding as input, and choose the epoch of Text on the test set; ours do so only where marked."
)
RULES = (
    "5-task: mean without Path-X. 6-task: all six, a failed Path-X counts as 50. Both are computed from the cells "
    "here; printed: what the source prints."
)
ALONE = ("path256", "scifar", "smnist", "psmnist", "sc10")
SPEECH = ("sc35", "sc35_8k")
PLACES = (*ARENA, *SPEECH, *ALONE)
"""Columns that have a table of their own."""


class Placed(NamedTuple):
    """A score in its place: row and column of a table."""

    setting: Setting
    column: str
    score: Score


def tables(settings: Sequence[Setting]) -> list[Table]:
    """Benchmarks first, then what is none, then every pair that was compared."""
    scored = [
        Placed(setting, column, score)
        for setting in settings
        for column, every in _columns(setting.first.task)
        if (score := setting.score(every=every)) is not None
    ]
    whole = [placed for placed in scored if not placed.score.why_not]
    parts = [placed for placed in scored if placed.score.why_not]
    found = [
        _arena([placed for placed in whole if placed.column in ARENA]),
        _speech([placed for placed in whole if placed.column in SPEECH]),
        *(_alone(task, [placed for placed in whole if placed.column == task]) for task in ALONE),
        _others([placed for placed in whole if placed.column not in PLACES]),
        _parts(parts),
        _pairs(scored),
    ]
    return [table for table in found if table is not None]


def _columns(task: str) -> list[tuple[str, int]]:
    """(column, samples in one) that runs on a task may have scores for."""
    return [(task, 1), ("sc35_8k", 2)] if task == "sc35" else [(task, 1)]


def _arena(placed: Sequence[Placed]) -> Table:
    bold, notes = _bold(placed), Notes()
    lines = [_published_arena(row, notes) for row in published() if any(task in row.values for task in ARENA)]
    for label, own in _rows(placed):
        means = [mean_and_deviation([*own[t].score.values.values()])[0] * 100 if t in own else None for t in ARENA]
        cells = [_own(own[t], bold, notes) if t in own else Cell() for t in ARENA]
        averages = [Cell(_number(rule(means))) for rule in (five_task_mean, six_task_mean)]
        commands = tuple(c for p in own.values() for c in p.setting.commands(p.score))
        lines.append(Line([Cell(label), *cells, *averages, Cell()], commands))
    columns = ["model", *(HEADS[task] for task in ARENA), "5-task", "6-task", "printed"]
    return Table("lra", "Long Range Arena, test accuracy in %", columns, lines, notes.lines(OURS, PUBLISHED, RULES))


def _published_arena(row: Published, notes: "Notes") -> Line:
    found = [row.arena(task) for task in ARENA]
    values = [None if value is None else value.accuracy for value, _ in found]
    failed = found[5][0] is not None and found[5][0].failed
    cells = [_value(value, notes, colour) for value, colour in found]
    printed = row.values.get("average_printed")
    averages = [Cell(_number(five_task_mean(values))), Cell(_number(six_task_mean(values, failed)))]
    return Line([Cell(row.model), *cells, *averages, _value(printed, notes)], source=row.source)


def _speech(placed: Sequence[Placed]) -> Table:
    return _beside("speech_commands", "Speech Commands, 35 words, raw audio, test accuracy in %", SPEECH, placed)


def _rows(placed: Sequence[Placed]) -> list[tuple[str, dict[str, Placed]]]:
    """Settings of one label in one row; a second one on the same task, of other data, in a row of its own."""
    rows: list[tuple[str, dict[str, Placed]]] = []
    for p in placed:
        place = next((row for label, row in rows if label == p.setting.label and p.column not in row), None)
        if place is None:
            rows.append((p.setting.label, place := {}))
        place[p.column] = p
    return rows


def _alone(task: str, placed: Sequence[Placed]) -> Table | None:
    """A task of its own, if we have a row."""
    return _beside(task, f"{HEADS[task]}, test accuracy in %", (task,), placed) if placed else None


def _beside(name: str, title: str, columns: Sequence[str], placed: Sequence[Placed]) -> Table:
    bold, notes = _bold(placed), Notes()
    lines = [
        Line([Cell(row.model), *(_value(row.values.get(column), notes) for column in columns)], source=row.source)
        for row in published()
        if any(column in row.values for column in columns)
    ]
    for label, own in _rows(placed):
        commands = tuple(dict.fromkeys(c for p in own.values() for c in p.setting.commands(p.score)))
        cells = [_own(own[c], bold, notes) if c in own else Cell() for c in columns]
        lines.append(Line([Cell(label), *cells], commands))
    return Table(name, title, ["model", *(HEADS[column] for column in columns)], lines, notes.lines(OURS))


def _others(placed: Sequence[Placed]) -> Table | None:
    return _list("other_tasks", "Other tasks, scores on test data (texts: validation)", placed, "complete data")


def _parts(placed: Sequence[Placed]) -> Table | None:
    return _list("not_the_benchmark", "Parts, shortened and smoke data: no rows of a benchmark", placed, "")


def _list(name: str, title: str, placed: Sequence[Placed], what: str) -> Table | None:
    """One row a setting and task, with what guessing scores."""
    bold, notes = _bold(placed), Notes()
    lines = [
        Line(
            [
                Cell(p.setting.label),
                Cell(p.column),
                Cell("; ".join(p.score.why_not) or what),
                _own(p, bold, notes),
                Cell(_guesses(p.score)),
            ],
            p.setting.commands(p.score),
        )
        for p in placed
    ]
    columns = ["model", "task", "data", "score", "guessing scores"]
    return Table(name, title, columns, lines, notes.lines(OURS)) if lines else None


def _guesses(score: Score) -> str:
    guesses = (score.record.get("baselines") or {}).items()
    return ", ".join(f"{name.replace('_', ' ')} {_score_text(value, score)}" for name, value in guesses) or "–"


def _score_text(value: float, score: Score) -> str:
    return f"{100 * value:.1f}" if score.is_accuracy else f"{value:.3f} nats"


class Notes:
    """The marks that a table has used, and its caveats, numbered as they come."""

    def __init__(self) -> None:
        self._used: dict[str, str] = {}

    def mark(self, mark: str) -> str:
        self._used[mark] = MARKS[mark]
        return mark

    def caveat(self, text: str) -> str:
        known = {note: mark for mark, note in self._used.items()}
        if text not in known:
            place = sum(mark.isalpha() for mark in self._used)
            self._used[known.setdefault(text, _letters(place))] = text
        return known[text]

    def lines(self, *remarks: str) -> list[tuple[str, str]]:
        return [*(("", remark) for remark in remarks), *self._used.items()]


def _letters(place: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    return (chr(96 + place // 26) if place >= 26 else "") + chr(97 + place % 26)


def _value(value: Value | None, notes: Notes, colour: bool = False) -> Cell:
    if value is None:
        return Cell()
    marks = (notes.mark(COLOUR),) if colour else ()
    if value.failed:
        text = "fail"
    else:
        spread = "" if value.std is None else f" ± {value.std:g}"
        text = "–" if value.accuracy is None else f"{value.accuracy:.2f}{spread}"
    if value.caveat and not colour:
        marks += (notes.caveat(value.caveat),)
    return Cell(text, marks=marks)


def _number(value: float | None) -> str:
    # Half up, as the sources round: 57.705 is less than that in binary.
    return "–" if value is None else f"{value + 1e-9:.2f}"


def _own(placed: Placed, bold: set[tuple[int, str]], notes: Notes) -> Cell:
    """A score of ours with what is to be known of it."""
    setting, score = placed.setting, placed.score
    marks = [
        mark
        for mark, holds in (
            (COLOUR, placed.column == "scifar"),
            (TEST_SELECTED, score.test_selected),
            (PADDED, setting.first.config["model"].get("padding", "full") != "full"),
            (LAST, score.record["checkpoint"] == "last"),
            (DEAD, bool(score.dead)),
        )
        if holds
    ]
    return Cell(_score(score), (id(setting), placed.column) in bold, tuple(notes.mark(mark) for mark in marks))


def _score(score: Score) -> str:
    mean, deviation = mean_and_deviation([*score.values.values()])
    seeds = len(score.values)
    if not score.is_accuracy:
        return f"{mean:.3f}{'' if deviation is None else f' ± {deviation:.3f}'} nats ({seeds})"
    spread = "" if deviation is None else f" ± {100 * deviation:.2f}"
    return f"{100 * mean:.2f}{spread} ({seeds}; ±{100 * half_interval(mean, score.record['count']):.2f})"


def half_interval(accuracy: float, count: int) -> float:
    """Half of the 95 % Wilson interval of an accuracy on `count` records (J. Am. Stat. Assoc. 22, 1927)."""
    z = 1.959963984540054
    return z / (1 + z * z / count) * math.sqrt(accuracy * (1 - accuracy) / count + z * z / (4 * count * count))


def _columns_of(placed: Sequence[Placed]) -> dict[tuple[str, str], list[Placed]]:
    """(column, records) -> what was scored there: only the same records compare."""
    found: dict[tuple[str, str], list[Placed]] = {}
    for p in placed:
        if p.score.is_accuracy:
            found.setdefault((p.column, p.score.record.get("data_sha256", "")), []).append(p)
    return found


def _bold(placed: Sequence[Placed]) -> set[tuple[int, str]]:
    """(identity of the setting, column) of what stands out."""
    found = _columns_of(placed).items()
    tops = [(best({str(i): p.score.values for i, p in enumerate(column)}), name, column) for (name, _), column in found]
    return {(id(column[int(top)].setting), name) for top, name, column in tops if top is not None}


def _pairs(placed: Sequence[Placed]) -> Table | None:
    """Every pair of our settings on the same test records."""
    lines = [
        Line([Cell(column), Cell(pair.a), Cell(pair.b), *_pair(pair)], source="the rows a and b above")
        for (column, _), found in _columns_of(placed).items()
        for pair in all_pairs({p.setting.label: p.score.values for p in found})
    ]
    columns = ["task", "a", "b", "a - b in % (95 %)", "p", "p, Holm", "seeds"]
    remark = (
        "The interval and p are over seeds, on one test set: they do not say how another test set would decide. No "
        "interval: fewer than two seeds, or no spread over them."
    )
    return Table("pairs", "Differences between settings", columns, lines, [("", remark)]) if lines else None


def _pair(pair: Compared) -> list[Cell]:
    found = pair.difference
    low, high = found.interval
    spread = "" if math.isnan(low) else f" ({100 * low:+.2f} to {100 * high:+.2f})"
    how = "paired" if found.paired else "not the same: Welch"
    p = ["–" if math.isnan(p) else f"{p:.3g}" for p in (found.p, pair.corrected)]
    return [
        Cell(f"{100 * found.mean:+.2f}{spread}", pair.corrected < LEVEL),
        *map(Cell, p),
        Cell(f"{found.seeds}, {how}"),
    ]
