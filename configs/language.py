"""What the families of language models share: the models of the study, and how they are trained."""

from ml_collections import ConfigDict

from configs.argument import parse_argument
from configs.experiment import SMOKE_TRAIN
from configs.layers import MESH, MODEL, OPTIM, START, TRAIN, options_of, resize_state

KEYS = {
    "task": str,
    "model": str,
    "variant": str,
    "position": str,
    "real_state_size": int,
    "lr": float,
    "seeds": tuple,
    "smoke": bool,
}

SMALL_MLPS = ("mlp",) * 4
DIAGONAL = {"state_size": 256, "direction": "forward"}

REACH = 4
"""Windows that the cache of attention holds: in so long ones the models are scored, and texts drawn."""

Model = tuple[str, int, int, tuple[str, ...], dict]
"""Layer, width, depth, the sublayers that are repeated so often, options of the layer."""

MODELS: dict[str, Model] = {
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
    """The config of one model. training: tokens of a window, windows of a batch and in how many parts their gradient is
    taken, updates, lr, its final share, warmup, b2, dropout.

    Raises ValueError for an unknown task or model, a variant without MRU, a position without attention, a state that
    the layer cannot have.
    """
    given = {"task": tasks[0], "model": default, "lr": training["lr"], "seeds": (0,), "smoke": False}
    given |= parse_argument(argument, KEYS)
    for key, known in (("task", tasks), ("model", tuple(MODELS))):
        if given[key] not in known:
            raise ValueError(f"{key}={given[key]!r} after the colon: expected one of {', '.join(known)}")
    config = language_config(given["task"], MODELS[given["model"]], training | {"lr": given["lr"]}, choices)
    config["seeds"] = given["seeds"]
    _choose(given, config["model"]["options"], "variant", "mru")
    _choose(given, config["model"]["options"], "position", "attention")
    if given["smoke"]:
        shrink(config)
    resize_state(config["model"], given, SMOKE_OPTIONS["state_size"])
    return ConfigDict(config)


def language_config(task: str, model: Model, training: dict, choices: dict) -> dict:
    """The config of a model; `training` and `choices` as in `family`."""
    layer, width, depth, sublayers, options = model
    tenth = max(1, training["updates"] // 10)
    options = options_of(layer, **options)
    if "sublayers" in options:
        options.update(sublayers=depth * len(sublayers))
    if "max_length" in options:
        options.update(max_length=REACH * training["window"])
    return {
        "seeds": (0,),
        "data": {
            "task": task,
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
            "lr": training["lr"],
            "ssm_lr": training["lr"],
            "lr_min": training["lr"] * training["final"],
            "weight_decay": 0.1,
            "groups": "BfastandCdecay",
            "warmup_steps": training["warmup"],
            "b2": training["b2"],
            "clip": 1.0,
            **({"w_in_rate": 0.1, "w_in_scaling": "none"} if layer == "mru" else {}),
        },
        "train": {
            **TRAIN,
            "steps": training["updates"],
            "batch_size": training["batch_size"],
            "accumulate": training["accumulate"],
            "eval_batch_size": training["batch_size"] // training["accumulate"],
            "log_every": max(1, training["updates"] // 100),
            "probe_every": tenth,
            "probe_size": 16,
            "eval_every": tenth,
            "checkpoint_every": tenth,
        },
        "mesh": {**MESH},
        "on_nonfinite": "continue",
        "compile_cache": "",
        "mirrors": "none",
        **START,
        "published": "",
    }


def _choose(given: dict, options: dict, key: str, layer: str) -> None:
    if key not in given:
        return
    if key not in options:
        raise ValueError(f"{key}={given[key]} after the colon: only {layer} has it, model={given['model']} does not")
    options[key] = given[key]


def shrink(config: dict) -> None:
    """Shrinks a config to seconds, warm-up and data included."""
    config["data"].update(smoke=True, steps=24)
    model, options = config["model"], config["model"]["options"]
    model.update(width=16, depth=min(model["depth"], 2))
    if "sublayers" in options:
        options.update(sublayers=model["depth"] * len(model["sublayers"]))
    options.update({key: size for key, size in SMOKE_OPTIONS.items() if key in options})
    config["optim"].update(warmup_steps=2)
    config["train"].update(SMOKE_TRAIN, accumulate=1)
