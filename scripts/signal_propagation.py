"""Signal propagation at finite width: figures and tables of docs/studies/signal_propagation.md.

    python -m scripts.signal_propagation --out=runs/signal [--json=FILE] [--draws=1000] [--widths=16,64,256]

Exact energies need no time; weights are drawn for `--widths`, complex and real, on any device: D = --draws of width 256
and D 256/n of width n, at least 16. Draws are kept in OUT/draws and not computed again; interrupted, the same command
goes on. OUT gets a PNG and a PDF of each figure and tables.md; --json gets the numbers behind them.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from scripts.arguments import Parser, positive
from scripts.progress import Progress
from scripts.signal_figures import figures
from scripts.signal_study import Study, draw
from scripts.signal_tables import numbers, tables
from training import cli
from training.errors import ConfigError
from training.files import write_atomically

WIDEST, MOST_DRAWS = 8192, 100_000


def main(argv: Sequence[str]) -> None:
    """Draws, plots, prints."""
    parser = Parser("signal_propagation", __doc__)
    parser.add_argument("--out", type=cli.folder, required=True, metavar="FOLDER")
    parser.add_argument("--json", type=cli.folder, metavar="FILE")
    parser.add_argument("--draws", type=_draws, default=1000)
    parser.add_argument("--widths", type=_widths, default=(16, 64, 256))
    arguments = parser.parse_args(argv[1:])
    kept = arguments.out / "draws"
    if arguments.json and not (arguments.json.parent == arguments.out or arguments.json.parent.is_dir()):
        raise ConfigError(f"--json={arguments.json}: there is no folder {arguments.json.parent}")
    if arguments.json and (arguments.json.is_dir() or arguments.json in (arguments.out, kept)):
        raise ConfigError(f"--json={arguments.json} is a folder: expected a file in it, or elsewhere")
    kept.mkdir(parents=True, exist_ok=True)
    with Progress() as progress:
        study = _study(arguments.widths, arguments.draws, kept, progress)
    pages = tables(study)
    write_atomically(arguments.out / "tables.md", pages.encode())
    if arguments.json:
        write_atomically(arguments.json, (json.dumps(numbers(study), indent=1) + "\n").encode())
    print(pages)
    for path in figures(study, arguments.out):
        print(path)


def _study(widths: tuple[int, ...], draws: int, folder: Path, progress: Progress) -> Study:
    try:
        return draw(widths, draws, folder, progress)
    except ValueError as error:  # a damaged file of draws
        raise ConfigError(str(error)) from error


def _draws(text: str) -> int:
    found = positive(text)
    if found > MOST_DRAWS:
        raise argparse.ArgumentTypeError(f"{found} draws: expected at most {MOST_DRAWS}, all are held in memory")
    return found


def _widths(text: str) -> tuple[int, ...]:
    found = tuple(positive(part) for part in text.split(","))
    if min(found) < 4:
        raise argparse.ArgumentTypeError(f"width {min(found)}: expected at least 4, the number of probes")
    if max(found) > WIDEST:
        raise argparse.ArgumentTypeError(f"width {max(found)}: expected at most {WIDEST}, a matrix is drawn whole")
    return tuple(sorted(set(found)))


if __name__ == "__main__":
    began = time.monotonic()
    code = cli.guarded(main, sys.argv)
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(code)
