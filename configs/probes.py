"""State-tracking probes: what a layer can hold over time, one block of it on data/probes.py.

    python -m scripts.prepare_data s3
    python train.py --config=configs/probes.py:task=s3,layer=mru_ldu,seeds=0:3 --workdir=runs/s3_ldu
    python eval.py --workdir=runs/s3_ldu --split=test --checkpoint=last

`python -m scripts.probe_table` makes the whole table. Keys after the colon: task (parity | mod3 | s3 | a5 | copy |
adding), layer (a key of LAYERS), lr, seeds (3, 0:3 or 0+4+7), smoke. results.json has the accuracy of every step.
"""

from ml_collections import ConfigDict

from configs.argument import parse_argument
from configs.layers import MESH, MODEL, OPTIM, START, TRAIN, options_of

TASKS = ("parity", "mod3", "s3", "a5", "copy", "adding")
WIDTH = 48
STEPS = 1500
RATES = (3e-3, 1e-2)
ONE_MORE = 1e-3
"""A rate that is tried where theory does not say that the layer cannot."""

MRU = {"state_size": 72, "heads": 2}  # of order 6: ldu needs 5 for S3 and A5
VARIANTS = ("identity", "determinant", "ldu", "qr_cayley", "qr_expm", "orthogonal_cayley", "orthogonal_expm")
DIAGONAL = {"state_size": 96, "direction": "forward"}
LAYERS = {
    "mlp": ("mlp", {}),
    "attention": ("attention", {"max_length": 160}),
    "linear_attention": ("linear_attention", {}),
    "rotrnn": ("rotrnn", {**DIAGONAL, "heads": 8, "gamma_min": 0.5, "gamma_max": 0.9999}),
    "lru": ("lru", {**DIAGONAL, "state_size": 48, "r_min": 0.5, "r_max": 0.9999}),
    "s5": ("s5", {**DIAGONAL, "blocks": 4}),
    **{f"mru_{variant}": ("mru", {**MRU, "variant": variant}) for variant in VARIANTS},
}
"""Rows of the table: a registered layer, and its options."""

KEYS = {"task": str, "layer": str, "lr": float, "seeds": tuple, "smoke": bool}


def get_config(argument: str | None = None) -> ConfigDict:
    """One cell of the table."""
    given = {"task": "parity", "layer": "rotrnn", "lr": 3e-3, "seeds": (0, 1, 2), "smoke": False}
    given |= parse_argument(argument, KEYS)
    for key, known in (("task", TASKS), ("layer", LAYERS)):
        if given[key] not in known:
            raise ValueError(f"{key}={given[key]!r} after the colon: expected one of {', '.join(known)}")
    steps = 12 if given["smoke"] else STEPS
    measuring = {
        "log_every": steps // 40 or 1,
        "probe_every": steps,
        "probe_size": 8,
        "eval_every": steps // 8 or 1,
        "checkpoint_every": steps // 2,
    }
    return one_block(given["task"], LAYERS[given["layer"]], WIDTH, steps, measuring, given)


def one_block(task: str, layer: tuple[str, dict], width: int, steps: int, measuring: dict, given: dict) -> ConfigDict:
    """The config of one block on a probe. layer: its name and options; measuring: the rest of `train`."""
    name, options = layer
    return ConfigDict(
        {
            "seeds": given["seeds"],
            "data": {"task": task, "length_window": (), "limit": 0, "smoke": given["smoke"]},
            "model": {
                "layer": name,
                "width": width,
                "depth": 1,
                "mixing": "full_glu",
                "dropout": 0.0,
                **MODEL,
                "options": options_of(name, **options),
            },
            "optim": {
                "lr": given["lr"],
                "ssm_lr": given["lr"] / 3,
                "weight_decay": 0.0,
                "warmup_steps": steps // 20,
                "groups": "BfastandCdecay",
                **OPTIM,
            },
            "train": {
                **TRAIN,
                "steps": steps,
                "batch_size": 8 if given["smoke"] else 32,
                "eval_batch_size": 16 if given["smoke"] else 100,
                **measuring,
            },
            "mesh": {**MESH},
            "on_nonfinite": "continue",
            "compile_cache": "",
            "mirrors": "none",
            **START,
            "published": "",
        }
    )
