"""The demo: hidden-state energies of RotRNN, RotRNN without xi, and LRU on short ListOps, over depths and seeds.

    python train.py --config=configs/demo.py:layer=rotrnn,depth=2 --workdir=runs/one_cell

`make demo` prepares the data and runs all cells. Keys: layer (rotrnn | rotrnn_folded | lru), depth, rate (small |
large), seeds. Expressions of 25 to 95 symbols, 6,000 / 2,000 / 2,000 of them; width 64, 64 real numbers of state in
each layer.
"""

from ml_collections import ConfigDict

from configs.argument import parse_argument
from configs.layers import MESH, MODEL, OPTIM, START, TRAIN, options_of

STEPS = 400
SEEDS = (0, 1, 2)
SCORED = ("val", "test")
"""The splits on which its last checkpoints are scored."""

ROTRNN = {"state_size": 64, "heads": 8, "direction": "forward", "init": "appendix", "gamma_min": 0.0, "gamma_max": 0.99}
LAYERS = {
    "rotrnn": options_of("rotrnn", **ROTRNN),
    "rotrnn_folded": options_of("rotrnn", **ROTRNN, normalise="folded"),
    "lru": options_of("lru", state_size=32, direction="forward"),
}
# (lr, ssm_lr): the second is the rate of decays, angles and the basis M.
RATES = {"small": (3e-3, 1e-3), "large": (1e-2, 1e-2)}

CELLS = {
    f"layer={layer},depth={depth},rate={rate}": f"{layer}_depth{depth}_{rate}"
    for depth, rate in ((2, "small"), (4, "small"), (2, "large"))
    for layer in LAYERS
}
"""What `make demo` trains: arguments of this config, and the names of their run folders."""

KEYS = {"layer": str, "depth": int, "rate": str, "seeds": tuple}


def values_of(argument: str | None) -> dict:
    """All keys of an argument, with the defaults of those that it leaves out."""
    return {"layer": "rotrnn", "depth": 2, "rate": "small", "seeds": SEEDS} | parse_argument(argument, KEYS)


def get_config(argument: str | None = None) -> ConfigDict:
    """One cell of the demo."""
    given = values_of(argument)
    for key, known in (("layer", LAYERS), ("rate", RATES)):
        if given[key] not in known:
            raise ValueError(f"{key}={given[key]!r} after the colon: expected one of {', '.join(known)}")
    lr, ssm_lr = RATES[given["rate"]]
    return ConfigDict(
        {
            "seeds": given["seeds"],
            "data": {"task": "listops", "length_window": (24, 96), "limit": 6000, "smoke": False},
            "model": {
                "layer": given["layer"].split("_")[0],
                "width": 64,
                "depth": given["depth"],
                "mixing": "half_glu1",
                "dropout": 0.0,
                **MODEL,
                "options": LAYERS[given["layer"]],
            },
            "optim": {
                "lr": lr,
                "ssm_lr": ssm_lr,
                "weight_decay": 0.04,
                "warmup_steps": 50,
                "groups": "BfastandCdecay",
                **OPTIM,
            },
            "train": {
                **TRAIN,
                "steps": STEPS,
                "batch_size": 32,
                "eval_batch_size": 100,
                "log_every": 10,
                "probe_every": 50,
                "probe_size": 64,
                "eval_every": STEPS,
                "checkpoint_every": 100,
            },
            "mesh": {**MESH},
            "on_nonfinite": "stop",
            "compile_cache": "",
            "mirrors": "none",
            **START,
            "published": "",
        }
    )
