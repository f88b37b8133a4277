"""Trains the models of 6 + 6 sublayers on shakespeare-char at their published sizes, for one accelerator.

    python -m scripts.mru_device --minutes=10 [--out=runs/mru_device] [--data_dir=DIR] [--seeds=0:1] [--smoke]

One run after the other, the most telling first (ROWS), each scored on the validation split; the table is printed at the
end. When the minutes are over, the run in progress is saved and the command ends with exit code 75; the same command
goes on there. Rows that are not finished are named. A row whose seeds do not stay finite is a
result, and the next one follows.
"""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from configs import shakespeare_char
from scripts import prepare_data
from scripts.arguments import Parser, positive
from scripts.cells import scored
from training import cli
from training.config import ExperimentConfig, from_config_dict
from training.errors import ConfigError, PreemptedError
from training.results import Record, find_record, read_results
from training.workdir import RESULTS

ROWS = {
    "attention_rope": "model=transformer_6_6",
    **{f"mru_{v}": f"model=mru_6_6,variant={v}" for v in ("identity", "ldu", "qr_cayley", "determinant")},
    "mru_orthogonal_cayley": "model=mru_6_6,variant=orthogonal_cayley",
    "attention_none": "model=transformer_6_6,position=none",
    "attention_xpos_512": "model=transformer_6_6,position=xpos_512",
    **{f"mru_{v}": f"model=mru_6_6,variant={v}" for v in ("qr_expm", "orthogonal_expm")},
}


def main(argv: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
    """Trains and scores row by row until the time is over, and prints the table."""
    parser = Parser("mru_device", __doc__)
    parser.add_argument("--out", type=cli.folder, default=Path("runs/mru_device"))
    parser.add_argument("--data_dir")
    parser.add_argument("--minutes", type=positive, default=10)
    parser.add_argument("--seeds", default="0:1")
    parser.add_argument("--smoke", action="store_true")
    arguments = parser.parse_args(argv[1:])
    end = clock() + 60 * arguments.minutes
    data_dir = cli.data_dir(arguments.data_dir)
    if not arguments.smoke and (code := prepare_data.main(["shakespeare_char", f"--data_dir={data_dir}"])):
        sys.exit(code)
    stopped = None
    for name in ROWS:
        try:
            _run(_config(name, arguments.seeds, smoke=arguments.smoke), arguments.out / name, data_dir, end, clock)
        except PreemptedError as error:
            stopped = PreemptedError(f"{name}: {error}")
            break
    print("\n".join(table({name: read_results(arguments.out / name / RESULTS) for name in ROWS})))
    if stopped:
        raise stopped


def _config(name: str, seeds: str, *, smoke: bool) -> ExperimentConfig:
    try:
        config = shakespeare_char.get_config(f"{ROWS[name]},seeds={seeds}" + ",smoke" * smoke)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    config.update({"train": {"log_every": 1}})  # a spike may last for one update only
    return from_config_dict(config.to_dict())


def _run(config: ExperimentConfig, folder: Path, data_dir: Path, end: float, clock: Callable[[], float]) -> None:
    """Trains and scores one row, unless that was done. Raises PreemptedError when the time is over."""
    for checkpoint in CHECKPOINTS:
        if clock() > end and find_record(read_results(folder / RESULTS), "val", checkpoint) is None:
            raise PreemptedError("not finished")
        scored(config, folder, data_dir, "val", checkpoint, to_stop=lambda: clock() > end)


CHECKPOINTS = ("last", "best")


def table(results: dict[str, list[Record]]) -> list[str]:
    """Row -> its records, as lines of markdown; rows that are not scored are named at the end."""
    lines = [
        "| model | loss at the end / nats | lowest, at update | spikes per 1,000 | not finite at |",
        "|---|---|---|---|---|",
    ]
    missing = []
    for name, records in results.items():
        last, best = (find_record(records, "val", checkpoint) for checkpoint in CHECKPOINTS)
        if last is None or best is None:
            missing.append(name)
            continue
        ends = last["seeds"].values()
        lowest = ", ".join(f"{_number(s['loss'])} at {s['best_step']}" for s in best["seeds"].values())
        columns = [", ".join(_number(s[key]) for s in ends) for key in ("loss", "spikes_per_1000", "nonfinite_step")]
        lines.append(f"| {name} | {columns[0]} | {lowest} | {columns[1]} | {columns[2]} |")
    return [*lines, *([f"not finished: {', '.join(missing)}"] if missing else [])]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, int) else f"{value:.4f}"


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv))
