"""The study of stability at the size of a CPU: state energies over training, depth and seeds, of every kind of layer.

    python -m scripts.prepare_data listops --length_window=24:96 --limit=20000
    python -m scripts.prepare_data fsdd --rate=1kHz
    python train.py --config=configs/stability.py:task=fsdd,layer=lru,depth=4,seeds=0:3 --workdir=runs/fsdd_lru
    python -m scripts.sweep --config=configs/stability.py --list=configs/stability_cells.txt --out=runs/stability

The last line is the study. Keys after the colon: task (listops | fsdd), layer (a name of LAYERS), depth, rate (small |
large, as in configs/demo.py), updates, seeds, smoke. listops: expressions of 25 to 95 symbols, 20,000 / 2,000 / 2,000
of them. fsdd: spoken digits at 1 kHz, at most 1,000 samples. Neither is a benchmark. Width 64, 64 real numbers of state
in every layer, read forward, decays drawn from one ring for RotRNN and LRU; S5 as published.
"""

import math

from ml_collections import ConfigDict

from configs import demo
from configs.argument import parse_argument
from configs.layers import options_of

ROTRNN = {"state_size": 64, "heads": 8, "direction": "forward", "init": "appendix"}
LRU = {"state_size": 32, "direction": "forward"}
LAYERS = {
    "rotrnn": ("rotrnn", {}),
    "rotrnn_folded": ("rotrnn", {"normalise": "folded"}),
    "rotrnn_off": ("rotrnn", {"normalise": "off"}),
    "rotrnn_stationary": ("rotrnn", {"start": "stationary"}),
    "rotrnn_identity": ("rotrnn", {"orthogonal": "identity"}),
    "lru": ("lru", {}),
    "lru_recomputed": ("lru", {"gamma": "recomputed"}),
    "lru_off": ("lru", {"gamma": "off"}),
    "s5": ("s5", {"state_size": 64, "blocks": 4, "direction": "forward"}),
}
"""A registered layer, and what is changed in it."""

# Decays (lowest, highest) and the largest phase, by how long the sequences remember.
RINGS = {"listops": (0.0, 0.99, 2 * math.pi), "fsdd": (0.9, 0.999, math.pi / 10)}
DATA = {
    "listops": {"task": "listops", "length_window": (24, 96), "limit": 20_000},
    "fsdd": {"task": "fsdd", "length_window": (), "limit": 0, "choices": {"rate": "1kHz"}},
}
UPDATES = {"listops": 1_500, "fsdd": 600}
SEEDS = (0, 1, 2, 3, 4)
BATCH = {"listops": 32, "fsdd": 16}

KEYS = {"task": str, "layer": str, "depth": int, "rate": str, "updates": int, "seeds": tuple, "smoke": bool}


def get_config(argument: str | None = None) -> ConfigDict:
    """One cell of the study."""
    given = {"task": "listops", "layer": "rotrnn", "depth": 2, "rate": "small", "seeds": SEEDS, "smoke": False}
    given |= parse_argument(argument, KEYS)
    for key, known in (("task", DATA), ("layer", LAYERS), ("rate", demo.RATES)):
        if given[key] not in known:
            raise ValueError(f"{key}={given[key]!r} after the colon: expected one of {', '.join(known)}")
    task = given["task"]
    updates = 12 if given["smoke"] else given.get("updates", UPDATES[task])
    # The model and the optimiser of the demo.
    config = demo.get_config(f"depth={given['depth']},rate={given['rate']}").to_dict()
    layer, options = _layer(given["layer"], *RINGS[task])
    config["seeds"] = given["seeds"]
    config["data"] = {**DATA[task], "smoke": given["smoke"]}
    config["model"] |= {"layer": layer, "options": options}
    config["optim"] |= {"warmup_steps": min(50, updates // 4)}
    config["train"] |= {
        "steps": updates,
        "batch_size": BATCH[task],
        "log_every": max(updates // 100, 1),
        "probe_every": max(updates // 30, 1),
        "eval_every": max(updates // 10, 1),
        "checkpoint_every": max(updates // 10, 1),
    }
    return ConfigDict(config)


def _layer(name: str, low: float, high: float, phase: float) -> tuple[str, dict]:
    layer, changed = LAYERS[name]
    match layer:
        case "rotrnn":
            options = {**ROTRNN, "gamma_min": low, "gamma_max": high, "theta_max": phase}
        case "lru":
            options = {**LRU, "r_min": low, "r_max": high, "max_phase": phase}
        case _:
            options = {}
    return layer, options_of(layer, **options, **changed)
