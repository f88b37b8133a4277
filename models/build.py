"""Config -> model."""

from dataclasses import dataclass, field
from typing import Any

import flax
import jax
from flax import nnx

from data.spec import TaskSpec
from models.block import Block, Mixing
from models.contract import LayerConfig
from models.registry import layer_spec
from models.sequence import SequenceModel

# Modules are trees that own parameters and nothing else; nothing is shared or mutated through references.
flax.config.update("nnx_graph_mode", False)
flax.config.update("nnx_graph_updates", False)

Params = dict[str, Any]


@dataclass(frozen=True)
class ModelConfig:
    """layer: a name of `models.registry.LAYERS`, with its own options. width: D. depth: number of blocks."""

    layer: str
    width: int
    depth: int
    mixing: Mixing = Mixing.HALF_GLU1
    dropout: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        object.__setattr__(self, "mixing", Mixing(self.mixing))
        if self.width < 1 or self.depth < 1:
            raise ValueError(f"model: width={self.width} and depth={self.depth} must be at least 1")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"model: 0 <= dropout < 1 is needed, got {self.dropout}")
        self.layer_config()

    def layer_config(self) -> LayerConfig:
        """The layer's own config. Raises ValueError for an unknown layer or sizes that do not fit."""
        return layer_spec(self.layer).make_config(self.width, self.options)


def build_model(config: ModelConfig, task: TaskSpec, *, rngs: nnx.Rngs) -> SequenceModel:
    """The model of a task, with initial parameters drawn from `rngs`."""

    def make_block(rngs: nnx.Rngs) -> Block:
        layer = layer_spec(config.layer).build(config.width, config.options, rngs)
        return Block(layer, config.width, config.mixing, config.dropout, rngs=rngs)

    return SequenceModel(task, config.width, config.depth, make_block, rngs=rngs)


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
