"""Takes the step again at which a seed of a run met a NaN or an infinity, and shows the sizes of all layers.

    python -m scripts.replay --workdir=runs/listops
    python -m scripts.replay --workdir=runs/listops --seed=3

The run has written what it met into `nonfinite/` in its folder; parameters and optimiser before that step are in every
later checkpoint. Columns: Euclidean norms of a layer's parameters and of their gradient over the batch of that step,
the mean of |x_t|^2 of its states. The last line says whether the same tensor was not finite again.

Exit code 0: done. 2: refused, one line says why.
"""

import sys
from collections.abc import Sequence

from scripts.arguments import Parser
from training import cli

COLUMNS = ("parameters", "gradient", "state_energy")


def main(argv: Sequence[str]) -> None:
    """Flags -> a table on stdout."""
    parser = Parser("replay", __doc__)
    parser.add_argument("--workdir", type=cli.folder, required=True, help="folder of the run")
    parser.add_argument("--seed", type=int, metavar="N", help="which seed; default: the one that met it first")
    parser.add_argument("--data_dir", help="folder of prepared data; default $LINREC_DATA or ~/.cache/linrec")
    flags = parser.parse_args(argv[1:])
    from training.replay import replay

    found = replay(flags.workdir, cli.data_dir(flags.data_dir), flags.seed)
    print(f"{found.incident.line}; records {' '.join(map(str, found.incident.records))} of the train split")
    print(" ".join(f"{name:>14}" for name in ("layer", *COLUMNS)))
    for layer, values in found.layers.items():
        cells = (_text(values[name]) if name in values else "" for name in COLUMNS)
        print(" ".join(f"{cell:>14}" for cell in (layer, *cells)))
    here = "everything is finite" if found.tensor is None else f"{found.tensor} is not finite"
    print(f"taken again: {here}")


def _text(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv))
