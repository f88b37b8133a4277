"""MRU, the matrix recurrent unit (mikayahlevi/mru-lm): the state is the running product of input-made matrices."""

from mru.config import MRUConfig, OutputNorm, StateScan, Variant
from mru.layer import MRU, MRUState

__all__ = ["MRU", "MRUConfig", "MRUState", "OutputNorm", "StateScan", "Variant"]
