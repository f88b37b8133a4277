"""Figures. The only module that imports matplotlib."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatter, MaxNLocator
from numpy.typing import ArrayLike

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Of Okabe and Ito: told apart by the colour-blind, too. The last is for limits and guides."""

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


FAMILIES = {
    "mlp": "#5c5c5c",
    "attention": "#0b3c5d",
    "linear_attention": "#3a8fb7",
    "rotrnn": "#3a7d44",
    "lru": "#8ab17d",
    "s5": "#edae49",
    "mru_identity": "#000000",
    "mru_determinant": "#7b5ea7",
    "mru_ldu": "#d1495b",
    "mru_qr": "#e07a5f",
    "mru_orthogonal": "#c77dba",
}
"""Colours of language models: a model has that of the longest name that it starts with, and a dash for each like it."""
DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)))


def language_losses(finals: Mapping[str, dict], window: int, path: Path) -> None:
    """Loss over updates, in training and validation, and over the position in windows of training and four times that.

    finals: model -> curves `train` and `val`, (update, loss), and `by_position_longest`, loss at each position.
    """
    figure, (train, val, position) = plt.subplots(1, 3, figsize=(10, 4.6), sharey=True)
    styles = _styles(list(finals))
    for model, final in finals.items():
        for axis, curve in ((train, final["train"]), (val, final["val"])):
            axis.plot(*zip(*curve, strict=True), linewidth=1.2, **styles[model])
        smooth = _averaged(final["by_position_longest"])
        position.plot(*zip(*smooth, strict=True), linewidth=1.2, **styles[model])
    position.axvline(window, color="0.7", linewidth=0.8, zorder=0)
    position.set_xscale("log", base=2)
    for axis, title, label in (
        (train, "training", "update"),
        (val, "validation", "update"),
        (position, "validation, by position", "position in a window (line: trained length)"),
    ):
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(label)
        axis.set_ylim(1.4, 2.8)
        axis.grid(axis="y", color="0.92", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    train.set_ylabel("loss / nats per character")
    keys = [Line2D([], [], label=model, **style) for model, style in styles.items()]
    figure.legend(handles=keys, loc="lower center", ncol=5, frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0.04 + 0.045 * -(-len(keys) // 5), 1, 1))
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _styles(models: Sequence[str]) -> dict[str, dict]:
    families = {model: max((f for f in FAMILIES if model.startswith(f)), key=len) for model in models}
    return {
        model: {
            "color": FAMILIES[family],
            "linestyle": DASHES[[m for m in models if families[m] == family].index(model) % len(DASHES)],
        }
        for model, family in families.items()
    }


def _averaged(losses: Sequence[float]) -> list[tuple[float, float]]:
    """(position from 1, mean loss), over ranges that grow with the position: single losses are noisy."""
    edges = sorted({round(2 ** (k / 3)) for k in range(1 + round(3 * math.log2(len(losses) + 1)))})
    return [
        (math.sqrt(low * (high - 1)), sum(losses[low - 1 : high - 1]) / (high - low))
        for low, high in itertools.pairwise(edges)
    ]


@dataclass(frozen=True)
class Line:
    """A curve, or points with error bars where `error` is given; `band` is (low, high) around it.

    colour: a place in COLOURS, or a colour as matplotlib names it. thin: one of many, such as a seed.
    """

    label: str
    x: ArrayLike
    y: ArrayLike
    colour: int | str
    dashed: bool = False
    dotted: bool = False
    thin: bool = False
    points: bool = False
    error: ArrayLike | None = None
    band: tuple[ArrayLike, ArrayLike] | None = None


@dataclass(frozen=True)
class Chart:
    """One pair of axes; its legend stands below it. marks: x -> text of a vertical line."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    log: str = ""
    x_limits: tuple[float, float] | None = None
    y_limits: tuple[float, float | None] | None = None
    marks: Mapping[float, str] = field(default_factory=dict)


def charts(row: Sequence[Chart], stem: Path, height: float = 3.5) -> None:
    """Charts side by side, as stem.png and stem.pdf, to be read at the width of a page (7.2 inches)."""
    with plt.rc_context(PAPER):
        figure, axes = plt.subplots(1, len(row), figsize=(7.2, height), squeeze=False, layout="constrained")
        for axis, chart in zip(axes[0], row, strict=True):
            _chart(axis, chart)
            _legend(axis, chart, short=60 // len(row))
        _save(figure, stem)


def grid(
    rows: Sequence[Sequence[Chart]], keys: Sequence[Line], stem: Path, same_y: Literal["all", "row", "none"]
) -> None:
    """Rows of charts, as stem.png and stem.pdf at the width of a page, with one legend of `keys` below them all.

    same_y: which charts have one axis y; its label stands at the first of a row then. Short rows end in space.
    """
    columns, longest = max(map(len, rows)), max((len(key.label) for key in keys), default=0)
    beside = 3 if longest <= 32 and columns > 1 else 2 if longest <= 52 and columns > 1 else 1
    height = 2.15 * len(rows) + 0.2 + 0.16 * -(-len(keys) // beside)
    with plt.rc_context(PAPER):
        figure, axes = plt.subplots(
            len(rows), columns, figsize=(7.2 if columns > 1 else 4.2, height),
            sharey=same_y, squeeze=False, layout="constrained",
        )  # fmt: skip
        for places, row in zip(axes, rows, strict=True):
            for place, axis in enumerate(places):
                if place >= len(row):
                    axis.set_axis_off()
                    continue
                _chart(axis, row[place])
                _plain_numbers(axis)
                if same_y != "none" and place:
                    axis.set_ylabel("")
        handles = [_handle(key) for key in keys]
        figure.legend(handles=handles, loc="outside lower center", ncol=min(beside, len(keys)), frameon=False)
        _save(figure, stem)


def _dashes(line: Line) -> Any:
    """As matplotlib names a style."""
    return (0, (4, 2)) if line.dashed else (0, (1, 1.5)) if line.dotted else "-"


def _handle(key: Line) -> Line2D:
    width = 0.6 if key.thin else 1.2
    style, marker = ("", "o") if key.points else (_dashes(key), "")
    return Line2D([], [], color=_colour(key), linestyle=style, marker=marker, ms=2.6, lw=width, label=_plain(key.label))


class _Plain(LogFormatter):
    """Labels the ticks that matplotlib would, as 0.3 instead of 3 x 10^-1."""

    def __call__(self, x, pos=None):
        return f"{x:g}" if super().__call__(x, pos) else ""


def _plain_numbers(axis) -> None:
    """Whole numbers along x: steps and layers have no fractions."""
    for scale in (axis.xaxis, axis.yaxis):
        if scale.get_scale() == "log":
            scale.set_major_formatter(_Plain())
            scale.set_minor_formatter(_Plain(minor_thresholds=(1, 0.4)))
        elif scale is axis.xaxis:
            scale.set_major_locator(MaxNLocator(5, integer=True))


def sequential(count: int) -> list[str]:
    """Colours of an order, such as that of layers, from dark to light; told apart by the colour-blind, too."""
    return [to_hex(mpl.colormaps["viridis"](0.85 * place / max(count - 1, 1))) for place in range(count)]


PAPER: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "legend.fontsize": 7,
    "legend.handlelength": 1.8,
    "pdf.fonttype": 42,
}


def _save(figure, stem: Path) -> None:
    for ending in ("png", "pdf"):
        # No date in the file: the same numbers give the same bytes.
        dated = {"CreationDate": None} if ending == "pdf" else None
        figure.savefig(stem.with_suffix(f".{ending}"), dpi=150, metadata=dated)
        figure.set_layout_engine("none")  # as laid out once: the pdf has the places of the png
    plt.close(figure)


def _colour(line: Line) -> str:
    return COLOURS[line.colour] if isinstance(line.colour, int) else line.colour


def _plain(text: str) -> str:
    """As it is: matplotlib would read a formula between dollars, and leave out what begins with an underscore."""
    return f"{' ' * text.startswith('_')}{text}".replace("$", r"\$")


def _chart(axis, chart: Chart) -> None:
    # Before anything is drawn: the margins depend on the scale.
    axis.set_xscale("log" if "x" in chart.log else "linear")
    axis.set_yscale("log" if "y" in chart.log else "linear")
    for line in chart.lines:
        colour, style = _colour(line), _dashes(line)
        if line.band:
            axis.fill_between(line.x, *line.band, color=colour, alpha=0.18, linewidth=0)
        if line.points or line.error is not None:
            axis.errorbar(
                line.x, line.y, line.error, color=colour, fmt="o", ms=2.6, lw=0.9, capsize=1.5, label=line.label
            )
        else:
            # Guides lie on top: a dashed line would vanish under the curve that it agrees with.
            order = 3 if line.dashed or line.dotted else 2
            width, alpha = (0.6, 0.6) if line.thin else (1.2, 1)
            axis.plot(
                line.x, line.y, color=colour, linestyle=style, lw=width, alpha=alpha, label=line.label, zorder=order
            )
    axis.set(title=_plain(chart.title), xlabel=chart.x, ylabel=chart.y)
    # Only where asked for: it would end the scaling of axes that are shared.
    if chart.x_limits:
        axis.set_xlim(chart.x_limits)
    if chart.y_limits:
        axis.set_ylim(chart.y_limits)
    for place, text in chart.marks.items():
        axis.axvline(place, color="0.6", lw=0.8, zorder=0)
        axis.annotate(
            text,
            (place, 0.98),
            (2, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            fontsize=7,
            color="0.35",
            va="top",
        )
    axis.grid(color="0.92", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def _legend(axis, chart: Chart, short: int) -> None:
    """Below the axes, in two columns if there are many labels and none has more than `short` characters."""
    labels = [line.label for line in chart.lines if line.label]
    columns = 2 if len(labels) > 3 and max(map(len, labels)) <= short else 1
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncol=columns, frameon=False, columnspacing=1.0)
