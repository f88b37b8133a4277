"""Losses and scores of classification, as sums over records so that they can be averaged exactly."""

from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int


class Sums(NamedTuple):
    """Sums over records: negative log-likelihood in nats, hits, and number of records."""

    loss: Float[Array, ""]
    correct: Float[Array, ""]
    count: Float[Array, ""]


def classification(logits: Float[Array, "B K"], labels: Int[Array, " B"], weight: Float[Array, " B"] | None) -> Sums:
    """-log softmax(logits)[label] and argmax == label, weighted (None: 1 each)."""
    weight = jnp.ones(labels.shape, logits.dtype) if weight is None else weight
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    correct = jnp.argmax(logits, -1) == labels
    return Sums((weight * nll).sum(), (weight * correct).sum(), weight.sum())
