"""Text drawn from a language model, token by token: read what is there in one call, then one step for each token.

The cost of a token does not depend on how many came before, except in the mode WINDOW.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, assert_never

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from models.language_model import States, Systems
from scans import Choice

Params = dict[str, Any]


class SamplingError(ValueError):
    """What a sampler refuses."""


class Mode(Choice):
    """What the state holds.

    CARRY: all tokens. RESET: those since the last end-of-text, which is the first of them; it does not end the text.
    WINDOW: all until there are T, the steps of a training window; then the last T, read anew for every token.
    """

    CARRY = "carry"
    WINDOW = "window"
    RESET = "reset"


@dataclass(frozen=True)
class Drawing:
    """temperature: of the softmax; 0 takes the likeliest token. top_k: so many of the likeliest are left; 0: all.

    Raises SamplingError for a temperature or a number below 0.
    """

    temperature: float = 1.0
    top_k: int = 0

    def __post_init__(self):
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise SamplingError(f"temperature={self.temperature} must be a number of at least 0")
        if self.top_k < 0:
            raise SamplingError(f"top_k={self.top_k} must be at least 0")


COLDEST = 1e-30
"""Temperatures below it are 0: float32 has no room for logits divided by them."""


def draw(logits: Float[Array, "B V"], key: jax.Array, drawing: Drawing) -> Int[Array, " B"]:
    """One token of each row: P(v) proportional to exp(logits_v / temperature) on the top_k largest logits.

    Exactly top_k are left, of equal ones those that come first; the likeliest is the first of equal ones too.
    """
    if drawing.temperature < COLDEST:
        return jnp.argmax(logits, -1).astype(jnp.int32)
    if drawing.top_k == 0:
        return jax.random.categorical(key, logits / drawing.temperature).astype(jnp.int32)
    largest, tokens = lax.top_k(logits, drawing.top_k)
    place = jax.random.categorical(key, largest / drawing.temperature)
    return jnp.take_along_axis(tokens, place[:, None], 1)[:, 0].astype(jnp.int32)


class Place(NamedTuple):
    """Where a text stands: all that decides how it goes on.

    state: of all layers, with `length` tokens in it. logits: of the next token. recent: the last T tokens, or fewer.
    """

    state: States
    logits: Float[Array, "1 V"]
    key: jax.Array
    length: int
    recent: np.ndarray


class Sampler:
    """Draws from one language model; batches of one text. fresh_state: before the first token of a text."""

    def __init__(
        self,
        graphdef: nnx.GraphDef,
        params: Params,
        window: int,
        drawing: Drawing,
        mode: Mode = Mode.CARRY,
        *,
        capacity: int | None = None,
        end_of_text: int | None = None,
    ):
        """Args:
        window: T, steps of a training window.
        capacity: tokens that the state holds, where attention caches them.
        end_of_text: the token that ends a text, where the texts of the training were separated.

        Raises SamplingError for a top_k beyond the vocabulary, and for RESET without an end-of-text.
        """
        vocabulary = params["embedding"].shape[0]
        if drawing.top_k > vocabulary:
            raise SamplingError(f"top_k={drawing.top_k}: the vocabulary has {vocabulary} tokens")
        if mode is Mode.RESET and end_of_text is None:
            raise SamplingError("mode=reset: nothing separates the texts that this model was trained on")
        self.graphdef, self.params, self.window, self.drawing, self.mode = graphdef, params, window, drawing, mode
        self.capacity, self.end_of_text = capacity, end_of_text
        self.fresh_state: States = nnx.merge(graphdef, params).initial_state(1)
        self.systems = _systems(graphdef, params)

    def start(self, tokens: np.ndarray, key: jax.Array) -> Place:
        """After the first tokens of a text, at least one. Raises SamplingError if they are too many for the state."""
        return self._after_reading(tokens, self.fresh_state, key, 0, tokens[:0])

    def read(self, tokens: np.ndarray, place: Place) -> Place:
        """After more tokens, at least one. Raises SamplingError if they are too many for the state."""
        return self._after_reading(tokens, place.state, place.key, place.length, place.recent)

    def go_on(self, place: Place, count: int) -> Iterator[tuple[int, Place]]:
        """`count` tokens, each with the place after it; fewer if end-of-text, which is given, ends the text.

        The key is split once for each token. Raises SamplingError if they are too many for the state: at once, or,
        in the mode RESET, whose texts may be short, when it is full. Raises FloatingPointError when the logits are not
        finite: a state that is carried beyond T may grow without bound.
        """
        if self.mode is Mode.CARRY:
            self._refuse_overflow(place.length + count)
        return self._tokens(place, count)

    def _tokens(self, place: Place, count: int) -> Iterator[tuple[int, Place]]:
        for _ in range(count):
            drawn, key, finite = _choose(place.logits, place.key, self.drawing)
            if not finite:
                raise FloatingPointError(f"the logits after {place.length} tokens are not finite")
            token = int(drawn[0])
            place = self._after(token, place._replace(key=key))
            yield token, place
            if token == self.end_of_text and self.mode is not Mode.RESET:
                return

    def _after(self, token: int, place: Place) -> Place:
        match self.mode:
            case Mode.CARRY:
                pass
            case Mode.RESET:
                if token == self.end_of_text:
                    place = place._replace(state=self.fresh_state, length=0)
            case Mode.WINDOW:
                if place.length >= self.window:
                    return self.read(np.array([token]), place)
            case unreachable:
                assert_never(unreachable)
        self._refuse_overflow(place.length + 1)
        logits, state = _step(self.graphdef, self.params, self.systems, jnp.full(1, token, jnp.int32), place.state)
        return Place(state, logits, place.key, place.length + 1, self._last(place.recent, np.array([token])))

    def _after_reading(
        self, tokens: np.ndarray, state: States, key: jax.Array, length: int, recent: np.ndarray
    ) -> Place:
        recent, length = self._last(recent, tokens), length + len(tokens)
        if self.mode is Mode.WINDOW and length > self.window:
            tokens, length, state = recent, len(recent), self.fresh_state
        self._refuse_overflow(length)
        logits, state = _read(self.graphdef, self.params, jnp.asarray(tokens, jnp.int32)[None], state)
        return Place(state, logits, key, length, recent)

    def _last(self, recent: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        return np.concatenate([recent, tokens])[-self.window :].astype(np.int32)

    def _refuse_overflow(self, length: int) -> None:
        if self.capacity is not None and length > self.capacity:
            raise SamplingError(
                f"{length} tokens do not fit into the {self.capacity} that attention caches (max_length): take fewer, "
                f"or mode={Mode.WINDOW}"
            )


# What is compiled: once for a model, and `_read` for every number of tokens.


@partial(jax.jit, static_argnums=0)
def _read(graphdef: nnx.GraphDef, params: Params, tokens: Int[Array, "1 T"], state: States) -> tuple[Array, States]:
    output = nnx.merge(graphdef, params)(tokens, jnp.full(1, tokens.shape[1]), state)
    return output.logits[:, -1], output.state


@partial(jax.jit, static_argnums=0)
def _systems(graphdef: nnx.GraphDef, params: Params) -> Systems:
    return nnx.merge(graphdef, params).systems()


@partial(jax.jit, static_argnums=0)
def _step(
    graphdef: nnx.GraphDef, params: Params, systems: Systems, token: Int[Array, " 1"], state: States
) -> tuple[Array, States]:
    return nnx.merge(graphdef, params).step(token, state, systems)


@partial(jax.jit, static_argnums=2)
def _choose(
    logits: Float[Array, "1 V"], key: jax.Array, drawing: Drawing
) -> tuple[Int[Array, " 1"], jax.Array, Bool[Array, ""]]:
    key, drawn = jax.random.split(key)
    return draw(logits, drawn, drawing), key, jnp.isfinite(logits).all()
