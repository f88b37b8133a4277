"""The text of docs/studies/stability.md around the claims: what was done, figures, one row a cell."""

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from scripts.report.statistics import geometric
from scripts.stability_claims import claims
from scripts.stability_figures import NAMES, Cells
from scripts.stability_measures import CONSTANT, at, settled_at
from scripts.stability_records import CELLS, Key, Record, every_key

PAGE = Path("docs/studies/stability.md")

HEAD = """# Stability of the state, over training, depth and seeds

What holds of the claims of *RotRNN: Modelling Long Sequences with Rotations* (arXiv 2407.07239) on the energy of its
state, at the size of a CPU, with seeds and error bars. [configs/stability.py](../../configs/stability.py) has the data,
the models and the recipe; each row of the last table is a run of `train.py --config=configs/stability.py:CELL`. The
third command is the study and goes on where it was stopped, the fourth makes this page of its runs:

    python -m scripts.prepare_data listops --length_window=24:96 --limit=20000
    python -m scripts.prepare_data fsdd --rate=1kHz
    python -m scripts.sweep --config=configs/stability.py --list={list} --out=runs/stability --workers=2
    python -m scripts.stability_report runs/stability

{cells} of its {all} cells, {hours} hours of one core in all by the clock, other work and pauses in them, on {machines},
{dates}, CPU only, float32.
{missing}
ListOps here has expressions of 25 to 95 symbols (20,000 / 2,000 / 2,000 of them), FSDD is spoken digits at 1 kHz, cut
to 1,000 samples: neither is a benchmark. Five seeds and 1,500 updates on ListOps (three and 6,000 in long runs),
three seeds and 600 updates on digits: most of this is early training. AdamW, warm-up, then a cosine down to 0. Width
64, and 64 real numbers of state a layer in every model. *small*: a rate of 3e-3, and of 1e-3 for what makes the
recurrence; *large*: 1e-2 for both. A head of RotRNN is x_t = γ R x_(t-1) + ξ B u_t, a mode of an LRU (arXiv
2303.06349) or, with its step size for γ, of S5 (arXiv 2208.04933) x_t = λ x_(t-1) + γ B u_t: see
[docs/equations.md](../equations.md). xi holds the input gain of RotRNN, *folded* multiplies it into B once, at the
start, *off* has none; *stationary*: the state starts as if the sequence had begun long ago; *P = 1*: no change of
basis. The γ of an LRU is learned, *recomputed* from the decays at each step, or left out (*no γ*).

The energy is the mean of |x_t|² over the valid steps of 64 test sequences, summed over the state of a layer, in units
of the design value: what the initial parameters give under white unit input. Every model stands on one scale; a start
other than 1 comes of the input, which is not white. Exactly, energy × (share that a zero start reaches) = gain ×
align × temporal: *gain* is what the parameters guarantee under white input, *align* what B gains by turning towards
the strong directions of its input, *temporal* the rest (inputs correlated over time, the start). There is no such
split (–) where a mode grows, |λ| ≥ 1: S5 does not forbid it, and under white input its energy has no limit. All is
measured at 31 moments of training and averaged geometrically over layers and seeds. A ratio stands with its 95 %
interval (Student's t on its logarithm, paired over seeds; not corrected for the number of intervals). It counts as
constant if the interval lies between 1/{constant} and {constant}, as moved if it lies outside.
"""
ALT = {
    "training": "state energy over training of six models, three depths, two rates",
    "depth": "state energy of each layer at the end of training",
    "time": "state energy over time within a sequence, before and after training",
    "long": "state energy over 6,000 updates, and on spoken digits",
}
CAPTIONS = {
    "training": "State energy over training, geometric means over layers (thick: over seeds, too): the small rate "
    "above, the large one below. The lines of a gain end where a mode grows.",
    "depth": "State energy of each layer of models of depth 6, at the end: a thin line a seed, thick their geometric "
    "mean.",
    "time": "State energy at the t-th step of a sequence, depth 4, means over layers: measured, and what the "
    "parameters would give under white input and under stationary input of the measured autocovariance (which the "
    "first symbols are not), in units of the stationary energy, which a zero start has yet to reach.",
    "long": "Long training, and other data; depth 4, small rate. The gain of S5 ends where a mode grows.",
}


FACTORS = ("gain", "gain_max", "align", "temporal")
"""Of the last table."""


def page(cells: Cells, drawn: Sequence[str]) -> str:
    """The page in markdown; drawn: the figures that there are."""
    if not cells:
        return HEAD.partition("\n")[0] + "\n"
    lines = [HEAD.format(**_made(cells)), *claims(cells), "## Figures", ""]
    for name in drawn:
        lines += [f"![{ALT[name]}](../figures/stability_{name}.png)", "", CAPTIONS[name], ""]
    return "\n".join([*lines, *_table(cells), ""])


def _made(cells: Cells) -> dict[str, str]:
    dates = sorted({record["date"] for record in cells.values()})
    missing = [key for key in every_key() if key not in cells]
    return {
        "cells": str(len(cells)),
        "all": str(len(every_key())),
        "hours": f"{sum(record['seconds'] for record in cells.values()) / 3600:.1f}",
        "machines": ", ".join(sorted({record["machine"] for record in cells.values()})),
        "dates": dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}",
        "missing": f"\nNot run yet: {_counted(missing)}.\n" if missing else "",
        "constant": f"{CONSTANT:g}",
        "list": str(CELLS),
    }


def _counted(keys: Sequence[Key]) -> str:
    count = Counter(NAMES[key.layer] for key in keys)
    return ", ".join(f"{name} ({number} cell{'s' * (number > 1)})" for name, number in count.items())


def _table(cells: Cells) -> list[str]:
    lines = [
        "## All cells",
        "",
        "Energy at the start and the end of training (in brackets the range over seeds), the highest of any probe; the",
        "factors at the end, the largest gain of a head or mode; the update from which the energy stays within a",
        f"tenth of its end; validation accuracy of the best checkpoints, mean ± deviation over seeds{_guesses(cells)}.",
        "",
        "| CELL | start | end | highest | gain | largest | align | temporal | settled | accuracy / % |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    return [*lines, *(_row(record) for record in cells.values())]


def _guesses(cells: Cells) -> str:
    best = [
        f"{key.task} {100 * max(record['guesses'].values()):.1f} %"
        for key, record in cells.items()
        if record["guesses"]
    ]
    return f" (best guess: {', '.join(dict.fromkeys(best))})" if best else ""


def _row(record: Record) -> str:
    start, scores = at(record, 0), [100 * value for value in record["accuracy"].values()]
    ends = {of: [*at(record, -1, of).values()] for of in ("energy", *FACTORS)}
    highest = max(v for curve in record["probes"]["energy"].values() for v in curve if v is not None)
    shown = [
        f"`{record['cell']}`",
        f"{geometric([*start.values()]):.3g}",
        f"{geometric(ends['energy']):.3g} ({min(ends['energy']):.3g} to {max(ends['energy']):.3g})",
        f"{highest:.3g}",
        *(_factor(ends[of], len(ends["energy"]), max if of == "gain_max" else geometric) for of in FACTORS),
        f"{settled_at(record):,.0f}",
        f"{statistics.fmean(scores):.1f} ± {statistics.stdev(scores):.1f}",
    ]
    return f"| {' | '.join(shown)} |"


def _factor(ends: Sequence[float], seeds: int, over: Callable[[Sequence[float]], float]) -> str:
    return f"{over(ends):.3g}" if len(ends) == seeds else f"– ({seeds - len(ends)} of {seeds} seeds)"
