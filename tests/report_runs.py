"""Folders of finished runs, written by hand: what training and evaluation leave behind, without training."""

import json
import math
from typing import Any

from configs import lra
from training.writers import MetricsLog, read_metrics

TIMES = [1, 4, 16]
STEPS = (0, 10, 20)


def plain(config: Any) -> dict[str, Any]:
    """A config as config.json holds it."""
    return json.loads(json.dumps(config.to_dict()))


def write_run(folder, argument, accuracies, *, family=lra, changes=None, facts=None, energies=None, **record):
    """A run of `argument` whose seeds scored `accuracies` (seed -> value; None: not scored).

    changes: dotted key -> value of the config. energies: layers; seed s and layer l have energy 2^(s + l + step/10) and
    the factors of `factors`; without it, no energies and no validation. record: what its record in results.json says
    besides.
    """
    config: dict[str, Any] = {**plain(family.get_config(argument)), "seeds": list(accuracies)}
    for path, value in (changes or {}).items():
        *groups, name = path.split(".")
        group = config
        for key in groups:
            group = group[key]
        group[name] = value
    folder.mkdir(parents=True)
    known = {"schema": 2, "probe_times": TIMES, "data_sha256": f"of {config['data']['task']}", "cores": 2}
    known |= {"devices": ["cpu:0"], "parameters": 1234, "state_size": 16, "steps_per_record": 50}
    (folder / "config.json").write_text(json.dumps({**known, **(facts or {}), "config": config}))
    with MetricsLog(folder / "metrics.jsonl", None) as log:
        for step in STEPS:
            for seed in accuracies:
                row = {"step": step, "seed": seed, "split": "train", "loss": 3 - step / 10, "seconds": 1 + step / 5}
                log.write(row | (factors(seed, step, energies) if energies else {}))
                if energies:
                    log.write({"step": step, "seed": seed, "split": "val", "loss": 2.0, "accuracy": 0.1 + step / 100})
    scored = {str(seed): {"accuracy": value, "alive": True} for seed, value in accuracies.items() if value is not None}
    if scored:
        whole = {"split": "test", "checkpoint": "best", "seeds": scored, "count": 2000, "metric": "accuracy"}
        whole |= {"partial": False, "data_sha256": known["data_sha256"], "baselines": {"majority": 0.16}}
        (folder / "results.json").write_text(json.dumps([whole | {"updates": config["train"]["steps"]} | record]))
    (folder / "cost.json").write_text(json.dumps({"peak_memory_bytes": 3 * 2**20, "of": "process"}))
    return folder


def rewrite(folder, change):
    """Every row of its metrics as `change` gives it back."""
    rows = read_metrics(folder / "metrics.jsonl")
    (folder / "metrics.jsonl").unlink()
    with MetricsLog(folder / "metrics.jsonl", None) as log:
        for row in rows:
            log.write(change(row))


def with_growing_mode(row):
    """The last layer of seed 1 has no gain at step 20: a mode grows."""
    if (row["seed"], row["step"]) != (1, STEPS[-1]) or "state_gain" not in row:
        return row
    names = ("state_gain", "state_gain_max", "state_align", "state_temporal")
    return row | {name: [*row[name][:-1], math.nan] for name in names}


def factors(seed, step, layers):
    """energy = gain x align x temporal in every layer; the largest t was reached by no sequence."""
    energy = [2.0 ** (seed + layer + step / 10) for layer in range(layers)]
    many = {name: [value] * layers for name, value in (("state_align", 2.0), ("state_temporal", 0.5))}
    return many | {
        "state_energy": energy,
        "state_energy_median": [e / 2 for e in energy],
        "state_energy_drift": [step / 10 * math.log10(2)] * layers,
        "state_energy_raw": [16 * e for e in energy],
        "state_gain": energy,
        "state_gain_max": [3 * e for e in energy],
        "state_energy_t": [[e / 4, e / 2, math.nan] for e in energy],
        "state_white_t": [[e / 4, e / 2, e] for e in energy],
        "state_coloured_t": [[e / 3, e, 2 * e] for e in energy],
    }
