"""Runs the study of matrix recurrent units on shakespeare-char (configs/mru_study.py) and writes its page.

    python -m scripts.mru_study [--out=runs/mru_study] [--data_dir=DIR] [--models=mlp,mru_ldu]

Every model gets six trials of 500 updates with a seed that is not used later: three rates with W_in, or the spectrum,
at one rate of its own, then three more of these beside the best; a model without such a part gets six rates. Then five
seeds are trained at the best of the six, in one program. For the spikes of each MRU variant three seeds learn at one
rate with W_in as fast as all else, and once more with the author's scaling of W_in. Each core trains one model at a
time. Finished models are kept in docs/studies/mru.json, from which docs/studies/mru.md and its figure are written.
Interrupted, it goes on where it stopped.
"""

import json
import math
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from configs import mru_study
from scripts import prepare_data
from scripts.arguments import Parser, some_of
from scripts.cells import is_of, scored
from scripts.mru_report import FIGURE, Record, draw, report
from scripts.progress import Progress
from scripts.workers import machine, run_all, take_one_core
from training import cli
from training.config import ExperimentConfig, from_config_dict, to_plain
from training.describe import warn_unused_gpu
from training.errors import ConfigError
from training.files import write_atomically, write_json
from training.reading import PLAIN, Reading
from training.workdir import METRICS
from training.writers import read_metrics

RECORDS, PAGE = Path("docs/studies/mru.json"), Path("docs/studies/mru.md")

RATES = (1e-3, 3e-3, 1e-2)
MORE_RATES = (*RATES, 1.8e-3, 5.5e-3, 1.8e-2)
OWN_RATES = {"mru": 3e-4, "rotrnn": 1e-3, "lru": 1e-3, "s5": 1e-3}
"""Of what makes the recurrence (W_in, or the spectrum), held in the first three trials."""
FACTORS = (0.3, 3.0, 10.0)

SEARCH_SEED, SEEDS, SPIKE_SEEDS = "100", "0:5", "0:3"
AVERAGED = 50
SEARCH_UPDATES, UPDATES = 500, mru_study.TRAINING["updates"]


class Run(NamedTuple):
    """One call of train.py."""

    model: str
    lr: float
    share: float
    seeds: str
    updates: int
    scaling: str = "none"

    @property
    def argument(self) -> str:
        """What stands after the colon of --config=configs/mru_study.py:"""
        scaling = "" if self.scaling == "none" else f",scaling={self.scaling}"
        return (
            f"model={self.model},lr={self.lr:g},share={self.share:g},seeds={self.seeds},updates={self.updates}{scaling}"
        )


class Job(NamedTuple):
    """One model of the study."""

    model: str
    out: Path
    data_dir: Path

    def config(self, run: Run) -> ExperimentConfig:
        """The checked config of a run."""
        return from_config_dict(mru_study.get_config(run.argument).to_dict())

    def folder(self, run: Run) -> Path:
        """Where a run lies."""
        return self.out / run.argument.replace("model=", "").replace(",", "_").replace("=", "").replace(":", "to")

    def score(self, run: Run, checkpoint: str = "last", reading: Reading = PLAIN) -> Record:
        """The record of the validation split, of a run that is trained first if it was not."""
        return scored(self.config(run), self.folder(run), self.data_dir, "val", checkpoint, reading)


def main(argv: Sequence[str]) -> None:
    """Prepares the data, trains what is not finished, writes the page."""
    parser = Parser("mru_study", __doc__)
    parser.add_argument("--out", type=cli.folder, default=Path("runs/mru_study"))
    parser.add_argument("--data_dir")
    parser.add_argument("--models", type=some_of(tuple(mru_study.MODELS)), default=tuple(mru_study.MODELS))
    arguments = parser.parse_args(argv[1:])
    data_dir = cli.data_dir(arguments.data_dir)
    jobs = [Job(model, arguments.out, data_dir) for model in arguments.models]
    records = _recorded()
    open_jobs = [job for job in jobs if job.model not in records]
    if open_jobs and (code := prepare_data.main(["shakespeare_char", f"--data_dir={data_dir}"])):
        sys.exit(code)
    warn_unused_gpu()
    with Progress() as progress:
        for done, record in enumerate(run_all(run_model, open_jobs), start=1):
            records[record["model"]] = record
            progress("models", done, len(open_jobs))
            _write(records)
    _write(records)
    print(f"{RECORDS}\n{PAGE}\n{FIGURE}")


def _recorded() -> dict[str, Record]:
    """The finished models. Raises ConfigError for a damaged file."""
    try:
        found = json.loads(RECORDS.read_text()) if RECORDS.exists() else []
        report(found)
        kept = {record["model"]: record for record in found if _is_present(record)}
    except (ConfigError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{RECORDS} is damaged ({error!r}): put back the committed one") from error
    if len(kept) < len(found):
        print(f"{len(found) - len(kept)} models in {RECORDS} are of another config: they leave the page", flush=True)
    return kept


def _is_present(record: Record) -> bool:
    """Whether a record has the present config of its final run."""
    return is_of(record["config"], mru_study.get_config(record["final"]["argument"]).to_dict())


def _write(records: dict[str, Record]) -> None:
    """In the order of the config, whatever was computed first."""
    kept = [records[model] for model in mru_study.MODELS if model in records]
    RECORDS.parent.mkdir(parents=True, exist_ok=True)
    write_json(RECORDS, kept)
    draw(kept)
    write_atomically(PAGE, report(kept).encode())


def run_model(job: Job) -> Record:
    """Searches a model's rates, trains its seeds, and says what came out."""
    take_one_core()
    trials = [(run, _loss(job.score(run))) for run in first_trials(job.model)]
    trials += [(run, _loss(job.score(run))) for run in further_trials(best_of(trials))]
    final = best_of(trials)._replace(seeds=SEEDS, updates=UPDATES)
    return {
        "model": job.model,
        "trials": [{"lr": run.lr, "share": run.share, "loss": loss} for run, loss in trials],
        "final": outcome(job, final) | _elsewhere(job, final),
        "spikes": {run.scaling: outcome(job, run) for run in spike_runs(job.model)},
        "config": to_plain(job.config(final)),
        "machine": machine(),
        "date": time.strftime("%Y-%m-%d"),
    }


def first_trials(model: str) -> list[Run]:
    """Rates, with what makes the recurrence at a rate of its own; twice as many for a model without one."""
    own = OWN_RATES.get(mru_study.MODELS[model][0])
    rates = MORE_RATES if own is None else RATES
    return [Run(model, lr, 1.0 if own is None else _rounded(own / lr), SEARCH_SEED, SEARCH_UPDATES) for lr in rates]


def further_trials(best: Run) -> list[Run]:
    """Other rates of what makes the recurrence, beside the best rate of the first trials."""
    factors = FACTORS if mru_study.MODELS[best.model][0] in OWN_RATES else ()
    return [best._replace(share=_rounded(best.share * factor)) for factor in factors]


def _rounded(share: float) -> float:
    return float(f"{share:.2g}")


def best_of(trials: Sequence[tuple[Run, float | None]]) -> Run:
    """The run with the lowest loss; one that did not stay finite is the last of all."""
    return min(trials, key=lambda trial: math.inf if trial[1] is None else trial[1])[0]


def spike_runs(model: str) -> list[Run]:
    """What shows how a variant of MRU behaves when nothing slows its matrices down, and under the author's scaling."""
    if model.removeprefix("mru_") not in mru_study.VARIANTS:
        return []
    return [Run(model, 1e-3, 1.0, SPIKE_SEEDS, SEARCH_UPDATES, scaling) for scaling in ("none", "published")]


def outcome(job: Job, run: Run) -> Record:
    """What a run came to: for each seed its losses and how smoothly it trained; the curves, as means over seeds.

    val: (update, loss). train: (update, mean loss over the updates up to it). by_position: loss of each target of a
    window, at the last update.
    """
    last, best = (job.score(run, checkpoint)["seeds"] for checkpoint in ("last", "best"))
    rows = read_metrics(job.folder(run) / METRICS)
    kept = ("loss", "spikes_per_1000", "nonfinite_step", "grad_norm_peak")
    return {
        "argument": run.argument,
        "seeds": {
            seed: {key: values[key] for key in kept}
            | {"best_loss": best[seed]["loss"], "best_step": best[seed]["best_step"]}
            for seed, values in last.items()
        },
        "val": _curve(rows, "val", 1),
        "train": _curve(rows, "train", AVERAGED),
        "by_position": _by_position(last),
    }


def _elsewhere(job: Job, run: Run) -> Record:
    """The last parameters in windows four times as long, and with the state carried from window to window."""
    longest = job.score(run, "last", Reading(window=mru_study.LONGEST))["seeds"]
    found: Record = {"by_position_longest": _by_position(longest)}
    if mru_study.MODELS[job.model][0] != "mlp":
        carried = job.score(run, "last", Reading(carried=True))["seeds"]
        found["carried"] = {seed: values["loss"] for seed, values in carried.items()}
    return found


def _curve(rows: Sequence[Record], split: str, averaged: int) -> list[tuple[int, float]]:
    """(update, mean loss over seeds and over so many updates up to it), while all of it is finite."""
    by_step: dict[int, list[float]] = {}
    for row in rows:
        if row["split"] == split and row["loss"] is not None:
            by_step.setdefault(-(-row["step"] // averaged) * averaged, []).append(row["loss"])
    means = [(step, round(statistics.fmean(losses), 4)) for step, losses in by_step.items()]
    return [(step, mean) for step, mean in means if math.isfinite(mean)]


def _by_position(seeds: dict[str, Record]) -> list[float]:
    """Means over the seeds that stayed finite."""
    found = [values["loss_by_position"] for values in seeds.values() if values["loss"] is not None]
    return np.round(np.mean(np.array(found, float), 0), 4).tolist() if found else []


def _loss(record: Record) -> float | None:
    """The validation loss at the last update of the one seed of a trial; None if it did not stay finite."""
    (seed,) = record["seeds"].values()
    return seed["loss"] if seed["alive"] else None


if __name__ == "__main__":
    began = time.monotonic()
    code = cli.guarded(main, sys.argv)
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(code)
