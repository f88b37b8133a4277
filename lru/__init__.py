"""LRU, the linear recurrent unit (arXiv 2303.06349): a complex diagonal recurrence with ring-initialised modes."""

from lru.config import Gamma, LRUConfig
from lru.layer import LRU

__all__ = ["LRU", "Gamma", "LRUConfig"]
