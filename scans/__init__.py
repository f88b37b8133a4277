"""Linear recurrences on arrays: `linear_scan` for h_t = a_t h_{t-1} + b_t and `diagonal_layer` for a whole layer.

Nothing here knows flax, configs or training. The layer folders (rotrnn, lru, s5) only make the arrays of a
`DiagonalSystem`; what makes them fast is written once, in this package.
"""

from scans.choice import Choice, Direction, ScanMethod
from scans.diagonal import DiagonalSystem, diagonal_layer, diagonal_step
from scans.energy import diagonal_energy
from scans.linear import linear_scan
from scans.streaming import DiagonalRecurrence, DiagonalState

__all__ = [
    "Choice",
    "DiagonalRecurrence",
    "DiagonalState",
    "DiagonalSystem",
    "Direction",
    "ScanMethod",
    "diagonal_energy",
    "diagonal_layer",
    "diagonal_step",
    "linear_scan",
]
