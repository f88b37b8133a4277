"""The table of layers. To add one: its folder, and a line here; the contract tests pick it up."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flax import nnx

from lru import LRU, LRUConfig
from models.contract import Layer, LayerConfig
from rotrnn import RotRNN, RotRNNConfig


@dataclass(frozen=True)
class LayerSpec:
    """How a registered layer is made: options -> config (which refuses bad ones) -> module."""

    config: Callable[..., LayerConfig]
    module: Callable[..., Layer]

    def build(self, width: int, options: dict[str, Any], rngs: nnx.Rngs) -> Layer:
        """A layer of model width `width`. Raises ValueError with the numbers for sizes that do not fit."""
        return self.module(self.config(width=width, **options), rngs=rngs)


LAYERS: dict[str, LayerSpec] = {
    "rotrnn": LayerSpec(RotRNNConfig, RotRNN),
    "lru": LayerSpec(LRUConfig, LRU),
}


def layer_spec(name: str) -> LayerSpec:
    """The spec of a registered layer. Raises ValueError naming the known ones."""
    if name not in LAYERS:
        raise ValueError(f"unknown layer {name!r}: expected one of {', '.join(LAYERS)}")
    return LAYERS[name]
