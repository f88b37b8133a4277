"""`make demo`: trains the cells of configs/demo.py, scores them, and draws their hidden-state energies.

    python -m scripts.demo [--out=runs/demo] [--data_dir=DIR]

Goes on where it was interrupted; what is finished is not computed again.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from configs import demo
from scripts.demo_summary import summarise
from training import cli
from training.workdir import RESULTS


def main(argv: Sequence[str]) -> None:
    """Prepares the data, runs every cell that is not finished, writes figure and tables."""
    parser = argparse.ArgumentParser(prog="python -m scripts.demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    parser.add_argument("--data_dir")
    arguments = parser.parse_args(argv[1:])
    folders = {cell: arguments.out / _name(cell) for cell in demo.CELLS}
    open_cells = [cell for cell, folder in folders.items() if not _finished(folder)]
    if open_cells:
        _run(open_cells, folders, cli.data_dir(arguments.data_dir))
    print(summarise(arguments.out, folders))


def _name(cell: str) -> str:
    """ "layer=lru,depth=2,rate=small" -> "lru_depth2_small"."""
    values = dict(part.split("=") for part in cell.split(","))
    return f"{values['layer']}_depth{values['depth']}_{values['rate']}"


def _finished(folder: Path) -> bool:
    """A cell is finished when its test score is recorded."""
    path = folder / RESULTS
    return path.exists() and any(record["split"] == "test" for record in json.loads(path.read_text()))


def _run(cells: list[str], folders: dict[str, Path], data_dir: Path) -> None:
    # Imported here, so that a finished demo answers at once.
    from scripts import prepare_data
    from training.config import from_config_dict
    from training.loop import train
    from training.results import score, summary_line

    if code := prepare_data.main(["listops", "--length_window=24:96", "--limit=6000", f"--data_dir={data_dir}"]):
        sys.exit(code)
    began = time.monotonic()
    for done, cell in enumerate(cells):
        left = "" if not done else f", about {_left(began, done, len(cells))} left for all"
        print(f"\n== {cell} (cell {done + 1} of {len(cells)}{left})", flush=True)
        config = from_config_dict(demo.get_config(cell).to_dict())
        train(config, folders[cell], data_dir)
        print(summary_line(score(folders[cell], data_dir, "test", "last")), flush=True)


def _left(began: float, done: int, total: int) -> timedelta:
    return timedelta(seconds=round((time.monotonic() - began) / done * (total - done)))


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv))
