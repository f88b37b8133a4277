"""ConfigDict -> frozen dataclasses. A config crosses into code once, here, and is checked on the way."""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from data.errors import DataError
from data.registry import without_defaults
from data.spec import DataRequest
from models.build import ModelConfig
from models.norm import Norm
from models.registry import LAYERS, layer_spec
from models.roles import Role
from scans import Choice
from training.errors import ConfigError
from training.folders import SCHEMA
from training.optim import Decay, GroupOption, Schedule, WInScaling

LARGEST = 2**53
"""Of whole numbers in a config: up to here every one is a number of 64 bits, with a fraction or without."""


class OnNonFinite(Choice):
    """When a seed meets a NaN or an infinity: STOP the run (exit 3), or CONTINUE with the other seeds."""

    STOP = "stop"
    CONTINUE = "continue"


class Mirrors(Choice):
    """Where the rows of metrics.jsonl are copied to while a run writes them, see `training.mirrors`."""

    NONE = "none"
    TENSORBOARD = "tensorboard"
    WANDB = "wandb"
    BOTH = "both"


@dataclass(frozen=True)
class DataConfig:
    """length_window, limit, choices, partial, steps: see `data.spec.DataRequest`; (), 0 and {} are none.

    smoke: a tiny sample made in memory.
    """

    task: str
    length_window: tuple[int, ...] = ()
    limit: int = 0
    smoke: bool = False
    choices: dict[str, str] = field(default_factory=dict)
    partial: bool = False
    steps: int = 0

    @property
    def request(self) -> DataRequest:
        """The data set that is meant. Raises DataError for one that makes no sense."""
        if len(self.length_window) not in (0, 2):
            raise DataError(f"data.length_window must be () or (low, high), got {self.length_window}")
        window = (self.length_window[0], self.length_window[1]) if self.length_window else None
        chosen = tuple(sorted(self.choices.items()))
        asked = DataRequest(self.task, window, self.limit or None, chosen, self.partial, self.steps or None)
        return without_defaults(asked)


@dataclass(frozen=True)
class OptimConfig:
    """lr: peak rate of the `regular` group. ssm_lr: peak rate of the recurrence. groups: see `training.optim`.

    w_in_rate: the rate of MRU's W_in as a share of lr. w_in_scaling: see `training.optim.ElementsRule`.
    Warm-up is linear over warmup_steps, then a cosine to lr_min at the last step. schedule, decay: this and sound
    groups, or what published runs did instead. b2: of Adam. clip: largest norm of the whole gradient; 0 is none.
    """

    lr: float
    ssm_lr: float
    weight_decay: float = 0.0
    warmup_steps: int = 0
    groups: GroupOption = GroupOption.STANDARD
    w_in_rate: float = 1.0
    w_in_scaling: WInScaling = WInScaling.NONE
    schedule: Schedule = Schedule.CLEAN
    decay: Decay = Decay.CLEAN
    lr_min: float = 0.0
    b2: float = 0.999
    clip: float = 0.0

    def __post_init__(self):
        if self.lr <= 0 or self.ssm_lr <= 0:
            raise ValueError(f"optim: rates must be positive, got lr={self.lr}, ssm_lr={self.ssm_lr}")
        if not 0 <= self.lr_min <= min(self.lr, self.ssm_lr):
            raise ValueError(
                f"optim: lr_min={self.lr_min} must be in 0..{min(self.lr, self.ssm_lr)}, the smaller of lr and ssm_lr"
            )
        if not 0 < self.b2 < 1:
            raise ValueError(f"optim: b2={self.b2} must lie between 0 and 1")
        if self.clip < 0:
            raise ValueError(f"optim: clip={self.clip} must not be negative; 0 is none")
        if self.clip and self.w_in_scaling is WInScaling.PUBLISHED:
            raise ValueError(f"optim: clip={self.clip} with w_in_scaling=published, which clips each group: set clip=0")
        if self.w_in_rate <= 0:
            raise ValueError(f"optim: w_in_rate={self.w_in_rate} must be positive")
        if self.weight_decay < 0 or self.warmup_steps < 0:
            raise ValueError(
                f"optim: weight_decay={self.weight_decay} and warmup_steps={self.warmup_steps} must not be negative"
            )


@dataclass(frozen=True)
class TrainConfig:
    """How long, how much at once, and what is done every so many steps.

    steps: updates. accumulate: in how many parts, one after the other, the gradient of a batch is taken, so that only
    one part is in memory; the update is that of the whole batch. remat: what blocks compute is computed again for the
    gradient instead of kept. profile: first and last step of which a trace is written; () is none.
    """

    steps: int
    batch_size: int
    eval_batch_size: int = 100
    log_every: int = 10
    probe_every: int = 100
    probe_size: int = 64
    eval_every: int = 1000
    checkpoint_every: int = 1000
    accumulate: int = 1
    remat: bool = False
    profile: tuple[int, ...] = ()

    def __post_init__(self):
        for name, value in dataclasses.asdict(self).items():
            if isinstance(value, int) and not isinstance(value, bool) and value < 1:
                raise ValueError(f"train: {name}={value} must be at least 1")
        if self.batch_size % self.accumulate:
            raise ValueError(f"train: batch_size={self.batch_size} is not a multiple of accumulate={self.accumulate}")
        if self.profile and not (len(self.profile) == 2 and 1 <= self.profile[0] <= self.profile[1] <= self.steps):
            raise ValueError(
                f"train: profile={self.profile} must be () or (first, last) with 1 <= first <= last <= {self.steps}"
            )


@dataclass(frozen=True)
class MeshConfig:
    """How devices share a run: its seeds, the records of a batch, and time. batch=0: as many as are left."""

    batch: int = 0
    seeds: int = 1
    sequence: int = 1

    def __post_init__(self):
        for name, value in dataclasses.asdict(self).items():
            if value < (name != "batch"):
                raise ValueError(f"mesh: {name}={value} must be at least {int(name != 'batch')}")


@dataclass(frozen=True)
class ExperimentConfig:
    """One run: all its seeds train together in one program.

    compile_cache: a folder for compiled programs, which later runs take from there; "" leaves it to
    $JAX_COMPILATION_CACHE_DIR. init_from: a folder of a run whose weights this one starts from, "" for drawn ones;
    init_checkpoint: best, last or a step of it; see `training.inherit`.
    """

    seeds: tuple[int, ...]
    data: DataConfig
    model: ModelConfig
    optim: OptimConfig
    train: TrainConfig
    on_nonfinite: OnNonFinite = OnNonFinite.STOP
    compile_cache: str = ""
    mirrors: Mirrors = Mirrors.NONE
    published: str = ""
    init_from: str = ""
    init_checkpoint: str = "best"
    mesh: MeshConfig = MeshConfig()
    schema: int = field(default=SCHEMA)

    def __post_init__(self):
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds must be distinct, at least one, got {self.seeds}")
        if min(self.seeds) < 0 or max(self.seeds) >= 2**31:
            raise ValueError(f"seeds must be in 0..2^31-1, got {self.seeds}")
        if self.optim.warmup_steps > self.train.steps:
            raise ValueError(
                f"optim.warmup_steps={self.optim.warmup_steps} is longer than train.steps={self.train.steps}"
            )
        if self.train.accumulate > 1 and self.model.norm is Norm.BATCH:
            raise ValueError(
                f"train.accumulate={self.train.accumulate}: batch norm needs a batch as a whole: "
                "set model.norm=layer, or accumulate=1"
            )
        self._check_mesh()
        rate, scaling = self.optim.w_in_rate, self.optim.w_in_scaling
        has_elements = Role.ELEMENTS in layer_spec(self.model.layer).roles.values()
        if not has_elements and (rate != 1 or scaling is not WInScaling.NONE):
            raise ValueError(
                f"optim.w_in_rate={rate} and optim.w_in_scaling={scaling} are for the layer mru, not for "
                f"{self.model.layer}: leave them at 1.0 and none"
            )

    def _check_mesh(self) -> None:
        if len(self.seeds) % self.mesh.seeds:
            raise ValueError(f"mesh.seeds={self.mesh.seeds} does not divide {len(self.seeds)} seeds: choose a divisor")
        names = self.model.sublayers or (self.model.layer,)
        whole = [name for name in names if not layer_spec(name).splits_time]
        if self.mesh.sequence > 1 and whole:
            able = ", ".join(name for name, spec in LAYERS.items() if spec.splits_time)
            raise ValueError(
                f"mesh.sequence={self.mesh.sequence}: {whole[0]} needs all steps on one device: leave it at 1, or "
                f"choose from {able}"
            )


def from_config_dict(config: Mapping[str, Any]) -> ExperimentConfig:
    """The checked, frozen form of a config (a ConfigDict, or what config.json holds).

    Raises ConfigError, one line: an unknown key (with the nearest known one), a missing key, a value of a wrong type or
    not finite, an unknown choice, sizes that do not fit.
    """
    return _build(ExperimentConfig, _plain(config), "config")


def to_plain(config: ExperimentConfig) -> dict[str, Any]:
    """What JSON can say of a config; `from_config_dict` reads it back."""
    return _plain(dataclasses.asdict(config))


def flat(config: ExperimentConfig) -> dict[str, Any]:
    """Dotted key -> value."""

    def walk(prefix: str, value: Any):
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from walk(f"{prefix}.{key}" if prefix else key, inner)
        else:
            yield prefix, value

    return dict(walk("", to_plain(config)))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping) or hasattr(value, "items"):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, Choice):
        return value.value
    return [_plain(inner) for inner in value] if isinstance(value, tuple | list) else value


def _build(kind: type, values: Any, where: str) -> Any:
    """A dataclass from a dict of its fields."""
    if not isinstance(values, dict):
        raise ConfigError(f"{where} must be a group of keys, got {values!r}")
    known = {f.name: f for f in dataclasses.fields(kind)}
    _check_names(values, list(known), where)
    hints = typing.get_type_hints(kind)
    missing = [
        name
        for name, f in known.items()
        if name not in values and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ConfigError(f"{where}.{missing[0]} is missing")
    arguments = {name: _value(hints[name], value, f"{where}.{name}") for name, value in values.items()}
    if kind is ModelConfig:
        arguments["options"] = _layer_options(arguments["layer"], arguments.get("options", {}), f"{where}.options")
    try:
        return kind(**arguments)
    except (ValueError, ArithmeticError) as error:
        raise ConfigError(f"{where}: {error}") from error


def _layer_options(name: str, options: dict[str, Any], where: str) -> dict[str, Any]:
    """The options of the chosen layer, checked against the fields of its config.

    Those not given are spelled out, so that a config.json of before an option was known says its default.
    """
    if name not in LAYERS:
        raise ConfigError(f"config.model.layer: unknown layer {name!r}: expected one of {', '.join(LAYERS)}")
    hints = typing.get_type_hints(layer_spec(name).config)
    _check_names(options, [option for option in hints if option != "width"], where)
    given = {key: _value(hints[key], value, f"{where}.{key}") for key, value in options.items()}
    spelled = {f.name: given.get(f.name, f.default) for f in dataclasses.fields(layer_spec(name).config)}
    del spelled["width"]
    missing = [key for key, value in spelled.items() if value is dataclasses.MISSING]
    if missing:
        raise ConfigError(f"{where}.{missing[0]} is missing")
    return spelled


def _check_names(values: Mapping[str, Any], known: list[str], where: str) -> None:
    for name in map(str, values):
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            raise ConfigError(f"unknown key {where}.{name}: {hint}")


def _value(hint: Any, value: Any, where: str) -> Any:
    """`value` as the type `hint`, or a ConfigError that says what was expected."""
    if dataclasses.is_dataclass(hint):
        return _build(typing.cast(type, hint), value, where)
    if isinstance(hint, type) and issubclass(hint, Choice):
        try:
            return hint(value)
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from error
    origin = typing.get_origin(hint)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where} must be a tuple, got {value!r}")
        inner = typing.get_args(hint)[0]
        return tuple(_value(inner, item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise ConfigError(f"{where} must be a group of keys, got {value!r}")
        return value
    assert not isinstance(hint, types.UnionType), hint
    if type(value) is int and abs(value) > LARGEST:
        raise ConfigError(f"{where} must be within -2^53..2^53, got a number of {value.bit_length()} bits")
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise ConfigError(f"{where} must be a finite number, got {value}")
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ConfigError(f"{where} must be of type {hint.__name__}, got {value!r}")
    return value
