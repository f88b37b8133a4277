"""Linear recurrences on arrays: `linear_scan` for h_t = a_t h_{t-1} + b_t, `diagonal_layer` for a whole layer of them,
`dense_scan` for h_t = W h_{t-1} + b_t, and `matrix_scan` for products of matrices, H_t = H_{t-1} M_t.

Nothing here knows flax, configs or training. The layer folders only make the arrays (rotrnn, lru, s5: a
`DiagonalSystem`; mru: the matrices M_t; dense: W); what makes them fast is written once, in this package.
"""

from scans.autocovariance import cross_covariance
from scans.checks import Mask, check_call, step_mask
from scans.choice import Choice, Direction, ScanMethod
from scans.chunked import check_chunk
from scans.dense import dense_scan
from scans.diagonal import diagonal_layer, diagonal_step
from scans.energy import diagonal_energy, mean_at_times
from scans.held import held_system
from scans.linear import linear_scan
from scans.matrix import ScaledMatrix, matrix_scan, scaled_matrix_scan
from scans.projection import is_low, like_activations, project
from scans.sharded import TIME, time_axis
from scans.streaming import DiagonalRecurrence, DiagonalState
from scans.system import DiagonalSystem

__all__ = [
    "TIME",
    "Choice",
    "DiagonalRecurrence",
    "DiagonalState",
    "DiagonalSystem",
    "Direction",
    "Mask",
    "ScaledMatrix",
    "ScanMethod",
    "check_call",
    "check_chunk",
    "cross_covariance",
    "dense_scan",
    "diagonal_energy",
    "diagonal_layer",
    "diagonal_step",
    "held_system",
    "is_low",
    "like_activations",
    "linear_scan",
    "matrix_scan",
    "mean_at_times",
    "project",
    "scaled_matrix_scan",
    "step_mask",
    "time_axis",
]
