"""The config of a run -> the command that makes such a run, from the families in configs/."""

import functools
import itertools
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from configs import demo, lra, pixels, probes, speech_commands, stability
from configs.experiment import PRESETS

FAMILIES = {"configs/lra.py": lra, "configs/speech_commands.py": speech_commands, "configs/pixels.py": pixels}
NAMES = {
    "rotrnn": "RotRNN",
    "lru": "LRU",
    "s5": "S5",
    "mru": "MRU",
    "dense": "Dense recurrence",
    "attention": "Attention",
    "linear_attention": "Linear attention",
    "mlp": "MLP",
}

NO_MATTER = {"seeds", "schema", "published", "on_nonfinite", "compile_cache", "mirrors", "train.profile"}
NO_MATTER |= {"mesh.batch", "mesh.seeds", "mesh.sequence"}
"""Keys that are no part of a setting."""
MEASURING = {
    f"train.{key}" for key in ("eval_batch_size", "log_every", "probe_every", "probe_size", "checkpoint_every")
}
"""Keys that change what is written down, but no parameter."""
DEFAULTS = {
    "optim.w_in_rate": 1.0,
    "optim.w_in_scaling": "none",
    "train.accumulate": 1,
    "data.partial": False,
    "data.steps": 0,
    "init_from": "",
    "init_checkpoint": "best",
}
"""What a family may leave out, as `training.config` fills it in."""


@dataclass(frozen=True)
class Command:
    """argument: keys after the colon, without seeds; overrides: dotted keys. file: "" if no family has such a run."""

    file: str
    layer: str
    argument: Mapping[str, object]
    overrides: Mapping[str, object]

    @property
    def setting(self) -> tuple[str, ...]:
        """What tells runs apart that differ in more than their seeds and what they log."""
        return (self.file, self.layer, *self.parts, *(f"{key}={self.argument[key]}" for key in sorted(self.argument)))

    @property
    def parts(self) -> tuple[str, ...]:
        """In words, what is not the family's default for the layer and task."""
        given = [
            str(value) if key == "layer" else f"{key}={value}"
            for key, value in self.argument.items()
            if key not in ("task", "smoke") and (key, value) != ("layer", self.layer)
        ]
        changed = {key: value for key, value in self.overrides.items() if key not in MEASURING}
        return (*given, *(f"{key.rpartition('.')[2]}={_written(value)}" for key, value in changed.items()))

    def train(self, seeds: tuple[int, ...], workdir: str) -> str:
        """The command line of train.py."""
        if not self.file:
            return f"python train.py with the config of {workdir}/config.json, --workdir={shlex.quote(workdir)}"
        given = {key: value for key, value in self.argument.items() if key != "smoke"} | {"seeds": _range(seeds)}
        argument = ",".join(
            [*(f"{key}={value}" for key, value in given.items()), *(["smoke"] * ("smoke" in self.argument))]
        )
        changes = [shlex.quote(f"--config.{key}={_written(value)}") for key, value in self.overrides.items()]
        return " ".join(
            ["python train.py", f"--config={self.file}:{argument}", *changes, f"--workdir={shlex.quote(workdir)}"]
        )


def command_of(config: Mapping[str, Any]) -> Command:
    """The command whose config is this one, with as few overrides as there can be."""
    layer, plain = config["model"]["layer"], flat(config)
    try:
        found = [Command(file, layer, argument, _changes(base, plain)) for file, argument, base in _bases(config)]
    except ValueError:  # a layer or a direction that no family knows
        found = []
    none = Command("", layer, {"task": config["data"]["task"]}, {k: v for k, v in plain.items() if k not in NO_MATTER})
    return min(found, key=lambda command: len(command.overrides), default=none)


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value; tuples as lists."""
    found = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = list(value) if isinstance(value, tuple) else value
    return found


def _bases(config: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, object], dict[str, Any]]]:
    """File, argument and flat config of everything in configs/ that this config may be a change of."""
    data, model = config["data"], config["model"]
    smoke = {"smoke": True} if data.get("smoke") else {}
    for file, family in FAMILIES.items():
        for preset in PRESETS if data["task"] in family.TASKS else ():
            argument = {"task": data["task"], "layer": model["layer"]} | (
                {"preset": preset} if preset != "clean" else {}
            )
            yield file, *_fitted(family, argument, smoke, model)
    if list(data.get("length_window") or ()) == [24, 96]:
        for cell in demo.CELLS:
            yield "configs/demo.py", *_made(demo, demo.values_of(cell) | {"seeds": None})
    if data["task"] in stability.DATA:
        usual = smoke or config["train"]["steps"] == stability.UPDATES[data["task"]]
        known = {"task": data["task"], "depth": model["depth"]}
        known |= {} if usual else {"updates": config["train"]["steps"]}
        for layer, rate in itertools.product(stability.LAYERS, demo.RATES):
            if stability.LAYERS[layer][0] == model["layer"]:
                yield "configs/stability.py", *_made(stability, {**known, "layer": layer, "rate": rate} | smoke)
    if data["task"] in probes.TASKS:
        for layer, (registered, _) in probes.LAYERS.items():
            if registered == model["layer"]:
                argument = {"task": data["task"], "layer": layer, "lr": config["optim"]["lr"]}
                yield "configs/probes.py", *_made(probes, argument | smoke)


def _fitted(family: Any, argument: dict, smoke: dict, model: Mapping[str, Any]) -> tuple[dict, dict[str, Any]]:
    """With depth and direction after the colon, where they are not the family's."""
    base = _made(family, argument)[1]
    if model["depth"] != base["model.depth"] and not smoke:
        argument = argument | {"depth": model["depth"]}
    direction = model["options"].get("direction")
    if direction != base.get("model.options.direction"):
        argument = argument | {"direction": direction}
    return _made(family, argument | smoke)


def _made(family: Any, argument: dict) -> tuple[dict, dict[str, Any]]:
    argument = {key: value for key, value in argument.items() if value is not None}
    return argument, _flat_config(family, ",".join(f"{key}={value}" for key, value in argument.items()))


@functools.cache  # runs of one study ask for the same ones
def _flat_config(family: Any, argument: str) -> dict[str, Any]:
    return flat(family.get_config(argument).to_dict())


def _changes(base: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """What differs; a key that an older run lacks is as it is now."""
    known = {**DEFAULTS, **base}
    return {
        key: value
        for key, value in found.items()
        if key not in NO_MATTER and not (key in known and known[key] == value)
    }


def _written(value: object) -> str:
    return f"({','.join(map(str, value))})" if isinstance(value, list) else str(value)


def _range(seeds: tuple[int, ...]) -> str:
    """As `configs.argument` reads them."""
    first, last = min(seeds), max(seeds)
    if len(seeds) > 1 and last - first + 1 == len({*seeds}) == len(seeds):
        return f"{first}:{last + 1}"
    return "+".join(map(str, sorted(seeds)))
