"""Drawing tokens: the laws of temperature and top-k, and texts that go on as whole calls over them say."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from language_models import TOKENS, Model
from layer_runs import STANDARD_ERRORS

from models import sampling
from models.sampling import Drawing, Mode, Sampler, SamplingError, draw

DRAWS = 20_000
LOGITS = np.array([0.3, -1.2, 1.1, 0.9, -0.4, 1.1], np.float32)
WINDOW, LONGEST, END = 6, 40, 4
COUNT = 24
MODELS = {
    "lru": {"state_size": 6, "direction": "forward"},
    "mru": {"heads": 2, "state_size": 8},
    "attention": {"heads": 2, "max_length": LONGEST},
}
PROMPT = np.array([1, 5, 2, 2, 0, 7, 3, 3])


# One token.


def frequencies(drawing, rows=LOGITS):
    drawn = jax.jit(functools.partial(draw, drawing=drawing))(np.tile(rows, (DRAWS, 1)), jax.random.key(0))
    assert drawn.dtype == np.int32
    return np.bincount(drawn, minlength=len(rows)) / DRAWS


def softmax(logits):
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def assert_law(found, expected):
    """Every token as often as it should be, within the error of so many draws; never where it should not be."""
    errors = np.sqrt(expected * (1 - expected) / DRAWS)
    assert (np.abs(found - expected) <= STANDARD_ERRORS * errors).all(), (found, expected)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature_divides_the_logits(temperature):
    assert_law(frequencies(Drawing(temperature)), softmax(LOGITS.astype(float) / temperature))


@pytest.mark.parametrize("kept", [[2], [2, 5], [2, 3, 5], [0, 1, 2, 3, 4, 5]])
def test_top_k_keeps_the_largest(kept):
    """At a temperature; equal logits (2 and 5) are kept in the order of the tokens."""
    expected = np.zeros(len(LOGITS))
    expected[kept] = softmax(LOGITS[kept].astype(float) / 0.7)
    assert_law(frequencies(Drawing(0.7, top_k=len(kept))), expected)


@pytest.mark.parametrize("temperature", [0, 1e-40])
@pytest.mark.parametrize("top_k", [0, 1, 3])
def test_temperature_0_takes_the_first_of_the_likeliest(temperature, top_k):
    np.testing.assert_array_equal(frequencies(Drawing(temperature, top_k)), [0, 0, 1, 0, 0, 0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-0.1,), "temperature=-0.1 must be a number of at least 0"),
        ((float("nan"),), "temperature=nan must be"),
        ((float("inf"),), "temperature=inf must be"),
        ((1.0, -1), "top_k=-1 must be at least 0"),
    ],
)
def test_refused_drawings(arguments, message):
    with pytest.raises(SamplingError, match=message):
        Drawing(*arguments)


# A text.


@functools.cache
def model(layer):
    return Model.of(layer, MODELS[layer])


@functools.cache
def sampler(layer, mode=Mode.CARRY, end_of_text=None, drawing=Drawing()):  # noqa: B008
    made = model(layer)
    capacity = MODELS[layer].get("max_length")
    return Sampler(
        made.graphdef, made.params, WINDOW, drawing, mode, capacity=capacity, end_of_text=end_of_text
    )  # fmt: skip


@functools.cache
def whole_call(layer):
    """tokens -> the logits that follow them, by one call without any state."""
    made = model(layer)

    @jax.jit
    def run(inputs, length):
        return made.module()(inputs, length[None]).logits[0, length - 1]

    return lambda tokens: run(np.pad(tokens, (0, LONGEST - len(tokens)))[None], jnp.asarray(len(tokens)))


def seen(tokens, mode):
    """What the next token may depend on."""
    match mode:
        case Mode.CARRY:
            return tokens
        case Mode.WINDOW:
            return tokens[-WINDOW:]
        case Mode.RESET:
            ends = np.flatnonzero(tokens == END)
            return tokens[ends[-1] :] if len(ends) else tokens


def text(made, count=COUNT, seed=3, prompt=PROMPT):
    return [token for token, _ in made.go_on(made.start(prompt, jax.random.key(seed)), count)]


@pytest.mark.every(4)
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("layer", MODELS)
def test_a_text_is_what_whole_calls_draw(layer, mode):
    """One key split for each token; the logits those of a call over all that the mode lets be seen."""
    made = sampler(layer, mode, END if mode is Mode.RESET else None)
    place, key, tokens = made.start(PROMPT, jax.random.key(3)), jax.random.key(3), PROMPT
    expected = whole_call(layer)(seen(PROMPT, mode))
    found = []
    for token, after in made.go_on(place, COUNT):
        np.testing.assert_allclose(place.logits[0], expected, rtol=0, atol=2e-4)
        key, drawn = jax.random.split(key)
        assert token == jax.random.categorical(drawn, expected)
        tokens, place = np.append(tokens, token), after
        expected = whole_call(layer)(seen(tokens, mode))
        found.append(token)
    assert len(found) == COUNT
    assert (END in found[:-2]) or mode is not Mode.RESET
    np.testing.assert_array_equal(place.recent, tokens[-WINDOW:])
    read = seen(tokens, mode)
    assert read is not None
    assert place.length == len(read)


@pytest.mark.parametrize("layer", MODELS)
def test_one_program_draws_all_tokens(layer):
    """A token costs the same everywhere: the sizes of the state do not change, so nothing is compiled again."""
    made = sampler(layer)
    place = made.start(PROMPT, jax.random.key(0))
    shapes = jax.tree.map(jnp.shape, place.state)
    assert jax.tree.map(jnp.shape, made.fresh_state) == shapes
    _, place = next(made.go_on(place, 1))
    programs: Any = (sampling._step, sampling._choose)
    before = [program._cache_size() for program in programs]
    for _, after in made.go_on(place, COUNT):
        assert jax.tree.map(jnp.shape, after.state) == shapes
    assert [program._cache_size() for program in programs] == before


def test_a_step_takes_what_was_made_of_the_parameters_before():
    """Not for every token anew: parameters of the recurrence that are gone by then change nothing."""
    made = sampler("lru")
    place = made.start(PROMPT, jax.random.key(0))
    token = jnp.array([3])
    expected, _ = nnx.merge(made.graphdef, made.params).step(token, place.state)
    gone = jax.tree.map_with_path(
        lambda path, leaf: jnp.full_like(leaf, jnp.nan) if "layer" in str(path) and "W_" not in str(path) else leaf,
        made.params,
    )
    found, _ = sampling._step(made.graphdef, gone, made.systems, token, place.state)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_end_of_text_ends_a_text():
    endless, ending = text(sampler("lru")), text(sampler("lru", end_of_text=END))
    assert endless.index(END) < COUNT - 1
    assert ending == endless[: endless.index(END) + 1]


def test_a_text_goes_on_from_any_place():
    made = sampler("lru")
    tokens = text(made)
    places = [place for _, place in made.go_on(made.start(PROMPT, jax.random.key(3)), 10)]
    assert [token for token, _ in made.go_on(places[-1], COUNT - 10)] == tokens[10:]
    more = made.read(np.array([6, 0]), places[-1])
    np.testing.assert_allclose(
        more.logits[0], whole_call("lru")(np.concatenate([PROMPT, tokens[:10], [6, 0]])), rtol=0, atol=2e-4
    )
    assert text(made, seed=4) != tokens


def test_temperature_0_does_not_depend_on_the_seed():
    made = sampler("mru", drawing=Drawing(0.0))
    assert text(made, 5, seed=1) == text(made, 5, seed=2)


def test_more_than_attention_caches_is_refused():
    message = "{} tokens do not fit into the 40 that attention caches .max_length.: take fewer, or mode=window"
    made = sampler("attention")
    place = made.start(PROMPT, jax.random.key(0))
    assert len(list(made.go_on(place, LONGEST - len(PROMPT)))) == LONGEST - len(PROMPT)
    with pytest.raises(SamplingError, match=message.format(41)):
        made.go_on(place, LONGEST - len(PROMPT) + 1)
    with pytest.raises(SamplingError, match=message.format(41)):
        made.start(np.zeros(41, int), jax.random.key(0))
    never = sampler("attention", Mode.RESET, TOKENS)
    with pytest.raises(SamplingError, match=message.format(41)):
        list(never.go_on(place, LONGEST))
    assert len(text(sampler("attention", Mode.WINDOW), LONGEST)) == LONGEST


def test_a_state_that_outgrows_its_numbers_is_no_text():
    made = model("mru")
    layer = made.params["blocks"][0]["layer"]
    blocks = made.params["blocks"] | {0: made.params["blocks"][0] | {"layer": layer | {"W_in": 1e8 * layer["W_in"]}}}
    grown = Sampler(made.graphdef, made.params | {"blocks": blocks}, WINDOW, Drawing())
    with pytest.raises(FloatingPointError, match=r"the logits after \d+ tokens are not finite"):
        text(grown)


def test_refused_samplers():
    made = model("lru")
    with pytest.raises(SamplingError, match="top_k=12: the vocabulary has 11 tokens"):
        Sampler(made.graphdef, made.params, WINDOW, Drawing(top_k=12))
    with pytest.raises(SamplingError, match="mode=reset: nothing separates the texts"):
        Sampler(made.graphdef, made.params, WINDOW, Drawing(), Mode.RESET)
