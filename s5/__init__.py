"""S5 (arXiv 2208.04933): a continuous-time diagonal state space, started at HiPPO and discretised by learned steps."""

from s5.config import CInit, Discretization, S5Config
from s5.layer import S5

__all__ = ["S5", "CInit", "Discretization", "S5Config"]
