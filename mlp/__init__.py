"""A layer that mixes channels and never tokens: the reference for what a model can do without context."""

from mlp.config import MLPConfig
from mlp.layer import MLP

__all__ = ["MLP", "MLPConfig"]
