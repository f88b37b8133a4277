"""Rows of the published tables, and settings of our own where nothing was published.

Sizes, rates and numbers come from reference_results.json (with their sources): the run scripts of lindermanlab/S5, the
tables 8 and 9 of arXiv 2303.06349 (LRU) and the searches of arXiv 2407.07239 (RotRNN), which name no final values: of
each search one setting is taken here. A task without a published row takes that of its nearest relative.
"""

import json
import math
from pathlib import Path
from typing import Any

_REFERENCE = json.loads(Path(__file__).with_name("reference_results.json").read_text())

TRAINING_RECORDS = {
    "listops": 96_000,
    "text": 22_500,
    "retrieval": 147_086,
    "image": 45_000,
    "pathfinder": 160_000,
    "pathx": 160_000,
    "path256": 160_000,
    "scifar": 45_000,
    "smnist": 54_000,
    "psmnist": 54_000,
    "sc35": 84_843,
    "sc10": 24_482,
    "fsdd": 2_400,
}
LENGTHS = {
    "listops": 2048,
    "text": 4096,
    "retrieval": 4000,
    "image": 1024,
    "pathfinder": 1024,
    "pathx": 16_384,
    "path256": 65_536,
    "scifar": 1024,
    "smnist": 784,
    "psmnist": 784,
    "sc35": 16_000,
    "sc10": 16_000,
    "fsdd": 8192,
}

S5_OF = {
    "path256": "pathx",
    "scifar": "image",
    "smnist": "pathfinder",
    "psmnist": "pathfinder",
    "sc10": "sc35",
    "fsdd": "sc35",
}
LRU_OF = {"path256": "pathx", "image": "scifar", "smnist": "pathfinder", "psmnist": "pathfinder"}
LRU_RATE = 1e-3
"""The base rate of the LRU is not published."""

LRU_SPEECH = {
    "model": {"width": 96, "depth": 6, "mixing": "half_glu1", "dropout": 0.1},
    "options": {"state_size": 128, "r_min": 0.9, "r_max": 0.999, "max_phase": 2 * math.pi},
    "optim": {"lr": 8e-3, "ssm_lr": 1e-3, "weight_decay": 0.04, "groups": "noBCdecay"},
    "batch_size": 16,
    "epochs": 40,
    "warmup_epochs": 1,
}
"""From the searches of the RotRNN authors, who trained the LRU on speech; 505,091 parameters with 35 classes."""

ROTRNN = {
    # task: heads, lr, ssm_lr, gamma_min, gamma_max, largest phase, direction, optimiser option, dropout, weight decay
    "listops": (32, 3e-3, 1e-3, 0.5, 0.9999, 2 * math.pi, "bidirectional", "BfastandCdecay", 0.0, 0.04),
    "text": (32, 4e-3, 1e-3, 0.5, 0.9999, 2 * math.pi, "bidirectional", "BfastandCdecay", 0.1, 0.05),
    "retrieval": (32, 2e-3, 1e-3, 0.5, 0.9999, 2 * math.pi, "bidirectional", "BfastandCdecay", 0.0, 0.05),
    "image": (32, 4.5e-3, 1e-3, 0.9, 0.999, 2 * math.pi, "bidirectional", "BfastandCdecay", 0.1, 0.05),
    "pathfinder": (32, 4.5e-3, 1e-3, 0.1, 0.9999, 0.31, "bidirectional", "noBCdecay", 0.03, 0.03),
    "pathx": (32, 3e-3, 1e-3, 0.999, 0.9999, 0.314, "bidirectional", "BfastandCdecay", 0.0, 0.05),
    "scifar": (64, 4e-3, 1e-3, 1e-3, 0.9999, 2 * math.pi, "forward", "standard", 0.1, 0.05),
    "sc35": (32, 8e-3, 1e-3, 0.5, 0.9999, 0.314, "bidirectional", "noBCdecay", 0.1, 0.04),
}
"""One setting of each search. Text and Retrieval have none: S5's sizes and rates, with RotRNN's usual decays."""

NO_ROTRNN_NUMBER = "no number may be quoted for RotRNN here (arXiv 2407.07239)"
SPEECH = ("sc35", "sc10", "fsdd")


def published_padding(task: str, layer: str) -> str:
    """What the published code does with padding: it is input, and pooled over in speech and by minimal-LRU."""
    return "none" if task in SPEECH or layer == "lru" else "pool_only"


Row = dict[str, Any]


def row_of(task: str, layer: str) -> Row:
    """model, options, optim, batch_size, epochs, warmup_epochs, published. Raises KeyError for an unknown pair."""
    match layer:
        case "s5":
            row = _s5(_hyperparameters("S5", S5_OF.get(task, task)))
        case "lru":
            row = LRU_SPEECH if task in SPEECH else _lru(LRU_OF.get(task, task))
        case "rotrnn":
            row = _rotrnn(task)
        case _:
            row = _ours(task, layer)
    return {**row, "published": _number(task, layer)}


def _hyperparameters(model: str, task: str) -> Row:
    return _REFERENCE["hyperparameters"][model][task]


def _s5(found: Row) -> Row:
    dt_global = "standard_dt_global" if found["dt_global"] else found["opt_config"]
    return {
        "model": {
            "width": found["d_model"],
            "depth": found["depth"],
            "mixing": found["activation"],
            "dropout": found["dropout"],
            "bn_momentum": found["bn_momentum"],
        },
        "options": {
            "state_size": found["state_size"],
            "blocks": found["blocks"],
            "clip_eigs": found["clip_eigs"],
            "C_init": found["c_init"],
            "dt_min": found["dt_min"],
        },
        "optim": {
            "lr": found["lr"],
            "ssm_lr": found["ssm_lr"],
            "weight_decay": found["weight_decay"],
            "groups": dt_global,
        },
        "batch_size": found["batch_size"],
        "epochs": found["epochs"],
        "warmup_epochs": found["warmup_epochs"],
    }


def _lru(task: str) -> Row:
    found = _hyperparameters("LRU", task)
    rate = 4e-3 if task == "scifar" else LRU_RATE  # the one rate that the paper names, for an ablation
    return {
        "model": {
            "width": found["d_model"],
            "depth": found["depth"],
            "mixing": found["mixing"],
            "dropout": found["dropout"],
            "bn_momentum": 0.99,
        },
        "options": {
            "state_size": found["state_size_complex"],
            "r_min": found["r_min"],
            "r_max": found["r_max"],
            "max_phase": found["max_phase"],
            "direction": "bidirectional" if found["bidirectional"] else "forward",
        },
        "optim": {
            "lr": rate,
            "ssm_lr": rate * found["recurrent_lr_factor"],
            "weight_decay": found["weight_decay"],
            "groups": "standard",
            "lr_min": 1e-7,
        },
        "batch_size": found["batch_size"],
        "epochs": found["epochs_equivalent"],
        "warmup_epochs": found["epochs_equivalent"] / 10,
    }


def _rotrnn(task: str) -> Row:
    """The sizes of S5 on that task, with a state of even heads, as in the searches."""
    relative = task if task in ROTRNN else S5_OF[task]
    heads, lr, ssm_lr, gamma_min, gamma_max, phase, direction, groups, dropout, decay = ROTRNN[relative]
    s5 = _hyperparameters("S5", S5_OF.get(task, task))
    return {
        "model": {
            "width": s5["d_model"],
            "depth": s5["depth"],
            "mixing": "half_glu1",
            "dropout": dropout,
            "bn_momentum": s5["bn_momentum"],
        },
        "options": {
            "state_size": 128 if relative == "listops" else s5["state_size"],
            "heads": heads,
            "gamma_min": gamma_min,
            "gamma_max": gamma_max,
            "theta_max": phase,
            "direction": direction,
        },
        "optim": {"lr": lr, "ssm_lr": ssm_lr, "weight_decay": decay, "groups": groups},
        "batch_size": s5["batch_size"],
        "epochs": s5["epochs"],
        "warmup_epochs": 1,
    }


OURS = {
    "mru": {"state_size": 256, "heads": 4, "variant": "orthogonal_cayley"},  # bounded at any length
    "dense": {"state_size": 128, "gain": 0.9},  # at 1 no sequence of this length stays finite
    "attention": {"heads": 4},
    "linear_attention": {"heads": 4},
    "mlp": {},
}


def _ours(task: str, layer: str) -> Row:
    """The sizes, batches and epochs of the LRU; rates of ours."""
    base = row_of(task, "lru")
    options = OURS[layer] | ({"max_length": LENGTHS[task]} if layer == "attention" else {})
    optim: Row = {"lr": 1e-3, "ssm_lr": 1e-3, "weight_decay": 0.05, "groups": "standard"}
    if layer == "mru":
        optim |= {"w_in_rate": 0.1, "w_in_scaling": "none"}
    return {**base, "options": options, "optim": optim}


def _number(task: str, layer: str) -> str:
    """The published number of a row, with its source and what is to be known of it."""
    name = {"s5": "S5", "lru": "LRU", "rotrnn": "RotRNN"}.get(layer)
    rows = [row for row in _REFERENCE["rows"] if (row["model"], row["task"]) == (name, task)]
    if not rows or rows[0]["accuracy"] is None:
        return NO_ROTRNN_NUMBER if layer == "rotrnn" else ""
    row = rows[0]
    spread = "" if row["std"] is None else f" ({row['std']})"
    caveat = f"; {row['caveat']}" if row["caveat"] else ""
    return f"{row['accuracy']}{spread} %, {row['source']}{caveat}"
