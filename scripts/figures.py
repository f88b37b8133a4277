"""Figures. The only module that imports matplotlib."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D

BLOCK_COLOURS = ("#0b3c5d", "#d1495b", "#edae49", "#3a7d44", "#7b5ea7", "#5c5c5c")


@dataclass(frozen=True)
class Curve:
    """One layer and seed over training: the measured energy and the gain that its parameters guarantee."""

    block: int
    steps: Sequence[int]
    energy: Sequence[float]
    gain: Sequence[float]


@dataclass(frozen=True)
class Panel:
    """All layers and seeds of one run."""

    title: str
    curves: Sequence[Curve]


def state_energy(rows: Sequence[Sequence[Panel]], caption: str, path: Path) -> None:
    """A grid of panels, one scale a row: energy solid, gain dashed, a colour a block, a line a seed."""
    figure, axes = plt.subplots(
        len(rows), len(rows[0]), figsize=(10, 2.7 * len(rows) + 0.8), sharex=True, sharey="row", squeeze=False
    )
    blocks = sorted({curve.block for row in rows for panel in row for curve in panel.curves})
    for row, panels in zip(axes, rows, strict=True):
        for axis, panel in zip(row, panels, strict=True):
            _draw(axis, panel)
        row[0].set_ylabel("state energy / design value")
    for axis in axes[-1]:
        axis.set_xlabel("training step")
    keys = [Line2D([], [], color=BLOCK_COLOURS[b % len(BLOCK_COLOURS)], label=f"block {b + 1}") for b in blocks]
    keys += [
        Line2D([], [], color="black", label="measured state energy (a line a seed)"),
        Line2D([], [], color="black", linestyle=(0, (4, 2)), label="white-input gain of the parameters"),
    ]
    figure.legend(handles=keys, loc="upper center", ncol=len(keys), frameon=False, fontsize=9)
    figure.text(0.5, 0.008, caption, ha="center", va="bottom", fontsize=8, wrap=True)
    figure.tight_layout(rect=(0, 0.045, 1, 0.965))
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _draw(axis, panel: Panel) -> None:
    axis.set_title(panel.title, fontsize=10)
    axis.set_yscale("log")
    axis.axhline(1, color="0.75", linewidth=0.8, zorder=0)
    for curve in panel.curves:
        colour = BLOCK_COLOURS[curve.block % len(BLOCK_COLOURS)]
        axis.plot(curve.steps, curve.energy, color=colour, linewidth=1.1)
        axis.plot(curve.steps, curve.gain, color=colour, linewidth=0.9, linestyle=(0, (4, 2)))
    axis.grid(axis="y", color="0.92", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
