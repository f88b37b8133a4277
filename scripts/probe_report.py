"""The page of the probes, made from docs/probes.json alone: what theory says beside what was measured."""

import statistics
from collections.abc import Sequence
from typing import Any

from configs import probes

Record = dict[str, Any]
"""One cell: see `scripts.probe_table.run_cell`."""

SOLVED = 0.99
YES, NO, LIMIT = "yes", "no", "limit"

# Which prefix products one mru layer of order 6 can hold, for every length. Orthogonal Cayley matrices have no
# eigenvalue -1, so elements of order two are only approached. ldu needs order 5 for s3 and a5.
GROUPS: tuple[str, ...] = ("parity", "mod3", "s3", "a5")
_HELD: dict[str, str] = dict.fromkeys((*GROUPS, "adding"), YES)  # to add is to turn by an angle, or to shear
_APPROACHED: dict[str, str] = {"parity": LIMIT, "mod3": YES, "s3": LIMIT, "a5": LIMIT, "adding": YES}
# A sum over the past, or one layer of attention, followed by a map of each step. To add two digits over any time needs
# a decay of exactly 1, which these layers approach, or weights of exactly 0.
_NOT_HELD: dict[str, str] = dict.fromkeys(GROUPS, NO) | {"adding": LIMIT}
_NOTHING: dict[str, str] = dict.fromkeys((*GROUPS, "copy", "adding"), NO)
THEORY: dict[str, dict[str, str]] = {
    "mlp": _NOTHING,
    **dict.fromkeys(("attention", "linear_attention", "rotrnn", "lru", "s5"), _NOT_HELD),
    **{f"mru_{variant}": _HELD for variant in probes.VARIANTS},
    "mru_orthogonal_cayley": _APPROACHED,
}
"""Can one block hold the answer at every length? A pair that is not named: no statement."""

MEANS = {
    "no mixing over time": ("mlp",),
    "attention": ("attention",),
    "sums without decay": ("linear_attention",),
    "sums with decay": ("rotrnn", "lru", "s5"),
    "rotation": ("mru_orthogonal_cayley", "mru_orthogonal_expm"),
    "rotation and shear": ("mru_ldu", "mru_qr_cayley", "mru_qr_expm", "mru_determinant"),
    "rotation, shear and decay": ("mru_identity",),
}
"""What a layer can do to its state; shear is what writes into a product of matrices, decay what makes it forget."""

HEAD = """# State-tracking probes

What one block of each layer can hold over time: trained on sequences of at most 40 steps, tested on up to 160
([data/probes.py](../data/probes.py) defines the tasks, [configs/probes.py](../configs/probes.py) the models).

`python -m scripts.probe_table`, {machine}, {dates}. {setting}

Accuracy in %, mean ± standard deviation over seeds. *val*: new sequences of the training length. *solved*: seeds that
reach 99 % there (*stopped*: that met a value that is not finite). The rate is the best of {rates} and, on word
problems unless theory says no, {one_more}; the next one is tried only if no seed solved the task at the last. *1-40*
to *121-160*: test sequences, by the step at which the answer is given. *measured*, by the best seed, because one that
was found shows that the layer can: **holds** with at least 99 % up to the last column, *short* if only at the training
length, *no* if not there either.

*theory*: whether one block can hold the answer at every length. mru: the group has a representation by matrices that
the variant reaches (*limit*: only as a limit of unbounded elements). Sums over the past (rotrnn, lru, s5, linear
attention) and one layer of attention, followed by a fixed map, track no group at every length with finite precision
([2404.08819](https://arxiv.org/abs/2404.08819), [2411.12537](https://arxiv.org/abs/2411.12537),
[1906.06755](https://arxiv.org/abs/1906.06755)), and add over any time only in the limit of a decay of 1 or of a weight
of 0; a product of matrices adds by turning an angle or by a shear; mlp sees one step only. No entry: no statement.
"""


def report(records: Sequence[Record]) -> str:
    """The page, in markdown."""
    if not records:
        return HEAD.partition("\n")[0] + "\n"
    by_task = {task: [r for r in records if r["task"] == task] for task in probes.TASKS}
    sections = [_section(task, found) for task, found in by_task.items() if found]
    return "\n".join([_head(records), _by_means(records), *sections, _agreement(records)])


def _head(records: Sequence[Record]) -> str:
    train, seeds = records[0]["config"]["train"], records[0]["config"]["seeds"]
    dates = sorted({record["date"] for record in records})
    return HEAD.format(
        machine=" and ".join(sorted({record["machine"] for record in records})),
        dates=" to ".join(sorted({dates[0], dates[-1]})),
        rates=", ".join(f"{rate:g}" for rate in probes.RATES),
        one_more=f"{probes.ONE_MORE:g}",
        setting=f"One block of width {probes.WIDTH}, {train['steps']:,} steps of batch {train['batch_size']}, seeds "
        f"{', '.join(map(str, seeds))}.",
    )


def _by_means(records: Sequence[Record]) -> str:
    """How many layers of each kind learned what, and held it."""
    lines = [
        "## What rotation, shear and decay did",
        "",
        "Pairs of a layer and a task that some seed learned at the training length, and those of them that it held at",
        "every tested length.",
        "",
        "| the state is changed by | layers | word problems: learned, held | copy | adding |",
        "|---|---|---|---|---|",
    ]
    for means, layers in MEANS.items():
        cells = [
            _learned([r for r in records if r["layer"] in layers and r["task"] in tasks]) for tasks in _KINDS_OF_TASK
        ]
        lines.append(f"| {means} | {', '.join(layers)} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


_KINDS_OF_TASK = (GROUPS, ("copy",), ("adding",))


def _learned(records: Sequence[Record]) -> str:
    verdicts = [measured(record) for record in records]
    return f"{sum(v != 'no' for v in verdicts)}, {verdicts.count('**holds**')} of {len(verdicts)}"


def _section(task: str, records: Sequence[Record]) -> str:
    bins = records[0]["bins"]
    lines = [
        f"## {task}",
        "",
        f"The most frequent label scores {100 * records[0]['majority']:.1f} %.",
        "",
        f"| layer | theory | measured | solved | rate | val | {' | '.join(bins)} |",
        "|---|---|---|---|---|---|" + "---|" * len(bins),
    ]
    for record in records:
        columns = [_spread([seed["bins"][i] for seed in record["seeds"].values()]) for i in range(len(bins))]
        lines.append(
            f"| {record['layer']} | {theory(record)} | {measured(record)} | {_solved_of_all(record)} "
            f"| {record['rate']:g} "
            f"| {_spread([seed['val'] for seed in record['seeds'].values()])} | {' | '.join(columns)} |"
        )
    curves = [_curve(record) for record in records if measured(record) == "no"]
    if curves:
        curves = ["Validation accuracy over training, of what was not learned:", "", *curves, ""]
    return "\n".join([*lines, "", *curves])


def theory(record: Record) -> str:
    """What theory says of a cell; empty: nothing."""
    return THEORY[record["layer"]].get(record["task"], "")


def measured(record: Record) -> str:
    """The verdict of the best seed."""
    if not solved(record):
        return "no"
    return "**holds**" if max(min(seed["bins"]) for seed in record["seeds"].values()) >= SOLVED else "short"


def _solved_of_all(record: Record) -> str:
    """With the seeds that stopped on a value that was not finite, and were scored where they stood."""
    dead = sum(not seed["alive"] for seed in record["seeds"].values())
    return f"{solved(record)}/{len(record['seeds'])}" + (f" ({dead} stopped)" if dead else "")


def solved(record: Record) -> int:
    """How many seeds reach SOLVED at the training length."""
    return sum(seed["val"] >= SOLVED for seed in record["seeds"].values())


def _spread(values: Sequence[float]) -> str:
    return f"{100 * statistics.fmean(values):.1f} ± {100 * statistics.stdev(values):.1f}"


def _curve(record: Record) -> str:
    points = record["runs"][f"{record['rate']:g}"]
    tried, steps = ", ".join(record["runs"]), ", ".join(str(step) for step, _ in points)
    shown = ", ".join(f"{100 * accuracy:.1f}" for _, accuracy in points)
    return f"- {record['layer']}: {shown} % at steps {steps} (rates tried: {tried})"


def _agreement(records: Sequence[Record]) -> str:
    """Where theory and measurement meet and where not, pair by pair."""
    kinds: dict[str, list[str]] = {}
    for record in records:
        said, found = theory(record), measured(record)
        if said:
            kinds.setdefault(_KINDS[said, found], []).append(f"{record['layer']} on {record['task']}")
    lines = [f"- {kind} ({len(pairs)}): {', '.join(pairs)}." for kind, pairs in sorted(kinds.items())]
    return "\n".join(["## Theory against measurement", "", *lines, ""])


_KINDS = {
    (YES, "**holds**"): "Agree: can, and holds at every tested length",
    (YES, "short"): "Open: can, was learned at the training length, does not hold beyond it",
    (YES, "no"): "Open: can, but was not learned in this budget (curves above): nothing is said of the layer",
    (NO, "**holds**"): "Disagree: cannot at every length, yet holds at 160",
    (NO, "short"): "Agree: cannot, fits the training length only",
    (NO, "no"): "Agree: cannot, and did not",
    (LIMIT, "**holds**"): "Agree: approaches, and is close enough at 160",
    (LIMIT, "short"): "Agree: approaches, good at the training length only",
    (LIMIT, "no"): "Open: could approach, was not learned in this budget",
}
