"""Batch norm as values, the three modes of padding, pairs: formulas and what padding may and may not change."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from layer_runs import normals

from data.spec import InputKind, TaskKind, TaskSpec
from models.build import ModelConfig, abstract_model, initial_stats
from models.norm import BatchNorm, Moments, Norm, batch_moments, running
from models.padding import Padding

WIDTH = 4
LENGTHS = np.array([8, 3, 1])
OPTIONS = {"state_size": 8, "heads": 2, "orthogonal": "identity"}


def spec(kind=TaskKind.CLASSIFICATION, inputs=InputKind.TOKENS) -> TaskSpec:
    return TaskSpec("test", kind, inputs, input_width=5, length=8, classes=3)


@functools.cache
def drawn(padding="full", norm="batch", direction="bidirectional", task=None):
    """A model with arbitrary parameters: (inputs, lengths) -> its Output in training mode, and that in evaluation."""
    options = OPTIONS | {"direction": direction}
    config = ModelConfig("rotrnn", WIDTH, 2, options=options, norm=Norm(norm), padding=Padding(padding))
    graphdef, shapes = abstract_model(config, task or spec())
    rng = np.random.default_rng(3)
    params = jax.tree.map(lambda p: jnp.asarray(0.5 * rng.normal(size=p.shape), p.dtype), shapes)
    modes = (None, some_stats(config))
    return config, params, jax.jit(lambda *args: [nnx.merge(graphdef, params)(*args, stats=stats) for stats in modes])


def some_stats(config) -> tuple:
    """Running averages far from what any batch has."""
    return tuple(jax.tree.map(lambda x: x + jnp.arange(WIDTH), moments) for moments in initial_stats(config))


def tokens(pads: int, symbol: int = 0) -> np.ndarray:
    """Three sequences with `pads` more steps of padding than they need."""
    ids = np.random.default_rng(1).integers(1, 5, (3, 8)).astype(np.uint8)
    ids[np.arange(8) >= LENGTHS[:, None]] = symbol
    return np.pad(ids, ((0, 0), (0, pads)), constant_values=symbol)


def test_batch_moments_are_those_of_the_valid_steps(x64):
    x, mask = normals(3, 8, WIDTH), np.arange(8) < LENGTHS[:, None]
    x[~mask] = np.inf
    found = batch_moments(jnp.asarray(x), jnp.asarray(mask))
    np.testing.assert_allclose(found.mean, x[mask].mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.var, x[mask].var(0), rtol=1e-12)
    x[~mask] = 5.0
    everywhere = batch_moments(jnp.asarray(x), None)
    np.testing.assert_allclose(everywhere.mean, x.mean((0, 1)), rtol=1e-12)
    np.testing.assert_allclose(everywhere.var, x.reshape(-1, WIDTH).var(0), rtol=1e-12)


def test_the_momentum_is_the_weight_of_the_old_value():
    old, found = Moments(jnp.zeros(2), jnp.ones(2)), Moments(jnp.full(2, 10.0), jnp.full(2, 3.0))
    new = running(old, found, 0.9)
    np.testing.assert_allclose(new.mean, [1.0, 1.0], rtol=1e-6)
    np.testing.assert_allclose(new.var, [1.2, 1.2], rtol=1e-6)


def test_batch_norm_formula(x64):
    norm = BatchNorm(WIDTH)
    norm.scale, norm.bias = nnx.Param(jnp.asarray([1.0, 2.0, -1.0, 0.5])), nnx.Param(jnp.arange(4.0))
    x, mask = normals(3, 8, WIDTH), np.arange(8) < LENGTHS[:, None]
    for given in (None, Moments(jnp.arange(4.0), jnp.full(4, 2.0))):
        found, used = norm(jnp.asarray(x), jnp.asarray(mask), given)
        mean, var = (x[mask].mean(0), x[mask].var(0)) if given is None else given
        expected = np.asarray(norm.scale[...]) * (x - mean) / np.sqrt(np.asarray(var) + 1e-5) + np.arange(4.0)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(used.mean, mean, rtol=1e-12)


def test_padding_that_is_not_finite_reaches_no_gradient():
    mask = jnp.arange(8) < LENGTHS[:, None]
    x = np.where(mask[..., None], normals(3, 8, WIDTH), np.inf)
    weights = jnp.asarray([1.0, -2.0, 0.5, 3.0])
    gradient = jax.grad(lambda x: sum((m * weights).sum() for m in batch_moments(x, mask)))(jnp.float32(x))
    assert np.isfinite(gradient).all()
    assert not np.asarray(gradient)[~np.asarray(mask)].any()


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_in_full_the_amount_of_padding_changes_nothing(direction):
    """In training mode (the batch's own moments) and in evaluation, with batch norm; nor does its content."""
    run = drawn("full", "batch", direction)[2]
    expected = run(tokens(0), LENGTHS)
    for pads, symbol in ((5, 0), (5, 2)):
        for found, wanted in zip(run(tokens(pads, symbol), LENGTHS), expected, strict=True):
            np.testing.assert_allclose(found.logits, wanted.logits, rtol=0, atol=1e-5)
            for a, b in zip(jax.tree.leaves(found.moments), jax.tree.leaves(wanted.moments), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def change(padding: str, direction: str) -> list[float]:
    """How far 5 more steps of padding move the logits in training mode and in evaluation."""
    run = drawn(padding, "batch", direction)[2]
    pairs = zip(run(tokens(0), LENGTHS), run(tokens(5), LENGTHS), strict=True)
    return [float(np.abs(short.logits - long.logits).max()) for short, long in pairs]


def test_in_the_published_modes_padding_is_input():
    """pool_only: pads enter the statistics and the backward pass, but are not pooled. none: they are pooled too."""
    trained, evaluated = change("pool_only", "forward")
    # A forward model under fixed statistics cannot see what follows the steps that are pooled.
    assert trained > 1e-2 > 1e-5 > evaluated
    assert min(change("pool_only", "bidirectional")) > 1e-3
    assert min(change("none", "forward")) > 1e-2


def test_without_padding_the_modes_agree():
    lengths = np.full(3, 8)
    full, pooled, none = (drawn(padding, "batch", "forward")[2](tokens(0), lengths) for padding in Padding)
    for others in (pooled, none):
        for found, expected in zip(others, full, strict=True):
            np.testing.assert_allclose(found.logits, expected.logits, rtol=0, atol=1e-5)


def test_evaluation_uses_the_given_averages_and_no_neighbour():
    config, _, run = drawn("full", "batch", "forward")
    trained, evaluated = run(tokens(0), LENGTHS)
    others = tokens(0)
    others[[0, 2]] = 4
    trained_beside, beside = run(others, LENGTHS)
    np.testing.assert_allclose(beside.logits[1], evaluated.logits[1], rtol=0, atol=1e-5)
    assert np.abs(trained_beside.logits[1] - trained.logits[1]).max() > 1e-2
    assert np.abs(evaluated.logits - trained.logits).max() > 1e-2
    for used, given in zip(evaluated.moments, some_stats(config), strict=True):
        np.testing.assert_array_equal(used, given)


def test_layer_norm_has_no_statistics():
    config = ModelConfig("rotrnn", WIDTH, 2, options=OPTIONS)
    assert initial_stats(config) == (None, None)
    assert all(output.moments == (None, None) for output in drawn(norm="layer", task=PAIRS)[2](*pairs()))


PAIRS = spec(TaskKind.PAIRS)


def pairs():
    """Inputs (3, 2, 8) and lengths (3, 2): the sequences, and they in reverse order."""
    return np.stack([tokens(0), tokens(0)[::-1]], 1), np.stack([LENGTHS, LENGTHS[::-1]], 1)


def test_a_pair_is_two_sequences_of_one_encoder():
    """[u, v, u - v, u v] -> Dense -> GELU -> Dense, u and v what the encoder pools from either document."""
    config, params, run = drawn(norm="layer", task=PAIRS)
    graphdef = abstract_model(config, spec())[0]
    head = {"kernel": jnp.eye(WIDTH), "bias": jnp.zeros(WIDTH)}
    pooled = jax.jit(lambda x, n: nnx.merge(graphdef, {**params, "head": head})(x, n).logits)
    u = np.asarray(pooled(tokens(0), LENGTHS))
    v = u[::-1]
    features = np.concatenate([u, v, u - v, u * v], 1)
    hidden, out = params["head"]["hidden"], params["head"]["out"]
    expected = jax.nn.gelu(features @ hidden["kernel"] + hidden["bias"]) @ out["kernel"] + out["bias"]
    assert expected.shape == (3, 3)
    inputs, lengths = pairs()
    np.testing.assert_allclose(run(inputs, lengths)[0].logits, expected, rtol=1e-4, atol=1e-5)
    swapped = run(inputs[:, ::-1], lengths[:, ::-1])[0].logits
    assert np.abs(swapped - expected).max() > 1e-3


def test_statistics_of_pairs_are_over_both_documents():
    _, params, run = drawn(task=PAIRS)
    inputs, lengths = pairs()
    inputs[:, 1] = np.where(inputs[:, 1] > 0, 4, 0)
    found = run(inputs, lengths)[0].moments[0]
    encoder = jax.tree.map(np.asarray, params["encoder"]["dense"])
    encoded = (encoder["kernel"] + encoder["bias"])[inputs[np.arange(8) < lengths[..., None]]]
    np.testing.assert_allclose(found.mean, encoded.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.var, encoded.var(0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm": "group"}, r"unknown Norm 'group': expected one of layer, batch"),
        ({"padding": "mask"}, r"unknown Padding 'mask': expected one of full, pool_only, none"),
        ({"bn_momentum": 1.0}, r"0 <= bn_momentum < 1 is needed, got 1.0"),
        ({"bn_momentum": -0.1}, r"got -0.1"),
    ],
)
def test_refused(change, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig("rotrnn", WIDTH, 2, options=OPTIONS, **change)
    assert ModelConfig("rotrnn", WIDTH, 2, options=OPTIONS).norm is Norm.LAYER
