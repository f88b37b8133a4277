"""Tables about our own runs: ablations, what training costs, and what is missing."""

import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from scripts.report.commands import MEASURING, NO_MATTER
from scripts.report.runs import Run
from scripts.report.settings import Setting, evaluation
from scripts.report.stability import last_step, of_every, spread
from scripts.report.statistics import difference, mean_and_deviation
from scripts.report.table import Cell, Line, Table

ABLATED = {
    "normalise": ("xi", "folded", "init", "off"),
    "start": ("zero", "stationary"),
    "orthogonal": ("expm", "identity"),
    "gamma": ("learned", "recomputed", "off"),
}
"""Options of RotRNN and the LRU that are taken away, the published value first."""

OLD = "not recorded by this older run"
UNKNOWN = "–"


def ablations(settings: Sequence[Setting]) -> Table | None:
    """Settings that differ in nothing but those options, the nearest to the published one first."""
    groups: dict[tuple, list[Setting]] = {}
    for setting in settings:
        groups.setdefault(_rest(setting), []).append(setting)
    lines = [line for group in groups.values() if len(group) > 1 for line in _ablation(sorted(group, key=_distance))]
    heads = [
        "model",
        "task",
        *ABLATED,
        "test %",
        "difference to the first in % (95 %)",
        "energy",
        "gain",
        "largest gain",
    ]
    remark = (
        "In each block of rows all else is equal. Energies in units of the design value at the last step; differences "
        "are over seeds, paired where they are the same, not corrected for their number."
    )
    return (
        Table("ablations", "What normalisation, start, basis and gain do", heads, lines, [("", remark)])
        if lines
        else None
    )


def _rest(setting: Setting) -> tuple:
    """All that is equal within an ablation."""
    ablated = {f"model.options.{option}" for option in ABLATED}
    ours = {k: str(v) for k, v in setting.flat.items() if k not in ablated | NO_MATTER | MEASURING}
    return (*sorted(ours.items()), setting.data)


def _option(setting: Setting, option: str) -> str:
    return str(setting.first.config["model"]["options"].get(option, ""))


def _distance(setting: Setting) -> list[int]:
    """How many options are not as published, then which."""
    places = [known.index(given) for name, known in ABLATED.items() if (given := _option(setting, name)) in known]
    return [sum(place > 0 for place in places), *places]


def _ablation(group: Sequence[Setting]) -> list[Line]:
    base, lines = group[0].score(), []
    for setting in group:
        score, rows = setting.score(), setting.rows("probes")
        mean = gap = "–"
        if score is not None:
            middle, deviation = mean_and_deviation([100 * value for value in score.values.values()])
            mean = f"{middle:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")
        if score is not None and base is not None and setting is not group[0]:
            found = difference(score.values, base.values)
            low, high = found.interval
            gap = f"{100 * found.mean:+.2f}" + (f" ({100 * low:+.2f} to {100 * high:+.2f})" if low == low else "")
        energies = [of_every(rows, last_step(rows), quantity) for quantity in ("energy", "gain")]
        cells = [setting.label, setting.first.task, *(_option(setting, name) or "–" for name in ABLATED), mean, gap]
        cells += [*map(spread, energies), spread(of_every(rows, last_step(rows), "gain_max"), largest=True)]
        lines.append(Line([Cell(cell) for cell in cells], setting.commands(score)))
    return lines


def costs(settings: Sequence[Setting]) -> Table | None:
    """What a run of each setting takes, from its first folder."""
    lines = [Line([Cell(setting.label), *_cost(setting.first)], setting.commands()) for setting in settings]
    heads = ["model", "task", "parameters", "state, real numbers", "seeds", "ms per update", "ms per update and seed",
             "tokens/s", "peak memory, MiB", "machine"]  # fmt: skip
    remark = (
        "All seeds of a run train in one program. An update is timed by the median over the logged rows, which leaves "
        "out compilation, evaluations and probes unless they fill most rows; tokens count padding and all seeds. "
        "state: of one layer and direction. Memory: of the fullest device at its peak, where it keeps count; on a CPU "
        "of the whole process, compiler and data included. –: the run is older than the record, or too short to time."
    )
    return Table("cost", "What training costs", heads, lines, [("", remark)]) if lines else None


def _cost(run: Run) -> list[Cell]:
    facts, train = run.facts, run.config["train"]
    seeds, seconds = len(run.config["seeds"]), seconds_per_update(run)
    steps = facts.get("steps_per_record")
    texts = [
        run.task,
        *(f"{facts[key]:,}" if key in facts else UNKNOWN for key in ("parameters", "state_size")),
        str(seeds),
        *(UNKNOWN if seconds is None else f"{1000 * s:.3g}" for s in (seconds or 0, (seconds or 0) / seeds)),
        f"{seeds * train['batch_size'] * steps / seconds:,.0f}" if steps and seconds else UNKNOWN,
        f"{run.cost['peak_memory_bytes'] / 2**20:,.0f} ({run.cost['of']})" if run.cost else UNKNOWN,
        machine(facts),
    ]
    return [Cell(text) for text in texts]


def machine(facts: Any) -> str:
    """Where a run was begun, as config.json says."""
    devices = facts.get("devices", [])
    kinds = sorted({device.partition(":")[0] for device in devices})
    return f"{len(devices)} × {', '.join(kinds)}; {facts.get('cores', '?')} cores"


def seconds_per_update(run: Run) -> float | None:
    """The median over pairs of rows that follow each other, of one seed; None if there is no pair."""
    seed = run.config["seeds"][0]
    rows = [(row["step"], row["seconds"]) for row in run.training if row["seed"] == seed and row.get("seconds")]
    # Negative where a run was gone on with: the clock starts again.
    paces = [(t - s) / (b - a) for (a, s), (b, t) in pairwise(rows) if a > 0 and t > s]
    return statistics.median(paces) if paces else None


def missing(settings: Sequence[Setting]) -> list[str]:
    """One line about everything that a run should have and has not, with the command that mends it."""
    lines = []
    for setting in settings:
        for run in setting.runs:
            done, asked = max((row["step"] for row in run.training), default=0), run.config["train"]["steps"]
            train = setting.command.train(tuple(run.config["seeds"]), str(run.folder))
            if done < asked:
                lines.append(f"{run.folder}: trained {done:,} of {asked:,} updates: {train}")
            if not run.probes:
                lines.append(f"{run.folder}: no state energies: metrics.jsonl has no row of a probe")
            lines += [f"{run.folder}: {line}" for line in _unscored(run, setting)]
            if old := [name for name, there in _recent(run, done >= asked) if not there]:
                lines.append(f"{run.folder}: {OLD}: {', '.join(old)}")
    return lines


def _unscored(run: Run, setting: Setting) -> list[str]:
    command, score = evaluation(run, setting.split), setting.score()
    splits = {record["split"] for record in run.results}
    lines = [] if setting.split in splits else [f"not evaluated on {setting.split}: {command}"]
    scored = score.values if score else setting.of_seed
    absent = [seed for seed, own in setting.of_seed.items() if own is run and seed not in scored]
    if score and absent and not lines:
        lines.append(f"seeds {absent} are not in the score, which is of other checkpoints: {command}{score.flags}")
    if run.task == "sc35" and not any(record.get("every", 1) == 2 for record in run.results):
        lines.append(f"not evaluated at 8 kHz: {command} --every=2")
    return lines


def _recent(run: Run, done: bool) -> list[tuple[str, bool]]:
    """What runs record since reports are made of them, and whether this one does; memory once it is done."""
    energies = [row for row in run.probes if any(value is not None for value in row["state_energy"])]
    return [
        ("parameters, state size and length", "parameters" in run.facts),
        ("peak memory", bool(run.cost) or not done),
        ("energies of theory (state_white_t, state_coloured_t)", not energies or "state_coloured_t" in energies[0]),
    ]
