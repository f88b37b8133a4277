"""Tables, figures and one page, made from the folders of runs alone: no jax, no data.

    python -m scripts.report runs --out=runs/report

Every folder is searched for runs (folders with a config.json). --out receives report.html (one file, opens offline),
report.md, tables/*.md, *.csv, *.tex and figures/*.png, *.pdf. What a run lacks is said there, with the command that
makes it; runs of another version are left out, with the reason. Energies over t, beside those of theory, are shown at
step 0 and at the last probe, or the last one up to --at=STEP.
"""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from data.errors import one_line
from scripts.arguments import Parser, positive
from scripts.report import benchmarks, stability, studies
from scripts.report.charts import all_figures
from scripts.report.page import Page
from scripts.report.runs import read_runs
from scripts.report.settings import settings_of
from training import cli
from training.files import write_atomically


def main(argv: Sequence[str]) -> None:
    """Reads the runs and writes everything."""
    parser = Parser("report", __doc__)
    parser.add_argument("folders", nargs="+", type=cli.folder, metavar="DIR")
    parser.add_argument("--out", required=True, type=cli.folder)
    parser.add_argument("--at", type=positive, metavar="STEP")
    arguments = parser.parse_args(argv[1:])
    page = make(arguments.folders, arguments.out, arguments.at)
    for line in (*page.missing, *page.left_out):
        print(one_line(line))
    print(one_line(str(arguments.out / "report.html")))


def make(folders: Sequence[Path], out: Path, at: int | None = None) -> Page:
    """Writes the report (at: see `all_figures`). Raises ConfigError for a missing folder, or one without a run."""
    runs, left_out = read_runs(folders)
    settings, twice, common = settings_of(runs)
    tables = [
        *benchmarks.tables(settings),
        stability.table(settings),
        studies.ablations(settings),
        studies.costs(settings),
    ]
    tables = [table for table in tables if table is not None]
    csvs = {
        "state_energy.csv": stability.over_training_csv(settings),
        "state_energy_over_time.csv": stability.over_time_csv(settings, at),
    }
    chosen = [] if at is None else [f"--at={at}"]
    command = shlex.join(["python", "-m", "scripts.report", *map(str, folders), f"--out={out}", *chosen])
    page = Page(
        command, common, tables, all_figures(settings, at), studies.missing(settings), [*left_out, *twice], list(csvs)
    )
    for name in ("tables", "figures"):
        (out / name).mkdir(parents=True, exist_ok=True)
    for table in tables:
        for ending, text in (("md", table.markdown()), ("csv", table.csv()), ("tex", table.tex())):
            write_atomically(out / "tables" / f"{table.name}.{ending}", text.encode())
    for name, text in csvs.items():
        write_atomically(out / "tables" / name, text.encode())
    for figure in page.figures:
        figure.draw(out / "figures")
    write_atomically(out / "report.md", page.markdown().encode())
    write_atomically(out / "report.html", page.html(out / "figures").encode())
    return page


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv))
