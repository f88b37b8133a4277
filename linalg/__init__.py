"""Orthogonal maps of skew-symmetric matrices, and determinants, with their gradients."""

from linalg.determinant import log_abs_det
from linalg.skew import cayley, expm_skew, skew, skew_of_elements

__all__ = ["cayley", "expm_skew", "log_abs_det", "skew", "skew_of_elements"]
