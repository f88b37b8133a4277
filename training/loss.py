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
    counted = (labels != NO_LABEL).astype(logits.dtype)
    if weight is not None:
        counted *= weight.reshape(-1, *[1] * (labels.ndim - 1))
    nll, predicted = each_label(logits, labels)
    return Sums((counted * nll).sum(0), (counted * (predicted == labels)).sum(0), counted.sum(0))


def each_label(
    logits: Float[Array, "B *T K"], labels: Int[Array, "B *T"]
) -> tuple[Float[Array, "B *T"], Int[Array, "B *T"]]:
    """-log softmax(logits)[label] in nats, without meaning where there is no label, and the class argmax(logits)."""
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.where(labels != NO_LABEL, labels, 0))
    return nll, jnp.argmax(logits, -1)
