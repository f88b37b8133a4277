"""Orthogonal maps of skew-symmetric matrices, with their gradients."""

from linalg.skew import cayley, expm_skew, skew, skew_of_elements

__all__ = ["cayley", "expm_skew", "skew", "skew_of_elements"]
