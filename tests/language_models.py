"""Language models whose parameters are far from their initial values."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from configs.layers import options_of
from data.spec import InputKind, TaskKind, TaskSpec
from models.build import Backbone, ModelConfig, Params, abstract_model

TOKENS, WIDTH = 11, 8


@dataclass(frozen=True)
class Model:
    """A layer and an MLP as a language model, taken apart."""

    graphdef: nnx.GraphDef
    params: Params

    @classmethod
    def of(cls, layer: str, options: dict[str, Any]) -> "Model":
        """`layer` with some of its options."""
        sizes = options_of(layer, **options)
        if "sublayers" in sizes:
            sizes["sublayers"] = 2
        config = ModelConfig(layer, WIDTH, 1, options=sizes, backbone=Backbone.LANGUAGE, sublayers=(layer, "mlp"))
        task = TaskSpec("text", TaskKind.LANGUAGE, InputKind.TOKENS, TOKENS, 8, TOKENS)
        graphdef, shapes = abstract_model(config, task)
        draw = np.random.default_rng(0)
        return cls(graphdef, jax.tree.map(lambda p: jnp.asarray(0.6 * draw.normal(size=p.shape), p.dtype), shapes))

    def module(self) -> Any:
        """The model itself."""
        return nnx.merge(self.graphdef, self.params)
