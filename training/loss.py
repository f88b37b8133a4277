"""Losses and scores of labels, as sums over records so that they can be averaged exactly."""

from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from data.spec import NO_LABEL


class Sums(NamedTuple):
    """Sums over records: negative log-likelihood in nats, hits, and number of labels.

    Where steps are labelled, they are those of each step.
    """

    loss: Float[Array, "*T"]
    correct: Float[Array, "*T"]
    count: Float[Array, "*T"]


def score_labels(logits: Float[Array, "B *T K"], labels: Int[Array, "B *T"], weight: Float[Array, " B"] | None) -> Sums:
    """-log softmax(logits)[label] and argmax == label where there is a label, records weighted (None: 1 each)."""
    labelled = labels != NO_LABEL
    counted = labelled.astype(logits.dtype)
    if weight is not None:
        counted *= weight.reshape(-1, *[1] * (labels.ndim - 1))
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.where(labelled, labels, 0))
    correct = jnp.argmax(logits, -1) == labels
    return Sums((counted * nll).sum(0), (counted * correct).sum(0), counted.sum(0))
