"""The study of matrix recurrent units at the size of a CPU: one mixing layer and four MLPs on shakespeare-char.

    python -m scripts.prepare_data shakespeare_char
    python train.py --config=configs/mru_study.py:model=mru_ldu,seeds=0:5 --workdir=runs/study_ldu
    python eval.py --workdir=runs/study_ldu --split=val --checkpoint=last

`python -m scripts.mru_study` makes the whole study. Keys after the colon: model (a name of MODELS), lr, share (of lr,
at which W_in of an MRU and the recurrence of RotRNN, LRU and S5 learn), scaling (none | published, of an MRU), updates,
seeds, smoke.

Width 128, windows of 128, batches of 8, 1,500 updates (1.5 epochs), no dropout, AdamW (0.9, 0.99), decay 0.1, gradient
clipped as a whole (1.0), warm-up over 100 updates, then a cosine to 0. MRU, RotRNN, LRU and S5 carry 128 real numbers.
On one core of a CPU some minutes a seed.
"""

from ml_collections import ConfigDict

from configs.argument import parse_argument
from configs.language import REACH, SMALL_MLPS, Model, language_config, shrink

TRAINING = {
    "window": 128,
    "batch_size": 8,
    "accumulate": 1,
    "updates": 1500,
    "lr": 1e-3,
    "final": 0.0,
    "warmup": 100,
    "b2": 0.99,
    "dropout": 0.0,
}
LONGEST = REACH * TRAINING["window"]
"""The longest windows in which the models are scored."""

SHARE = 0.1
"""Of the rate, unless it is given."""

VARIANTS = ("identity", "determinant", "ldu", "qr_cayley", "qr_expm", "orthogonal_cayley", "orthogonal_expm")
DIAGONAL = {"state_size": 128, "direction": "forward"}
NORMALISED = {"state_scan": "rescaled", "output_norm": "frobenius"}


def _small(layer: str, **options: object) -> Model:
    return layer, 128, 1, (*(() if layer == "mlp" else (layer,)), *SMALL_MLPS), options


def _mru(variant: str, **options: object) -> Model:
    return _small("mru", state_size=128, heads=2, variant=variant, **options)


MODELS: dict[str, Model] = {
    "mlp": _small("mlp"),
    "attention_rope": _small("attention", heads=4),
    "mru_ldu": _mru("ldu"),
    "mru_identity": _mru("identity"),
    "mru_orthogonal_cayley": _mru("orthogonal_cayley"),
    "mru_qr_cayley": _mru("qr_cayley"),
    "mru_determinant": _mru("determinant"),
    "linear_attention_rope": _small("linear_attention", heads=4),
    "attention_none": _small("attention", heads=4, position="none"),
    "rotrnn": _small("rotrnn", **DIAGONAL, heads=16, gamma_min=0.5, gamma_max=0.999),
    "lru": _small("lru", **DIAGONAL | {"state_size": 64}, r_min=0.5, r_max=0.999),
    "s5": _small("s5", **DIAGONAL, blocks=4),
    "mru_qr_expm": _mru("qr_expm"),
    "mru_orthogonal_expm": _mru("orthogonal_expm"),
    "attention_xpos_512": _small("attention", heads=4, position="xpos_512"),
    "linear_attention_none": _small("linear_attention", heads=4, position="none"),
    "mru_identity_normalised": _mru("identity", **NORMALISED),
}
"""The most telling first."""

KEYS = {"model": str, "lr": float, "share": float, "scaling": str, "updates": int, "seeds": tuple, "smoke": bool}


def get_config(argument: str | None = None) -> ConfigDict:
    """The config of one run of the study."""
    given = {"model": "mru_ldu", "lr": TRAINING["lr"], "updates": TRAINING["updates"], "seeds": (0,)}
    given |= {"smoke": False} | parse_argument(argument, KEYS)
    if given["model"] not in MODELS:
        raise ValueError(f"model={given['model']!r} after the colon: expected one of {', '.join(MODELS)}")
    model, lr = MODELS[given["model"]], given["lr"]
    config = language_config(
        "shakespeare_char", model, TRAINING | {"lr": lr, "updates": given["updates"]}, {"packing": "separated"}
    )
    config["seeds"] = given["seeds"]
    config["train"].update(log_every=1, eval_batch_size=64)
    if "share" in given and model[0] not in ("mru", "rotrnn", "lru", "s5") and given["share"] != 1:
        raise ValueError(f"share={given['share']:g} after the colon: model={given['model']} has no recurrence to slow")
    if "scaling" in given and model[0] != "mru":
        raise ValueError(f"scaling={given['scaling']} after the colon: only an MRU has it, not model={given['model']}")
    if model[0] == "mru":
        config["optim"].update(w_in_rate=given.get("share", SHARE), w_in_scaling=given.get("scaling", "none"))
        if given.get("scaling") == "published":
            config["optim"].update(clip=0.0)
    else:
        config["optim"].update(ssm_lr=lr * given.get("share", SHARE))
    if given["smoke"]:
        shrink(config)
    return ConfigDict(config)
