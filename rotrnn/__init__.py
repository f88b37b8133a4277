"""RotRNN (arXiv 2407.07239): rotations as transitions, one decay per head, a normalised input."""

from rotrnn.config import GammaInit, Init, Normalise, Orthogonal, OutputInit, RotRNNConfig, Start, ThetaStorage
from rotrnn.layer import RotRNN

__all__ = [
    "GammaInit",
    "Init",
    "Normalise",
    "Orthogonal",
    "OutputInit",
    "RotRNN",
    "RotRNNConfig",
    "Start",
    "ThetaStorage",
]
