"""Config -> model."""

from dataclasses import dataclass, field
from typing import Any

import flax
import jax
import jax.numpy as jnp
from flax import nnx

from data.spec import TaskKind, TaskSpec
from models.block import Block, Mixing
from models.contract import Layer, LayerConfig
from models.language_model import LanguageModel
from models.norm import Moments, Norm, Stats
from models.padding import Padding
from models.precision import Precision
from models.registry import layer_spec
from models.sequence import SequenceModel
from scans import Choice

# Modules are trees that own parameters and nothing else; nothing is shared or mutated through references.
flax.config.update("nnx_graph_mode", False)
flax.config.update("nnx_graph_updates", False)

Params = dict[str, Any]


CHANNEL_LAYER = "mlp"
"""The layer that may stand beside the chosen one in a list of sublayers."""


class Backbone(Choice):
    """What stands around the layers. SEQUENCE: `models.sequence`. LANGUAGE: `models.language_model`."""

    SEQUENCE = "sequence"
    LANGUAGE = "language"


CHOICES = {"mixing": Mixing, "norm": Norm, "padding": Padding, "backbone": Backbone, "precision": Precision}
"""The closed choices of a model."""


@dataclass(frozen=True)
class ModelConfig:
    """layer: a name of `models.registry.LAYERS`, with its own options. width: D. depth: number of blocks.

    norm: before each layer. bn_momentum: the weight of the old value in the running averages of batch norm.
    padding: see `models.padding.Padding`. precision: of activations, see `models.precision.Precision`.
    sublayers: of the language backbone, names of layers that are repeated `depth` times: the chosen layer, with its
        options, and mlp. mixing has no effect there.
    """

    layer: str
    width: int
    depth: int
    mixing: Mixing = Mixing.HALF_GLU1
    dropout: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)
    norm: Norm = Norm.LAYER
    bn_momentum: float = 0.95
    padding: Padding = Padding.FULL
    backbone: Backbone = Backbone.SEQUENCE
    sublayers: tuple[str, ...] = ()
    precision: Precision = Precision.FLOAT32

    def __post_init__(self):
        for name, kind in CHOICES.items():
            object.__setattr__(self, name, kind(getattr(self, name)))
        if self.width < 1 or self.depth < 1:
            raise ValueError(f"model: width={self.width} and depth={self.depth} must be at least 1")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"model: 0 <= dropout < 1 is needed, got {self.dropout}")
        if not 0 <= self.bn_momentum < 1:
            raise ValueError(f"model: 0 <= bn_momentum < 1 is needed, got {self.bn_momentum}")
        layer = self.layer_config()
        if self.backbone is Backbone.LANGUAGE:
            self._check_sublayers(getattr(layer, "sublayers", len(self.sublayers) * self.depth))
        elif self.sublayers:
            raise ValueError(f"model: sublayers={self.sublayers} are for backbone=language: leave them at ()")

    def _check_sublayers(self, told: int) -> None:
        """`told`: the number of sublayers by which the layer scales its initial output."""
        if self.layer not in self.sublayers or not {self.layer, CHANNEL_LAYER}.issuperset(self.sublayers):
            raise ValueError(
                f"model: backbone=language needs sublayers of {self.layer} (at least one) and {CHANNEL_LAYER}, "
                f"got {self.sublayers}"
            )
        if self.norm is not Norm.LAYER:
            raise ValueError(f"model: backbone=language has norm=layer, got norm={self.norm}")
        if told != (count := len(self.sublayers) * self.depth):
            raise ValueError(
                f"model: options.sublayers={told}: {self.depth} times {self.sublayers} are {count} sublayers"
            )

    @property
    def layers(self) -> tuple[str, ...]:
        """The layer of each block."""
        return (self.sublayers if self.backbone is Backbone.LANGUAGE else (self.layer,)) * self.depth

    def layer_config(self) -> LayerConfig:
        """The layer's own config. Raises ValueError for an unknown layer or sizes that do not fit."""
        return layer_spec(self.layer).make_config(self.width, self.options)


def build_model(config: ModelConfig, task: TaskSpec, *, rngs: nnx.Rngs) -> SequenceModel | LanguageModel:
    """The model of a task, with initial parameters drawn from `rngs`. Raises ValueError as `check_task`."""
    check_task(config, task)
    if config.backbone is Backbone.LANGUAGE:
        layers = [_layer(config, name, rngs) for name in config.layers]
        return LanguageModel(
            task.input_width, config.width, layers, config.dropout, config.padding, config.precision, rngs=rngs
        )

    def make_block(rngs: nnx.Rngs) -> Block:
        layer = _layer(config, config.layer, rngs)
        return Block(layer, config.width, config.mixing, config.dropout, config.norm, rngs=rngs)

    return SequenceModel(task, config.width, config.depth, make_block, config.padding, config.precision, rngs=rngs)


def _layer(config: ModelConfig, name: str, rngs: nnx.Rngs) -> Layer:
    options = config.options if name == config.layer else {"sublayers": len(config.layers)}
    return layer_spec(name).build(config.width, options, rngs)


def check_task(config: ModelConfig, task: TaskSpec) -> None:
    """Raises ValueError for a model that cannot be meant for the task."""
    predicts_text = task.kind is TaskKind.LANGUAGE
    if config.backbone is Backbone.LANGUAGE and not predicts_text:
        raise ValueError(f"backbone=language predicts the next token, {task.name} has labels: choose backbone=sequence")
    if predicts_text and config.options.get("direction", "forward") != "forward":
        raise ValueError(
            f"options.direction={config.options['direction']} would see the tokens of {task.name} that it predicts: "
            "choose forward"
        )


def initial_stats(config: ModelConfig) -> Stats:
    """The running averages of batch norm before the first step: mean 0, variance 1."""
    if config.norm is Norm.LAYER:
        return (None,) * len(config.layers)
    return tuple(Moments(jnp.zeros(config.width), jnp.ones(config.width)) for _ in range(config.depth))


def split_model(model: nnx.Module) -> tuple[nnx.GraphDef, Params]:
    """The static part and the parameters as a nested dict of plain arrays."""
    graphdef, state = nnx.split(model)
    return graphdef, nnx.to_pure_dict(state)


def initial_params(config: ModelConfig, task: TaskSpec, key: jax.Array) -> Params:
    """Parameters drawn from `key`, as a nested dict of arrays."""
    return split_model(build_model(config, task, rngs=nnx.Rngs(key)))[1]


def abstract_model(config: ModelConfig, task: TaskSpec) -> tuple[nnx.GraphDef, Params]:
    """The static part and the shapes of the parameters; no array is made."""
    return split_model(nnx.eval_shape(lambda: build_model(config, task, rngs=nnx.Rngs(0))))
