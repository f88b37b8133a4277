"""Config -> model."""

from dataclasses import dataclass, field
from typing import Any

import flax
import jax
import jax.numpy as jnp
from flax import nnx

from data.spec import TaskSpec
from models.block import Block, Mixing
from models.contract import LayerConfig
from models.norm import Moments, Norm, Stats
from models.padding import Padding
from models.registry import layer_spec
from models.sequence import SequenceModel

# Modules are trees that own parameters and nothing else; nothing is shared or mutated through references.
flax.config.update("nnx_graph_mode", False)
flax.config.update("nnx_graph_updates", False)

Params = dict[str, Any]


@dataclass(frozen=True)
class ModelConfig:
    """layer: a name of `models.registry.LAYERS`, with its own options. width: D. depth: number of blocks.

    norm: before each layer. bn_momentum: the weight of the old value in the running averages of batch norm.
    padding: see `models.padding.Padding`.
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

    def __post_init__(self):
        for name, kind in (("mixing", Mixing), ("norm", Norm), ("padding", Padding)):
            object.__setattr__(self, name, kind(getattr(self, name)))
        if self.width < 1 or self.depth < 1:
            raise ValueError(f"model: width={self.width} and depth={self.depth} must be at least 1")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"model: 0 <= dropout < 1 is needed, got {self.dropout}")
        if not 0 <= self.bn_momentum < 1:
            raise ValueError(f"model: 0 <= bn_momentum < 1 is needed, got {self.bn_momentum}")
        self.layer_config()

    def layer_config(self) -> LayerConfig:
        """The layer's own config. Raises ValueError for an unknown layer or sizes that do not fit."""
        return layer_spec(self.layer).make_config(self.width, self.options)


def build_model(config: ModelConfig, task: TaskSpec, *, rngs: nnx.Rngs) -> SequenceModel:
    """The model of a task, with initial parameters drawn from `rngs`."""

    def make_block(rngs: nnx.Rngs) -> Block:
        layer = layer_spec(config.layer).build(config.width, config.options, rngs)
        return Block(layer, config.width, config.mixing, config.dropout, config.norm, rngs=rngs)

    return SequenceModel(task, config.width, config.depth, make_block, config.padding, rngs=rngs)


def initial_stats(config: ModelConfig) -> Stats:
    """The running averages of batch norm before the first step: mean 0, variance 1."""
    if config.norm is Norm.LAYER:
        return (None,) * config.depth
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
