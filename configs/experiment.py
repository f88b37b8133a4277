"""What the families of experiments share: keys after the colon, presets, and `smoke`."""

from ml_collections import ConfigDict

from configs.argument import parse_argument
from configs.layers import MESH, MODEL, OPTIM, OPTIONS, START, TRAIN, options_of, resize_state
from configs.published import LENGTHS, TRAINING_RECORDS, Row, published_padding, row_of

KEYS = {
    "task": str,
    "layer": str,
    "depth": int,
    "real_state_size": int,
    "direction": str,
    "seeds": tuple,
    "preset": str,
    "smoke": bool,
}
PRESETS = ("clean", "published")

SMOKE_SIZES = {"state_size": 16, "heads": 4, "blocks": 4}
SMOKE_STEPS = 96
"""To how many steps `smoke` cuts its inputs."""

SMOKE_TRAIN = {
    "steps": 12,
    "batch_size": 8,
    "eval_batch_size": 16,
    "log_every": 1,
    "probe_every": 4,
    "probe_size": 8,
    "eval_every": 4,
    "checkpoint_every": 4,
}


def family(argument: str | None, tasks: tuple[str, ...], choices: dict[str, dict[str, str]]) -> ConfigDict:
    """The config of one row of a family. choices: task -> how its data are made and read, where there are ways.

    Raises ValueError for an unknown task, layer or preset, or a direction or state that the layer does not have.
    """
    given = {"task": tasks[0], "layer": "rotrnn", "preset": "clean", "seeds": (0,), "smoke": False}
    given |= parse_argument(argument, KEYS)
    for key, known in (("task", tasks), ("layer", tuple(OPTIONS)), ("preset", PRESETS)):
        if given[key] not in known:
            raise ValueError(f"{key}={given[key]!r} after the colon: expected one of {', '.join(known)}")
    task, layer = given["task"], given["layer"]
    config = _config(task, layer, row_of(task, layer), given["seeds"], dict(choices.get(task, {})))
    if given["preset"] == "published":
        _as_published(config, layer)
    if "depth" in given:
        config["model"].update(depth=given["depth"])
    _turn(config, given.get("direction"))
    if given["smoke"]:
        _smoke(config)
    resize_state(config["model"], given, SMOKE_SIZES["state_size"])
    if "sublayers" in config["model"]["options"]:
        config["model"]["options"].update(sublayers=config["model"]["depth"])
    return ConfigDict(config)


def _config(task: str, layer: str, row: Row, seeds: tuple[int, ...], choices: dict[str, str]) -> dict:
    per_epoch = TRAINING_RECORDS[task] // row["batch_size"]
    return {
        "seeds": seeds,
        "data": {
            "task": task,
            "length_window": (),
            "limit": 0,
            "smoke": False,
            "choices": choices,
            "partial": False,
            "steps": 0,
        },
        "model": {
            "layer": layer,
            **MODEL,
            "norm": "batch",
            **row["model"],
            "options": options_of(layer, **row["options"]),
        },
        "optim": {**OPTIM, **row["optim"], "warmup_steps": round(row["warmup_epochs"] * per_epoch)},
        "train": {
            **TRAIN,
            "steps": round(row["epochs"] * per_epoch),
            "batch_size": row["batch_size"],
            "eval_batch_size": 50,
            "log_every": 50,
            "probe_every": 500,
            "probe_size": 64,
            "eval_every": per_epoch,
            "checkpoint_every": per_epoch,
        },
        "mesh": {**MESH},
        "on_nonfinite": "stop",
        "compile_cache": "",
        "mirrors": "none",
        **START,
        "published": row["published"],
    }


def _as_published(config: dict, layer: str) -> None:
    """The schedule, the decay, the padding and the selection of the published code, quirks included."""
    config["model"].update(padding=published_padding(config["data"]["task"], layer))
    config["optim"].update(schedule="published", decay="published")
    if "policy" in config["data"]["choices"]:
        # All 25,000 reviews are trained on: as many epochs of more steps.
        grown = 25_000 / TRAINING_RECORDS[config["data"]["task"]]
        train = config["train"]
        for key in ("steps", "eval_every", "checkpoint_every"):
            train[key] = round(train[key] * grown)
        config["optim"].update(warmup_steps=round(config["optim"]["warmup_steps"] * grown))
        config["data"]["choices"].update(policy="test_selected")


def _turn(config: dict, direction: str | None) -> None:
    options = config["model"]["options"]
    if direction is None:
        return
    if "direction" in options:
        options.update(direction=direction)
    elif direction != "forward":
        raise ValueError(f"direction={direction} after the colon: {config['model']['layer']} reads forward only")


def _smoke(config: dict) -> None:
    """Shrinks a config to seconds, warm-up and data included."""
    model, options, task = config["model"], config["model"]["options"], config["data"]["task"]
    if task == "listops":
        config["data"].update(smoke=True, length_window=(24, SMOKE_STEPS))
    else:
        config["data"].update(smoke=True, steps=min(SMOKE_STEPS, LENGTHS[task]))
    model.update(width=16, depth=min(model["depth"], 2))
    options.update({key: size for key, size in SMOKE_SIZES.items() if key in options})
    config["optim"].update(warmup_steps=2)
    config["train"].update(SMOKE_TRAIN)
