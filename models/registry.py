"""The table of layers. To add one: its folder, and a line here; the contract tests pick it up."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flax import nnx

from attention import Attention, AttentionConfig, LinearAttention, LinearAttentionConfig
from dense import Dense, DenseConfig
from lru import LRU, LRUConfig
from mlp import MLP, MLPConfig
from models.contract import Layer, LayerConfig
from models.roles import Role
from mru import MRU, MRUConfig
from rotrnn import RotRNN, RotRNNConfig
from s5 import S5, S5Config


@dataclass(frozen=True)
class LayerSpec:
    """How a registered layer is made: options -> config (which refuses bad ones) -> module.

    roles: what each of its parameters is for, by name. splits_time: whether devices can share a sequence.
    """

    config: type
    module: Callable[..., Layer]
    roles: dict[str, Role]
    splits_time: bool = False

    def build(self, width: int, options: dict[str, Any], rngs: nnx.Rngs) -> Layer:
        """A layer of model width `width`. Raises ValueError with the numbers for sizes that do not fit."""
        return self.module(self.make_config(width, options), rngs=rngs)

    def make_config(self, width: int, options: dict[str, Any]) -> LayerConfig:
        """The checked config of such a layer."""
        return self.config(width=width, **options)


def _roles(
    recurrence: str = "", inputs: str = "", outputs: str = "", skip: str = "", constant: str = "", projection: str = "",
    elements: str = "", step_size: str = "", basis: str = "",
) -> dict[str, Role]:  # fmt: skip
    named = {
        Role.RECURRENCE: recurrence,
        Role.BASIS: basis,
        Role.STEP_SIZE: step_size,
        Role.INPUT: inputs,
        Role.OUTPUT: outputs,
        Role.SKIP: skip,
        Role.CONSTANT: constant,
        Role.PROJECTION: projection,
        Role.ELEMENTS: elements,
    }
    return {name: role for role, names in named.items() for name in names.split()}


LAYERS: dict[str, LayerSpec] = {
    "rotrnn": LayerSpec(
        RotRNNConfig,
        RotRNN,
        _roles("gamma_log theta theta_log", "B", "C C_backward", "D", constant="xi", basis="M"),
        splits_time=True,
    ),
    "lru": LayerSpec(
        LRUConfig,
        LRU,
        _roles("nu_log theta_log gamma_log", "B_re B_im", "C_re C_im C_backward_re C_backward_im", "D"),
        splits_time=True,
    ),
    "s5": LayerSpec(
        S5Config, S5, _roles("Lambda_re Lambda_im", "B", "C C1 C2", "D", step_size="log_step"), splits_time=True
    ),
    "mru": LayerSpec(MRUConfig, MRU, _roles(elements="W_in", projection="W_down W_out"), splits_time=True),
    "dense": LayerSpec(DenseConfig, Dense, _roles("W", "B", "C", "D")),
    "attention": LayerSpec(AttentionConfig, Attention, _roles(projection="W_q W_k W_v W_out W_turn")),
    "linear_attention": LayerSpec(LinearAttentionConfig, LinearAttention, _roles(projection="W_q W_k W_v W_out")),
    "mlp": LayerSpec(MLPConfig, MLP, _roles(projection="W_in W_out"), splits_time=True),
}


def layer_spec(name: str) -> LayerSpec:
    """The spec of a registered layer. Raises ValueError naming the known ones."""
    if name not in LAYERS:
        raise ValueError(f"unknown layer {name!r}: expected one of {', '.join(LAYERS)}")
    return LAYERS[name]
