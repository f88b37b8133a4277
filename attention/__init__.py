"""Causal attention: softmax over a key/value cache, and the linear form with a state of fixed size."""

from attention.config import AttentionConfig, LinearAttentionConfig, MRUStart, MRUVariant, Position
from attention.layer import Attention, KeyValueCache, LinearAttention, LinearState

__all__ = [
    "Attention",
    "AttentionConfig",
    "KeyValueCache",
    "LinearAttention",
    "LinearAttentionConfig",
    "LinearState",
    "MRUStart",
    "MRUVariant",
    "Position",
]
