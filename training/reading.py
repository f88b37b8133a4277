"""How a checkpoint reads its inputs when it is scored, where not as in training: at another rate, in other windows."""

import dataclasses
import math
from dataclasses import dataclass

from data.registry import task_spec
from data.spec import InputKind, TaskKind, TaskSpec
from data.splits import Split
from data.windows import Windows
from models.build import Backbone, ModelConfig
from training.config import ExperimentConfig
from training.errors import ConfigError


@dataclass(frozen=True)
class Reading:
    """step_rescale: steps of training in one, see `rescaled`. every: take every so many samples of the normalised
    input, with steps rescaled by as much again; no filter comes before, as in the published test at 8 kHz.

    window: of a text, inputs T of a window; None is that of training. carried: of a text, what came before a window is
    not forgotten, see `scored_split`.
    """

    step_rescale: float = 1.0
    every: int = 1
    window: int | None = None
    carried: bool = False

    def applied(self, config: ExperimentConfig) -> ExperimentConfig:
        """The config of the model that reads so, with the same parameters; its data lie in such windows.

        Raises ConfigError for a layer that knows no rates or does not reach so far, a text that is none, a model that
        carries nothing.
        """
        if self.every < 1:
            raise ConfigError(f"--every={self.every}: expected at least 1")
        config = rescaled(config, self.step_rescale * self.every)
        if self.carried:
            _refuse_stateless(config.model)
        if self.window is None:
            return config
        _refuse_window(self.window, config)
        return dataclasses.replace(config, data=dataclasses.replace(config.data, steps=self.window))

    def refuse_skipping(self, task: TaskSpec) -> None:
        """Raises ConfigError for inputs that are no samples, where some are to be left out."""
        if self.every > 1 and (task.input_kind, task.kind) != (InputKind.CHANNELS, TaskKind.CLASSIFICATION):
            raise ConfigError(f"--every={self.every}: {task.name} has no samples that could be left out")

    def scored_split(self, split: Split, model: ModelConfig) -> Split:
        """What is scored of a split: itself, or, carried, all tokens of the text but the first of each segment once.

        A layer with a recurrent state then reads windows one after the other and keeps the state; attention, whose
        cache is finite, reads windows that overlap by half.
        """
        if not self.carried:
            return split
        assert isinstance(split, Windows)
        return split.sliding() if has_cache(model) else split.consecutive()

    def protocol(self, split: Split, model: ModelConfig) -> str:
        """In words, of a text in windows as long as those of `split`."""
        if not self.carried:
            return f"windows of {split.length}"
        if has_cache(model):
            return f"windows of {split.length} that overlap by {split.length // 2}, the overlap read only"
        return f"consecutive windows of {split.length} with the state carried"


PLAIN = Reading()
"""As in training."""


def has_cache(model: ModelConfig) -> bool:
    """Whether the layer remembers a limited number of tokens, each by itself, instead of a state."""
    return hasattr(model.layer_config(), "max_length")


def _refuse_stateless(model: ModelConfig) -> None:
    if model.backbone is not Backbone.LANGUAGE:
        raise ConfigError(f"--carried: backbone={model.backbone} hands on no state, only backbone=language does")
    if model.layer_config().real_state_size == 0:
        raise ConfigError(f"--carried: layer {model.layer} carries no state: the plain evaluation is the same")


def _refuse_window(window: int, config: ExperimentConfig) -> None:
    task = task_spec(config.data.request)
    if task.kind is not TaskKind.LANGUAGE:
        raise ConfigError(f"--window={window}: {task.name} is no text that could be cut into windows")
    if window < 1:
        raise ConfigError(f"--window={window}: expected at least 1")
    limit = getattr(config.model.layer_config(), "max_length", window)
    if window > limit:
        raise ConfigError(
            f"--window={window}: layer {config.model.layer} was built for {limit} tokens (model.options.max_length)"
        )


def rate_option(config: ExperimentConfig) -> str:
    """The option by which a layer reads another sampling rate. Raises ConfigError for one that knows no rates."""
    for option in ("step_rescale", "held"):
        if option in config.model.options:
            return option
    raise ConfigError(f"another sampling rate: layer {config.model.layer} has no step size and no rule for one")


MOST = 1000
"""Steps for which an input is held: each is computed."""


def rescaled(config: ExperimentConfig, factor: float) -> ExperimentConfig:
    """The config that takes `factor` steps of training in one: the same parameters at another sampling rate.

    2 is for inputs of half the rate. S5 multiplies its step sizes; RotRNN and the LRU, which have none, hold an input
    for `factor` steps (`scans.held_system`). Raises ConfigError for another layer, a factor that is not positive, or
    not whole where inputs are held.
    """
    if factor == 1:
        return config
    options, option = config.model.options, rate_option(config)
    if not math.isfinite(factor):
        raise ConfigError(f"--step_rescale={factor}: expected a finite number")
    if option == "held" and factor > MOST:
        raise ConfigError(f"--step_rescale={factor}: layer {config.model.layer} holds inputs for at most {MOST} steps")
    if option == "held" and factor != round(factor):
        raise ConfigError(f"--step_rescale={factor}: layer {config.model.layer} holds inputs for whole steps")
    options = options | {option: type(options[option])(factor * options[option])}
    try:
        return dataclasses.replace(config, model=dataclasses.replace(config.model, options=options))
    except ValueError as error:
        raise ConfigError(f"--step_rescale={factor}: {error}") from error
