"""What the families of language models share: the models of the study, and how they are trained."""

from ml_collections import ConfigDict

from configs.argument import parse_argument
from configs.experiment import SMOKE_TRAIN
from configs.layers import MODEL, OPTIM, options_of

KEYS = {"task": str, "model": str, "variant": str, "position": str, "lr": float, "seeds": tuple, "smoke": bool}

SMALL_MLPS = ("mlp",) * 4
DIAGONAL = {"state_size": 256, "direction": "forward"}

MODELS = {
    # name: layer, width, depth, sublayers that are repeated so often, options
    "small_mru": ("mru", 256, 1, ("mru", *SMALL_MLPS), {"state_size": 256, "heads": 4}),
    "small_attention": ("attention", 256, 1, ("attention", *SMALL_MLPS), {"heads": 4}),
    "small_linear_attention": ("linear_attention", 256, 1, ("linear_attention", *SMALL_MLPS), {"heads": 4}),
    "small_mlp": ("mlp", 256, 1, SMALL_MLPS, {}),
    "small_rotrnn": ("rotrnn", 256, 1, ("rotrnn", *SMALL_MLPS), {**DIAGONAL, "heads": 32}),
    "small_lru": ("lru", 256, 1, ("lru", *SMALL_MLPS), {**DIAGONAL, "state_size": 128, "r_max": 0.999}),
    "small_s5": ("s5", 256, 1, ("s5", *SMALL_MLPS), {**DIAGONAL, "blocks": 8}),
    "mru_6_6": ("mru", 384, 6, ("mru", "mlp"), {"state_size": 384, "heads": 6}),
    "transformer_6_6": ("attention", 384, 6, ("attention", "mlp"), {"heads": 6}),
    "transformer_33m": ("attention", 768, 4, ("attention", "mlp"), {"heads": 16}),
    "mru_same_depth": ("mru", 768, 4, ("mru", "mlp"), {"state_size": 768, "heads": 3}),
    "mru_matched": ("mru", 768, 5, ("mru", "mlp"), {"state_size": 768, "heads": 3}),
    "mru_published": ("mru", 768, 6, ("mru", "mlp"), {"state_size": 768, "heads": 3}),
    "linear_transformer": ("linear_attention", 768, 4, ("linear_attention", "mlp"), {"heads": 16}),
}
"""The published models (mikayahlevi/mru-lm, TinyStories), and the diagonal layers at the size of the small ones."""

SMOKE_OPTIONS = {"state_size": 32, "heads": 2, "blocks": 2}


def family(argument: str | None, default: str, tasks: tuple[str, ...], training: dict, choices: dict) -> ConfigDict:
    """The config of one model. training: steps of a window, batch_size, updates, lr, its final share, warmup,
    dropout.

    Raises ValueError for an unknown task or model, a variant without MRU, a position without attention.
    """
    given = {"task": tasks[0], "model": default, "lr": training["lr"], "seeds": (0,), "smoke": False}
    given |= parse_argument(argument, KEYS)
    for key, known in (("task", tasks), ("model", tuple(MODELS))):
        if given[key] not in known:
            raise ValueError(f"{key}={given[key]!r} after the colon: expected one of {', '.join(known)}")
    layer, width, depth, sublayers, options = MODELS[given["model"]]
    options = options_of(layer, **options)
    if "sublayers" in options:
        options.update(sublayers=depth * len(sublayers))
    _choose(given, options, "variant", "mru")
    _choose(given, options, "position", "attention")
    if "max_length" in options:
        options.update(max_length=training["window"])
    config = {
        "seeds": given["seeds"],
        "data": {
            "task": given["task"],
            "length_window": (),
            "limit": 0,
            "smoke": False,
            "choices": choices,
            "partial": False,
            "steps": training["window"],
        },
        "model": {
            **MODEL,
            "layer": layer,
            "width": width,
            "depth": depth,
            "mixing": "gelu",
            "dropout": training["dropout"],
            "options": options,
            "backbone": "language",
            "sublayers": sublayers,
        },
        "optim": {
            **OPTIM,
            "lr": given["lr"],
            "ssm_lr": given["lr"],
            "lr_min": given["lr"] * training["final"],
            "weight_decay": 0.1,
            "groups": "BfastandCdecay",
            "warmup_steps": training["warmup"],
            **({"w_in_rate": 0.1, "w_in_scaling": "none"} if layer == "mru" else {}),
        },
        "train": {
            "steps": training["updates"],
            "batch_size": training["batch_size"],
            "eval_batch_size": training["batch_size"],
            "log_every": 50,
            "probe_every": 500,
            "probe_size": 16,
            "eval_every": 500,
            "checkpoint_every": 500,
        },
        "on_nonfinite": "continue",
        "published": "",
    }
    if given["smoke"]:
        _smoke(config)
    return ConfigDict(config)


def _choose(given: dict, options: dict, key: str, layer: str) -> None:
    if key not in given:
        return
    if key not in options:
        raise ValueError(f"{key}={given[key]} after the colon: only {layer} has it, model={given['model']} does not")
    options[key] = given[key]


def _smoke(config: dict) -> None:
    """Shrinks a config to seconds, warm-up and data included."""
    config["data"].update(smoke=True, steps=24)
    model, options = config["model"], config["model"]["options"]
    model.update(width=16, depth=min(model["depth"], 2))
    if "sublayers" in options:
        options.update(sublayers=model["depth"] * len(model["sublayers"]))
    options.update({key: size for key, size in SMOKE_OPTIONS.items() if key in options})
    config["optim"].update(warmup_steps=2)
    config["train"].update(SMOKE_TRAIN)
