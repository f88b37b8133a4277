"""Scores of checkpoints, recorded in results.json."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from data.prepared import Opened
from data.registry import read_name, resolved_choices
from data.spec import InputKind, TaskKind
from training import checkpoint
from training.config import ExperimentConfig
from training.errors import ConfigError
from training.evaluate import binomial_interval, bits, evaluate, guesses_line, interval_text, metric_of
from training.files import write_json
from training.loop import load_data
from training.mesh import make_mesh
from training.start import abstract_state
from training.state import Affine, Program, TrainState, make_program
from training.step import make_eval_step
from training.workdir import CHECKPOINTS, RESULTS, read_config, refuse_other_data

Record = dict[str, Any]


def score(workdir: Path, data_dir: Path, split: str, which: str, step_rescale: float = 1.0, every: int = 1) -> Record:
    """Scores `which` ("best": each seed's own, "last", or a step) on a split and records it.

    step_rescale: see `rescaled`. every: take every so many samples of the normalised input, with steps rescaled by as
    much again; no filter comes before, as in the published test at 8 kHz. A record of the same split, checkpoint,
    rescale and samples is replaced. Raises ConfigError if there is no such run or checkpoint, a layer that knows no
    rates, inputs that are no samples, DataError if the data are missing.
    """
    config, run = read_config(workdir)
    if every < 1:
        raise ConfigError(f"--every={every}: expected at least 1")
    config = rescaled(config, step_rescale * every)
    step = asked_step(which)
    read_results(workdir / RESULTS)  # damage is said before the work and not after it
    data = load_data(config, data_dir)
    refuse_other_data(workdir, run, data.content_sha256)
    program = make_program(config, data.spec, data.affine and Affine(*data.affine))
    _refuse_skipping(program, every)
    restored = checkpoint.restore(workdir / CHECKPOINTS, abstract_state(program), step, read_only=True)
    if restored is None:
        raise ConfigError(f"{workdir} has no checkpoint yet: train it first")
    state: TrainState = restored.tree
    source = state.best if which == "best" else state
    mesh = make_mesh(config.train.eval_batch_size, "train.eval_batch_size")
    size = config.train.eval_batch_size
    found = evaluate(make_eval_step(program, every), source.params, source.stats, data.splits[split], size, mesh)
    steps = np.asarray(state.best.step) if which == "best" else np.full(len(config.seeds), restored.step)
    record = _record(program, data, split, which, steps, np.asarray(state.alive), found)
    record |= {"step_rescale": step_rescale, "every": every}
    if step_rescale * every != 1:
        record["rule"] = _rate_option(config)
    if repairs := [*restored.meta["repairs"], *restored.repairs]:
        record["repairs"] = repairs
    others = [other for other in read_results(workdir / RESULTS) if _key(other) != _key(record)]
    write_json(workdir / RESULTS, [*others, record])
    return record


def _refuse_skipping(program: Program, every: int) -> None:
    if every > 1 and (program.task.input_kind, program.task.kind) != (InputKind.CHANNELS, TaskKind.CLASSIFICATION):
        raise ConfigError(f"--every={every}: {program.task.name} has no samples that could be left out")


def _rate_option(config: ExperimentConfig) -> str:
    """The option by which a layer reads another sampling rate. Raises ConfigError for one that knows no rates."""
    for option in ("step_rescale", "held"):
        if option in config.model.options:
            return option
    raise ConfigError(f"another sampling rate: layer {config.model.layer} has no step size and no rule for one")


def rescaled(config: ExperimentConfig, factor: float) -> ExperimentConfig:
    """The config that takes `factor` steps of training in one: the same parameters at another sampling rate.

    2 is for inputs of half the rate. S5 multiplies its step sizes; RotRNN and the LRU, which have none, hold an input
    for `factor` steps (`scans.held_system`). Raises ConfigError for another layer, a factor that is not positive, or
    not whole where inputs are held.
    """
    if factor == 1:
        return config
    options, option = config.model.options, _rate_option(config)
    if not math.isfinite(factor):
        raise ConfigError(f"--step_rescale={factor}: expected a finite number")
    if option == "held" and factor != round(factor):
        raise ConfigError(f"--step_rescale={factor}: layer {config.model.layer} holds inputs for whole steps")
    options = options | {option: type(options[option])(factor * options[option])}
    try:
        return dataclasses.replace(config, model=dataclasses.replace(config.model, options=options))
    except ValueError as error:
        raise ConfigError(f"--step_rescale={factor}: {error}") from error


def asked_step(which: str) -> int | None:
    """The step that --checkpoint names, None for best and last. Raises ConfigError for anything else."""
    if which in ("best", "last"):
        return None
    if not which.isdecimal():
        raise ConfigError(f"--checkpoint={which}: expected best, last or a step")
    return int(which)


def _record(
    program: Program,
    data: Opened,
    split: str,
    which: str,
    steps: np.ndarray,
    alive: np.ndarray,
    found: dict[str, np.ndarray],
) -> Record:
    config, metric, count = program.config, metric_of(program.task), len(data.splits[split])
    accuracy, by_step, compared = found["accuracy"], found.get("accuracy_by_step"), found[metric]
    selected = "lowest validation loss" if metric == "loss" else "best validation accuracy"
    seeds = {
        str(seed): {
            "accuracy": float(accuracy[i]),
            "loss": float(found["loss"][i]) if np.isfinite(found["loss"][i]) else None,
            "best_step" if which == "best" else "step": int(steps[i]),
            **_certainty(metric, found, i, count),
            "alive": bool(alive[i]),
            **({"accuracy_by_step": _by_step(by_step[i])} if by_step is not None else {}),
        }
        for i, seed in enumerate(config.seeds)
    }
    return {
        "split": split,
        "checkpoint": which,
        "data": "smoke" if config.data.smoke else read_name(config.data.request),
        "data_sha256": data.content_sha256,
        "manifest_sha256": data.manifest_sha256,
        "choices": resolved_choices(config.data.request),
        "partial": data.partial,
        "policy": selected if which == "best" else "no selection",
        "metric": metric,
        "padding": config.model.padding.value,
        "count": count,
        "seeds": seeds,
        "mean": float(compared.mean()) if np.isfinite(compared).all() else None,
        "std": float(compared.std(ddof=1)) if len(compared) > 1 and np.isfinite(compared).all() else None,
        "baselines": data.baselines[split],
    }


def _certainty(metric: str, found: dict[str, np.ndarray], seed: int, count: int) -> Record:
    """Beside an accuracy of `count` records its interval; of text, whose labels are many, the loss in bits instead."""
    if metric == "accuracy":
        return {"interval": list(binomial_interval(float(found["accuracy"][seed]), count))}
    loss = found["loss"][seed]
    return {"bits": float(bits(loss)) if np.isfinite(loss) else None}


def _by_step(accuracy: np.ndarray) -> list[float | None]:
    """None at a step without a label."""
    return [None if np.isnan(value) else float(value) for value in accuracy]


def read_results(path: Path) -> list[Record]:
    """The records of a results.json; none if there is no such file. Raises ConfigError if it is damaged."""
    if not path.exists():
        return []
    try:
        records: list[Record] = [*json.loads(path.read_text())]
        set(map(_key, records))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is damaged ({error}): remove it and score again") from error
    return records


def _key(record: Record) -> tuple[str, str, float, int]:
    return record["split"], record["checkpoint"], record["step_rescale"], record.get("every", 1)


def summary_line(record: Record) -> str:
    """The record in one line, beside what guessing scores."""
    dead = [seed for seed, values in record["seeds"].items() if not values["alive"]]
    halted = f"; not finite and held since: seed {', '.join(dead)}" if dead else ""
    lost = [seed for seed, values in record["seeds"].items() if values["loss"] is None]
    halted += f"; loss not finite, accuracy without meaning: seed {', '.join(lost)}" if lost else ""
    factor = record["step_rescale"] * record["every"]
    rate = "" if factor == 1 else f" at 1/{factor:g} of the sampling rate (rule {record['rule']})"
    partial = " (partial data)" if record["partial"] and record["data"] != "smoke" else ""
    return (
        f"{record['split']} {_mean_text(record)} over {len(record['seeds'])} seed(s), "
        f"{record['checkpoint']} checkpoint{rate}, {record['data']}{partial}; "
        f"{_interval_text(record)}{guesses_line(record['baselines'], record['metric'])}{halted}"
    )


def _mean_text(record: Record) -> str:
    mean, std = record["mean"], record["std"]
    if record["metric"] == "accuracy":
        return f"accuracy {100 * mean:.1f}{'' if std is None else f' +- {100 * std:.1f}'} %"
    if mean is None:
        return "loss not finite"
    return f"loss {mean:.3f}{'' if std is None else f' +- {std:.3f}'} nats ({bits(mean):.3f} bits)"


def _interval_text(record: Record) -> str:
    return f"{interval_text(record['mean'], record['count'])}; " if record["metric"] == "accuracy" else ""
