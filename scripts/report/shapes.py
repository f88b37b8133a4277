"""What the files of a run must be like to be reported on: they may be of another version, or altered by hand.

A shape is a type, or several in a tuple; a list with the shape of its elements; a dict: key -> shape, where "?name" may
be missing and `...` stands for every key; a function that says what it expects of a value, "" if it is so; or Null.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from training.errors import ConfigError

Shape = Any
LARGEST = 2**53


class Null(NamedTuple):
    """A shape, or null."""

    inner: Shape


def require(value: Any, shape: Shape, where: str) -> None:
    """Raises ConfigError, naming the place, for a value of another shape."""
    match shape:
        case Null(inner):
            if value is not None:
                require(value, inner, where)
        case dict():
            if not isinstance(value, dict):
                raise ConfigError(f"{where} is {value!r}, expected a group of keys")
            for key, inner in shape.items():
                if key is ...:
                    for name in value:
                        require(value[name], inner, f"{where}.{name}")
                elif (name := key.removeprefix("?")) in value:
                    require(value[name], inner, f"{where}.{name}")
                elif name == key:
                    raise ConfigError(f"{where}.{key} is missing")
        case [inner]:
            if not isinstance(value, list):
                raise ConfigError(f"{where} is {value!r}, expected a list")
            for place, element in enumerate(value):
                require(element, inner, f"{where}[{place}]")
        case type() | tuple():
            if not isinstance(value, shape):
                raise ConfigError(f"{where} is {value!r}, expected {shape}")
        case _:
            if expected := shape(value):
                raise ConfigError(f"{where} is {value!r}, expected {expected}")


def whole(value: Any) -> str:
    return "" if type(value) is int and 0 <= value < LARGEST else "a whole number"


def positive(value: Any) -> str:
    return "" if type(value) is int and 0 < value < LARGEST else "a whole number of at least 1"


def number(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isfinite(value) else "a finite number"
    return "" if type(value) is int and abs(value) < LARGEST else "a number"


def share(value: Any) -> str:
    return "" if not number(value) and 0 <= value <= 1 else "a number in 0..1"


CONFIG = {
    "seeds": [whole],
    "data": {
        "task": str, "?length_window": [whole], "?limit": whole, "?steps": whole, "?smoke": bool, "?choices": dict,
    },
    "model": {"layer": str, "depth": positive, "options": dict, "?padding": str},
    "optim": {"lr": number},
    "train": {"steps": positive, "batch_size": positive},
    "?init_from": str,
}  # fmt: skip
FACTS = {
    "?data_sha256": str, "?probe_times": [positive], "?parameters": whole, "?state_size": whole, "?cores": whole,
    "?steps_per_record": whole, "?devices": [str],
}  # fmt: skip
COST = {"peak_memory_bytes": number, "of": str}
SCORES = {"accuracy": {"accuracy": Null(share), "?alive": bool}, "loss": {"loss": Null(number), "?alive": bool}}
RECORD = {
    "split": str, "checkpoint": str, "count": positive, "?step_rescale": number, "?every": number,
    "?window": (int, type(None)), "?carried": bool, "?partial": bool, "?updates": whole, "?data_sha256": str,
    "?baselines": Null({...: number}), "?choices": Null({...: str}),
}  # fmt: skip
ROW = {"seed": int, "split": str, "loss": (int, float, type(None)), "?seconds": (int, float)}
OVER_TIME = ("state_energy_t", "state_white_t", "state_coloured_t")


def require_run(config: Any, facts: Any, cost: Any) -> None:
    """Raises ConfigError for a config.json or a cost.json of which no report can be made."""
    require(config, CONFIG, "config")
    require(facts, FACTS, "config.json")
    require(cost, COST if cost else {}, "cost.json")
    if not config["seeds"] or len(config["data"].get("length_window", ())) not in (0, 2):
        raise ConfigError("config has no seeds, or a length_window that is none")


def require_records(records: Any) -> None:
    """Raises ConfigError for a results.json of which no report can be made."""
    require(records, [RECORD], "results.json")
    for place, record in enumerate(records):
        where, metric = f"results.json[{place}]", record.get("metric", "accuracy")
        if metric not in ("accuracy", "loss"):
            raise ConfigError(f"{where}.metric is {metric!r}, expected accuracy or loss")
        require(record.get("seeds"), {...: SCORES[metric]}, f"{where}.seeds")


def require_rows(rows: Sequence[Mapping[str, Any]], times: Sequence[int]) -> None:
    """Raises ConfigError for rows of a metrics.jsonl, read by `training.writers`, of which no report can be made."""
    for row in rows:
        where = f"metrics.jsonl, step {row['step']}"
        require(row, ROW, where)
        if row["split"] == "val":
            require(row.get("accuracy"), (int, float), f"{where}: accuracy")
        for name, values in row.items():
            if name.startswith("state_"):
                of_layers = [Null(_of_a_layer(name, len(times)))]
                require(values, of_layers if name == "state_energy" else Null(of_layers), f"{where}: {name}")


def _of_a_layer(name: str, times: int) -> Shape:
    if name not in OVER_TIME:
        return (int, float)
    return lambda value: "" if isinstance(value, list) and len(value) == times else f"a list of {times} energies"
