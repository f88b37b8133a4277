"""Which cells a sweep has: products of values, lists of them from a file, and random draws; kept in plan.json."""

import fcntl
import itertools
import json
import math
import random
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from absl import flags
from ml_collections import config_flags

from data import strict_json
from training import cli
from training.config import ExperimentConfig, from_config_dict, to_plain
from training.errors import ConfigError
from training.files import write_json
from training.workdir import differences

PLAN = "plan.json"
LOGS = "log"
LONGEST_NAME = 200
"""Bytes of a folder's: file systems take 255."""

MOST = 10_000
"""Cells of a sweep: a typing error in a grid multiplies them."""

Values = dict[str, str]
"""What one cell sets: keys of the string after the colon, or config.a.b, as they would be typed."""

Range = tuple[float, float, bool, bool]
"""Lowest, highest, whether the logarithm is uniform, whether only whole numbers are drawn."""


class Cell(NamedTuple):
    """One run: `flags` are those of train.py, from which `config` follows."""

    name: str
    flags: tuple[str, ...]
    config: ExperimentConfig


def parse_grid(text: str) -> list[Values]:
    """'a=1,2; config.b.c=(1,2),(3,4)' -> the cartesian product, the last key fastest. Raises ConfigError."""
    keys = {}
    for key, value in pairs(text):
        keys[key] = [_present(key, v) for v in _split(",", value)]
    if not keys:
        raise ConfigError(f"the grid {text!r} is empty: expected key=values; key=values")
    _refuse_many(math.prod(map(len, keys.values())), text)
    return [dict(zip(keys, values, strict=True)) for values in itertools.product(*keys.values())]


def read_list(path: Path) -> list[Values]:
    """The cells of a file with one grid a line; # begins a comment. Raises ConfigError, naming the line."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"--list: {path}: {getattr(error, 'strerror', None) or error}") from error
    cells = []
    for number, line in enumerate(lines, start=1):
        if not (grid := line.partition("#")[0].strip()):
            continue
        try:
            cells += parse_grid(grid)
        except ConfigError as error:
            raise ConfigError(f"{path}, line {number}: {error}") from error
        _refuse_many(len(cells), str(path))
    return cells


def _refuse_many(count: int, what: str) -> None:
    if count > MOST:
        raise ConfigError(f"{what!r} gives more than {MOST:,} cells: make several sweeps")


def draw(text: str, trials: int, seed: int) -> list[Values]:
    """`trials` draws from named ranges: 'a=0:0.3; b=log:1e-4:1e-2; c=2:6', whole numbers if both ends are.

    A draw depends on (seed, number of the trial, key) alone: more trials leave those before them as they are.
    Raises ConfigError.
    """
    ranges = {key: _range(key, value) for key, value in pairs(text)}
    _refuse_many(trials, f"--trials={trials}")
    return [
        {key: _drawn(bounds, random.Random(f"{seed}/{trial}/{key}").random()) for key, bounds in ranges.items()}
        for trial in range(trials)
    ]


def _range(key: str, text: str) -> Range:
    logarithmic = text.startswith("log:")
    low, given, high = text.removeprefix("log:").partition(":")
    try:
        lowest, highest = float(low), float(high)
        # What is drawn lies between: how far apart the ends are must be a number, too.
        apart = math.inf if logarithmic and lowest <= 0 else highest / lowest if logarithmic else highest - lowest
        if not (given and lowest < highest and math.isfinite(apart)):
            raise ValueError
    except ValueError:
        raise ConfigError(
            f"{key}={text}: expected LOW:HIGH or log:LOW:HIGH, LOW < HIGH, both finite, and positive for log"
        ) from None
    return lowest, highest, logarithmic, all(re.fullmatch(r"-?\d+", end) for end in (low, high))


def _drawn(bounds: Range, u: float) -> str:
    """The value at the quantile u in [0, 1), with four digits; a whole number has the weight of one of its kind."""
    low, high, logarithmic, whole = bounds
    high += whole
    value = low * (high / low) ** u if logarithmic else low + (high - low) * u
    return str(math.floor(value)) if whole else f"{value:.4g}"


def pairs(text: str) -> Iterator[tuple[str, str]]:
    """(key, value) of 'key=value; key=value'."""
    seen = set()
    for part in filter(None, _split(";", text)):
        key, given, value = (side.strip() for side in part.partition("="))
        if not given or not re.fullmatch(r"\w+|config(\.\w+)+", key):
            raise ConfigError(f"{part!r}: expected key=values or config.a.b=values")
        if key in seen:
            raise ConfigError(f"{key} is given twice in {text!r}")
        seen.add(key)
        yield key, _present(key, value)


def _present(key: str, value: str) -> str:
    if not value:
        raise ConfigError(f"{key} has an empty value")
    return value


def _split(separator: str, text: str) -> list[str]:
    """Parts between separators that stand in no brackets. Raises ConfigError for brackets that do not match."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth < 0:
            break
        if letter == separator and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    if depth:
        raise ConfigError(f"{text!r}: a bracket has no other one")
    return [*parts, text[start:].strip()]


def product(cells: Sequence[Values], draws: Sequence[Values]) -> list[Values]:
    """Every cell with every draw: all cells get the same ones. Raises ConfigError for a key that is in both."""
    _refuse_many(len(cells) * len(draws), "the grid with the random draws")
    for cell, drawn in itertools.product(cells, draws):
        if both := cell.keys() & drawn.keys():
            raise ConfigError(f"{min(both)} is in the grid and among the random ranges")
    return [cell | drawn for cell, drawn in itertools.product(cells, draws)]


def resolve(config: str, seeds: str | None, chosen: Iterable[Values]) -> list[Cell]:
    """The cells with their configs, each checked as train.py does.

    Raises ConfigError, one line, for a cell that train.py would refuse, and for two that are the same run.
    """
    cells, runs = [], {}
    for values in chosen:
        name, given = _name(values), _flags(config, seeds, values)
        try:
            resolved = _resolved(given)
        except ConfigError as error:
            raise ConfigError(f"cell {name}: {error}") from error
        run = json.dumps(to_plain(resolved))
        if run in runs:
            raise ConfigError(f"cell {name} is the same run as {runs[run]}: leave one out")
        if name in runs.values():
            raise ConfigError(f"two cells would lie in the folder {name}: give one of them another value")
        if len(name.encode()) > LONGEST_NAME:
            raise ConfigError(f"cell {name}: the name of its folder is longer than {LONGEST_NAME} bytes")
        runs[run] = name
        cells.append(Cell(name, given, resolved))
    return cells


def _name(values: Values) -> str:
    """The name of a cell's folder: what it sets."""
    said = ",".join(f"{key.removeprefix('config.')}={value}" for key, value in values.items())
    return re.sub(r"[^\w.,=+:-]+", "-", said) or "only"


def _flags(config: str, seeds: str | None, values: Values) -> tuple[str, ...]:
    """The flags of train.py: keys without a dot stand after the colon, behind those that are there."""
    file, _, argument = config.partition(":")
    parts = [argument] if argument else []
    parts += [f"{key}={value}" for key, value in values.items() if "." not in key]
    parts += [] if seeds is None else [f"seeds={seeds}"]
    overrides = (f"--{key}={value}" for key, value in values.items() if "." in key)
    return f"--config={file}" + (f":{','.join(parts)}" if parts else ""), *overrides


def _resolved(given: Sequence[str]) -> ExperimentConfig:
    """What train.py makes of its flags."""
    values = flags.FlagValues()
    config_flags.DEFINE_config_file("config", None, lock_config=True, flag_values=values, sys_argv=["", *given])
    try:
        cli.parse(["", *given], values)
        return from_config_dict(values.config)
    finally:
        sys.modules.pop("config_config", None)  # the next config file would be executed on top of it


def keep(out: Path, cells: Sequence[Cell]) -> None:
    """Writes plan.json, or checks the one that is there: its cells may only have become more.

    Raises ConfigError, saying what differs, for a folder of another plan, OSError if it cannot be written.
    """
    (out / LOGS).mkdir(parents=True, exist_ok=True)
    with (out / LOGS / "plan.lock").open("w") as lock, _locked(lock):
        before, path = _read(out / PLAN), out / PLAN
        here = {cell.name: cell.config for cell in cells}
        if missing := [name for name in before if name not in here]:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise ConfigError(f"{path} has a cell {missing[0]}{more} that is not in this sweep: choose another --out")
        for name, config in before.items():
            if differing := differences(config, here[name]):
                raise ConfigError(f"{path} has another cell {name}: {'; '.join(differing)}; choose another --out")
        write_json(path, [{"name": c.name, "flags": c.flags, "config": to_plain(c.config)} for c in cells])


def _read(path: Path) -> dict[str, ExperimentConfig]:
    """The cells of a plan; none if there is no such file. Raises ConfigError if it is damaged."""
    if not path.exists():
        return {}
    try:
        return {cell["name"]: from_config_dict(cell["config"]) for cell in strict_json.parse(path.read_bytes())}
    except (ConfigError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is damaged ({error}): remove it, the runs are kept") from error


@contextmanager
def _locked(file: IO[str]) -> Iterator[None]:
    fcntl.flock(file, fcntl.LOCK_EX)
    yield
