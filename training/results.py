"""Scores of checkpoints, recorded in results.json."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from data import strict_json
from data.prepared import Opened
from data.registry import read_name, resolved_choices, task_spec
from data.sealed import sealed, unsealed_all
from data.spec import TaskKind
from data.splits import Split
from data.windows import Windows
from training import checkpoint
from training.config import MeshConfig
from training.errors import ConfigError
from training.evaluate import (
    binomial_interval,
    bits,
    evaluate,
    evaluate_carried,
    guesses_line,
    interval_text,
    listed,
    metric_of,
    without_steps,
)
from training.files import one_at_a_time, write_json
from training.language import bits_by_unit, bytes_per_label, metrics_of, smoothness
from training.loop import load_data
from training.mesh import make_mesh, place, replicated
from training.reading import PLAIN, Reading, has_cache, rate_option
from training.start import abstract_state
from training.state import Affine, Best, Program, TrainState, make_program
from training.step import make_carried_steps, make_eval_step
from training.weights import asked_step, config_sha256
from training.workdir import (
    CHECKPOINTS,
    METRICS,
    RESULTS,
    environment,
    gone,
    other_versions,
    read_config,
    refuse_other_data,
)
from training.writers import damage

Record = dict[str, Any]


class Scored(NamedTuple):
    """The records that were scored, the means over them of every seed, and the step of each one's parameters.

    last: the updates that the run had done. alive: whether each seed was after them.
    """

    split: Split
    means: dict[str, np.ndarray]
    steps: np.ndarray
    last: int
    alive: np.ndarray


def score(workdir: Path, data_dir: Path, split: str, which: str, reading: Reading = PLAIN) -> Record:
    """Scores `which` ("best": each seed's own, "last", or a step) on a split and records it.

    A record of the same split, checkpoint and reading is replaced. Raises ConfigError if there is no such run or
    checkpoint, or its model cannot read so, DataError if the data are missing.
    """
    config, run = read_config(workdir)
    if reading.window == task_spec(config.data.request).length:
        reading = dataclasses.replace(reading, window=None)  # as in training, so one record and not two
    config = reading.applied(config)
    step = asked_step(which)
    read_results(workdir / RESULTS)  # damage is said before the work and not after it
    data = load_data(config, data_dir)
    refuse_other_data(workdir, run, data.content_sha256)
    program = make_program(config, data.spec, data.affine and Affine(*data.affine))
    reading.refuse_skipping(program.task)
    restored = checkpoint.restore(workdir / CHECKPOINTS, abstract_state(program), step, read_only=True)
    if restored is None:
        raise ConfigError(f"{workdir} has no checkpoint yet: train it first")
    state: TrainState = restored.tree
    records = reading.scored_split(data.splits[split], config.model)
    means = _means(program, reading, state.best if which == "best" else state, records)
    steps = np.asarray(state.best.step) if which == "best" else np.full(len(config.seeds), restored.step)
    scored = Scored(records, means, steps, restored.step, np.asarray(state.alive))
    record = _record(program, data, split, which, scored)
    record |= {"step_rescale": reading.step_rescale, "every": reading.every, "updates": restored.step}
    here = environment()
    record |= {"config_sha256": config_sha256(run), "trained": {key: run[key] for key in here}, "scored": here}
    if reading.step_rescale * reading.every != 1:
        record["rule"] = rate_option(config)
    if program.task.kind is TaskKind.LANGUAGE:
        _add_language(record, program, data, reading, scored, metrics_of(workdir / METRICS))
    if "init_from" in run:
        record["init_from"] = run["init_from"]
    lost = damage(workdir / METRICS, restored.step, restored.meta.get("rows"))
    if step is None and not restored.repairs:
        end = max((row["step"] for row in metrics_of(workdir / METRICS)), default=0)
        lost += tuple(gone(config, restored.step, end))
    versions = [f"trained with {before}, scored with {now}" for before, now in other_versions(run, here)]
    if repairs := dict.fromkeys([*restored.meta["repairs"], *restored.repairs, *lost, *versions]):
        record["repairs"] = list(repairs)
    with one_at_a_time(workdir):
        others = [other for other in read_results(workdir / RESULTS) if _key(other) != _key(record)]
        write_json(workdir / RESULTS, [sealed(one) for one in (*others, record)])
    return record


def _means(program: Program, reading: Reading, source: TrainState | Best, split: Split) -> dict[str, np.ndarray]:
    """The means over a split, under the parameters and running averages of `source`."""
    if reading.carried and not has_cache(program.config.model):
        assert isinstance(split, Windows)
        return evaluate_carried(*make_carried_steps(program), source.params, split)
    size = program.config.train.eval_batch_size
    # Of the devices here, whatever the run was trained on, as many as divide a batch.
    devices = max(n for n in range(1, jax.device_count() + 1) if size % n == 0)
    mesh = make_mesh(size, "train.eval_batch_size", MeshConfig(batch=devices))
    params, stats = place((source.params, source.stats), replicated(mesh))
    means = evaluate(make_eval_step(program, reading.every), params, stats, split, size, mesh)
    return without_steps(means) if reading.carried else means


def _record(program: Program, data: Opened, split: str, which: str, scored: Scored) -> Record:
    config, metric, count = program.config, metric_of(program.task), len(scored.split)
    loss, accuracy, compared = (scored.means[name] for name in ("loss", "accuracy", metric))
    by_step = scored.means.get("accuracy_by_step")
    selected = "lowest validation loss" if metric == "loss" else "best validation accuracy"
    seeds = {
        str(seed): {
            "accuracy": float(accuracy[i]),
            "loss": float(loss[i]) if np.isfinite(loss[i]) else None,
            "best_step" if which == "best" else "step": int(scored.steps[i]),
            **({"interval": list(binomial_interval(float(accuracy[i]), count))} if metric == "accuracy" else {}),
            "alive": bool(scored.alive[i]),
            **({"accuracy_by_step": listed(by_step[i])} if by_step is not None else {}),
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


def _add_language(
    record: Record, program: Program, data: Opened, reading: Reading, scored: Scored, rows: list[dict[str, Any]]
) -> None:
    """What the record of a language model says besides: how the text was read; of every seed the loss in bits and by
    position, and how smoothly it trained, from the `rows` of its run."""
    protocol = reading.protocol(scored.split, program.config.model)
    record |= {"window": reading.window, "carried": reading.carried, "protocol": protocol}
    if _is_other_protocol(record):
        record["policy"] += f", scored in {protocol}"
    label_bytes = None if data.token_bytes is None else bytes_per_label(scored.split, data.token_bytes)
    by_position = scored.means.get("loss_by_step")
    for i, seed in enumerate(program.config.seeds):
        values = record["seeds"][str(seed)]
        values |= bits_by_unit(float(scored.means["loss"][i]), label_bytes)
        if by_position is not None:
            values["loss_by_position"] = listed(by_position[i])
        values |= smoothness(rows, seed, scored.last, alive=bool(scored.alive[i]))


def _is_other_protocol(record: Record) -> bool:
    """Whether a text was read otherwise than in the evaluations of training."""
    return record.get("window") is not None or record.get("carried", False)


def read_results(path: Path) -> list[Record]:
    """The records of a results.json; none if there is no such file. Raises ConfigError if it is damaged."""
    if not path.exists():
        return []
    try:
        records = unsealed_all(strict_json.parse(path.read_bytes()))
        if not all(isinstance(record["seeds"], dict) for record in records):
            raise TypeError("it is no list of scores of seeds")
        set(map(_key, records))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is damaged ({error}): remove it and score again") from error
    return records


def find_record(records: list[Record], split: str, checkpoint: str, reading: Reading = PLAIN) -> Record | None:
    """The record of a split and a checkpoint that was read so, if there is one."""
    wanted = (split, checkpoint, *dataclasses.astuple(reading))
    return next((record for record in records if _key(record) == wanted), None)


def _key(record: Record) -> tuple:
    read = (record.get(field.name, field.default) for field in dataclasses.fields(Reading))
    return record["split"], record["checkpoint"], *read


def summary_line(record: Record) -> str:
    """The record in one line, beside what guessing scores."""
    dead = [seed for seed, values in record["seeds"].items() if not values["alive"]]
    halted = f"; not finite and held since: seed {', '.join(dead)}" if dead else ""
    lost = [seed for seed, values in record["seeds"].items() if values["loss"] is None]
    halted += f"; loss not finite, accuracy without meaning: seed {', '.join(lost)}" if lost else ""
    factor = record["step_rescale"] * record["every"]
    rate = "" if factor == 1 else f" at 1/{factor:g} of the sampling rate (rule {record['rule']})"
    partial = " (partial data)" if record["partial"] and record["data"] != "smoke" else ""
    protocol = f", {record['protocol']}" if _is_other_protocol(record) else ""
    return (
        f"{record['split']} {_mean_text(record)} over {len(record['seeds'])} seed(s), "
        f"{record['checkpoint']} checkpoint{rate}{protocol}, {record['data']}{partial}; "
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
