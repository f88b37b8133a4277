"""A dense linear recurrence at Glorot initialisation: the baseline of the theory of signal propagation."""

from dense.config import DenseConfig, Weights
from dense.layer import Dense

__all__ = ["Dense", "DenseConfig", "Weights"]
