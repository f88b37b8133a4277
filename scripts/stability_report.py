"""The page of the study of stability: docs/studies/stability.md, its figures, and the numbers behind them.

    python -m scripts.stability_report runs/stability

The folders of finished cells of configs/stability.py (see there for the commands that make them) are condensed into
docs/studies/stability.json; cells that are kept there from before stay. From that file alone, the page and
docs/figures/stability_*.png are made: without a folder, they are made anew.
"""

import sys
from collections.abc import Sequence

from data.errors import one_line
from scripts import stability_figures
from scripts.arguments import Parser
from scripts.report.runs import read_runs
from scripts.stability_page import PAGE, page
from scripts.stability_records import RECORDS, condensed, every_key, key_of, recorded, write
from training import cli
from training.files import write_atomically


def main(argv: Sequence[str]) -> None:
    """Condenses the runs and writes the page."""
    parser = Parser("stability_report", __doc__)
    parser.add_argument("folders", nargs="*", type=cli.folder, metavar="DIR")
    arguments = parser.parse_args(argv[1:])
    records, left_out = recorded(), []
    if arguments.folders:
        runs, left_out = read_runs(arguments.folders)
        for run in runs:
            if (record := condensed(run)) is None:
                left_out.append(f"{run.folder}: not finished and scored yet")
            else:
                records[key_of(record["cell"])] = record
    order = every_key()
    cells = {key: records[key] for key in sorted(records, key=order.index)}
    write(cells.values())
    drawn = stability_figures.draw(cells)
    write_atomically(PAGE, page(cells, drawn).encode())
    for line in left_out:
        print(one_line(line))
    print(f"{len(cells)} of {len(order)} cells\n{RECORDS}\n{PAGE}")


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv))
