"""Encoder, mixing, dropout, pooling and the whole model: formulas, padding, sizes, refusals."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from layer_runs import assert_close, cheap_key, normals

from data.spec import InputKind, TaskKind, TaskSpec
from models import block
from models.block import Mix, Mixing, drop
from models.build import ModelConfig, abstract_model, initial_params, split_model
from models.norm import Norm
from models.padding import masked_mean
from models.sequence import Encoder

WIDTH = 4
LAYER_OPTIONS = {"rotrnn": {"state_size": 8, "heads": 2, "orthogonal": "identity"}, "lru": {"state_size": 4}}


def task(width=3, classes=5, kind=InputKind.CHANNELS, length=9) -> TaskSpec:
    return TaskSpec("test", TaskKind.CLASSIFICATION, kind, width, length, classes)


def config(layer="rotrnn", direction="bidirectional", **other) -> ModelConfig:
    options = LAYER_OPTIONS[layer] | {"direction": direction}
    return ModelConfig(**({"layer": layer, "width": WIDTH, "depth": 2, "options": options} | other))


@functools.cache
def drawn(layer: str, dropout: float = 0.0, **spec):
    """Model and arbitrary parameters: biases away from 0, so that padded positions are not 0 after a block."""
    graphdef, shapes = abstract_model(config(layer, dropout=dropout), task(**spec))
    rng = np.random.default_rng(3)
    return graphdef, jax.tree.map(lambda p: jnp.asarray(0.5 * rng.normal(size=p.shape), p.dtype), shapes)


def padded(more=0, fill=0.0):
    """Three sequences of channels, padded on the right with `fill`."""
    lengths = np.array([9, 4, 1])
    pads = np.arange(9 + more) >= lengths[:, None]
    inputs = np.pad(normals(3, 9, 3), ((0, 0), (0, more), (0, 0)))
    return jnp.float32(np.where(pads[..., None], fill, inputs)), jnp.asarray(lengths), pads


@pytest.mark.parametrize("layer", LAYER_OPTIONS)
def test_padding_and_neighbours_do_not_matter(layer):
    """More padding, other content, other sequences beside it; with dropout too. The pads get no gradient."""
    graphdef, params = drawn(layer, dropout=0.3)

    @jax.jit
    def run(inputs, lengths):
        model = nnx.merge(graphdef, params)
        return [model(inputs, lengths, key=key)[0] for key in (None, cheap_key(0))]

    inputs, lengths, _ = padded()
    expected = run(inputs, lengths)
    assert np.abs(expected[0] - expected[1]).max() > 1e-2
    wide = [padded(4, fill) for fill in (0.0, -3.0)]
    for other in (padded(0, 100.0), *wide):
        for found, wanted in zip(run(other[0], lengths), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    others = inputs.at[0].set(50.0).at[2].multiply(-4)
    beside = run(others, lengths.at[0].set(5))
    assert np.abs(beside[0][0] - expected[0][0]).max() > 1e-2
    for found, wanted in zip(beside, expected, strict=True):
        np.testing.assert_allclose(found[1], wanted[1], rtol=0, atol=1e-5)

    grad = jax.jit(jax.grad(lambda x: jnp.sin(nnx.merge(graphdef, params)(x, lengths)[0]).sum()))
    zero, filled = (np.asarray(grad(x)) for x, _, _ in wide)
    pads = wide[0][2]
    assert not zero[pads].any()
    assert not filled[pads].any()
    assert np.abs(zero[~pads]).max(-1).min() > 0
    np.testing.assert_allclose(filled, zero, rtol=0, atol=1e-5)


def test_the_mask_reaches_every_block():
    """Behind the first block padded positions are not 0: without the mask there, they would be read."""
    graphdef, params = drawn("lru")
    inputs, _, pads = padded()

    @jax.jit
    def blocks(inputs):
        model, mask = nnx.merge(graphdef, params), jnp.asarray(~pads)
        x = model.encoder(inputs)
        return [x := b(x, mask)[0] for b in model.blocks]

    first, second = blocks(inputs)
    assert np.abs(np.asarray(first)[pads]).min() > 1e-3
    other = blocks(jnp.where(jnp.asarray(pads)[..., None], 9.0, inputs))
    np.testing.assert_allclose(np.asarray(other[1])[~pads], np.asarray(second)[~pads], rtol=0, atol=1e-5)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2


FORMULAS = {
    "full_glu": lambda h, value, gate: value(gelu(h)) * sigmoid(gate(gelu(h))),
    "half_glu1": lambda h, value, gate: gelu(h) * sigmoid(gate(gelu(h))),
    "half_glu2": lambda h, value, gate: h * sigmoid(gate(gelu(h))),
    "gelu": lambda h, value, gate: gelu(h),
}


def mix_of(mixing: str, dropout=0.0):
    """A mixing with arbitrary weights, as (h, key) -> output, and its weights."""
    graphdef, shapes = split_model(nnx.eval_shape(lambda: Mix(WIDTH, Mixing(mixing), dropout, rngs=nnx.Rngs(0))))
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda p: jnp.asarray(rng.normal(size=p.shape), p.dtype), shapes)
    return lambda h, key: nnx.merge(graphdef, params)(h, key), params


@pytest.mark.parametrize("mixing", Mixing)
def test_mixing_formulas(x64, mixing):
    call, params = mix_of(mixing)
    dense = {n: lambda x, p=p: x @ np.asarray(p["kernel"]) + np.asarray(p["bias"]) for n, p in params.items()}
    assert params.keys() == {"full_glu": {"gate", "value"}, "gelu": set()}.get(mixing.value, {"gate"})
    h = normals(2, 3, WIDTH)
    expected = FORMULAS[mixing](h, dense.get("value"), dense.get("gate"))
    assert_close(jax.jit(lambda h: call(h, None))(h), expected)


def test_block_is_pre_norm_with_a_residual(x64):
    graphdef, params = drawn.__wrapped__("lru")  # not kept: other tests are in float32
    params = jax.tree.map(lambda p: jnp.asarray(p, jnp.float64), params)
    x = normals(2, 6, WIDTH)
    mask = jnp.asarray(np.arange(6) < np.array([[6], [4]]))

    @jax.jit
    def run(x, normed):
        block = nnx.merge(graphdef, params).blocks[0]
        return block(x, mask)[0], block.mix(block.layer(normed, mask=mask)[0], None)

    norm = params["blocks"][0]["norm"]
    centred = x - x.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6) * norm["scale"] + norm["bias"]
    found, branch = run(x, jnp.asarray(normed))
    assert_close(found, x + branch)


def test_dropout_mask_is_shared_over_time_and_scaled():
    rate, batch = 0.3, 2000
    x = jnp.ones((batch, 3, WIDTH))
    found = np.asarray(jax.jit(lambda x, key: drop(x, rate, key))(x, cheap_key(0)))
    kept = found > 0
    np.testing.assert_array_equal(kept, np.broadcast_to(kept[:, :1], kept.shape))
    np.testing.assert_allclose(found[kept], 1 / (1 - rate), rtol=1e-6)
    error = np.sqrt(rate * (1 - rate) / (batch * WIDTH))
    assert abs(kept[:, 0].mean() - (1 - rate)) < 5 * error
    # Independent between sequences and between channels.
    for a, b in ((kept[:-1, 0], kept[1:, 0]), (kept[:, 0, :-1], kept[:, 0, 1:])):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 5 / np.sqrt(a.size)


def test_dropout_acts_only_with_a_key_and_a_rate():
    x = jnp.ones((2, 3, WIDTH))
    assert drop(x, 0.5, None) is x
    assert drop(x, 0.0, cheap_key(0)) is x
    inputs, lengths, _ = padded()
    models = [drawn("lru", dropout=rate) for rate in (0.0, 0.5)]
    plain, dropping = (jax.jit(lambda key, m=m: nnx.merge(*m)(inputs, lengths, key=key)[0]) for m in models)
    np.testing.assert_array_equal(dropping(None), plain(None))
    one, again, other = (np.asarray(dropping(cheap_key(seed))) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert min(np.abs(one - other).min(), np.abs(one - plain(None)).min()) > 0


def test_every_place_of_dropout_has_its_own_mask(monkeypatch):
    inputs, lengths, _ = padded()
    keys = []
    monkeypatch.setattr(block, "drop", lambda x, rate, key: keys.append(jax.random.key_data(key)) or x)
    found = jax.jit(lambda key: (nnx.merge(*drawn("lru"))(inputs, lengths, key=key), jnp.stack(keys))[1])(cheap_key(0))
    assert len(found) == 2 * 2
    assert len({tuple(key) for key in found.tolist()}) == 4


@pytest.mark.parametrize(("mixing", "sites"), [("full_glu", 2), ("half_glu1", 2), ("half_glu2", 2), ("gelu", 1)])
def test_mixing_drops_before_and_after(mixing, sites, monkeypatch):
    """Drop(GELU(h)) inside, and the outcome of a gate again; half_glu2's value h is not dropped inside."""
    call, _ = mix_of(mixing, dropout=0.5)
    rates = []
    monkeypatch.setattr(block, "drop", lambda x, rate, key: rates.append(rate) or 0 * x)
    assert not call(jnp.ones((1, 2, WIDTH)), cheap_key(0)).any()
    assert rates == [0.5] * sites


def test_encoder_of_tokens_is_a_dense_layer_on_one_hot_vectors():
    spec = task(width=6, kind=InputKind.TOKENS)
    tokens = np.array([[0, 5, 2], [3, 3, 1]], np.uint8)
    encoder = Encoder(spec, WIDTH, rngs=nnx.Rngs(0))
    encoder.dense.bias = nnx.Param(jnp.arange(1.0, WIDTH + 1))
    as_tokens, as_channels = encoder(jnp.asarray(tokens)), encoder.dense(jax.nn.one_hot(tokens, 6))
    assert as_tokens.shape == (2, 3, WIDTH)
    np.testing.assert_allclose(as_tokens, as_channels, rtol=1e-6, atol=1e-6)
    assert len({tuple(row) for row in np.asarray(as_tokens).reshape(-1, WIDTH)}) == 5
    channels = Encoder(task(width=6), WIDTH, rngs=nnx.Rngs(0))
    channels.dense = encoder.dense
    np.testing.assert_allclose(channels(jax.nn.one_hot(tokens, 6)), as_channels)


def test_masked_mean():
    x = normals(2, 4, WIDTH)
    x[1, 3] = np.nan
    mask = jnp.asarray([[True, True, True, True], [True, False, True, False]])
    expected = [x[0].mean(0), (x[1, 0] + x[1, 2]) / 2]
    np.testing.assert_allclose(masked_mean(jnp.float32(x), mask), expected, rtol=1e-5, atol=1e-6)


def test_labels_of_steps_see_the_past_only():
    spec = dataclasses.replace(task(width=6, kind=InputKind.TOKENS), kind=TaskKind.TAGGING)
    params = initial_params(config("lru", "forward"), spec, cheap_key(0))
    graphdef = abstract_model(config("lru", "forward"), spec)[0]
    run = jax.jit(lambda inputs: nnx.merge(graphdef, params)(inputs, jnp.asarray([4, 2]))[0])
    inputs = np.array([[0, 5, 2, 1], [3, 3, 1, 1]], np.uint8)
    logits, other = run(inputs), run(np.where(np.arange(4) < 2, inputs, 4).astype(np.uint8))
    assert logits.shape == (2, 4, spec.classes)
    np.testing.assert_array_equal(logits[:, :2], other[:, :2])
    assert (np.abs(logits[0, 2:] - other[0, 2:]).max(-1) > 1e-6).all()


def test_probe_gives_one_row_per_block_without_gradient():
    graphdef, params = drawn("rotrnn")
    inputs, lengths, _ = padded()

    @jax.jit
    def run(params):
        logits, rows, *_ = nnx.merge(graphdef, params)(inputs, lengths, probe=(1, 9))
        return rows[0]["energy"].sum() + rows[1]["energy_t"].sum(), (logits, rows)

    grads, (logits, rows) = jax.grad(run, has_aux=True)(params)
    assert len(rows) == 2
    assert all(row["finite"] and row["energy"].shape == (4,) and row["energy_t"].shape == (2,) for row in rows)
    assert not any(g.any() for g in jax.tree.leaves(grads))
    plain, none, *_ = jax.jit(lambda: nnx.merge(graphdef, params)(inputs, lengths))()
    np.testing.assert_allclose(logits, plain, rtol=0, atol=1e-6)
    assert none == [{}, {}]


def test_initial_parameters_come_from_the_key():
    specs = config("lru", depth=2), task()
    one, same, other = (initial_params(*specs, cheap_key(i)) for i in (0, 0, 1))
    _, shapes = abstract_model(*specs)
    assert jax.tree.map(lambda a: (a.shape, a.dtype), one) == jax.tree.map(lambda a: (a.shape, a.dtype), shapes)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in (
        (one["head"]["kernel"], other["head"]["kernel"]),
        (one["blocks"][0]["layer"]["C_re"], one["blocks"][1]["layer"]["C_re"]),
        (one["blocks"][0]["mix"]["gate"]["kernel"], one["blocks"][1]["mix"]["gate"]["kernel"]),
    ):
        assert (np.asarray(a) != np.asarray(b)).all()


def lru(depth, width, modes, features, classes, one_way, both_ways, mixing="full_glu", **options):
    rows = [("forward", one_way), ("bidirectional", both_ways)]
    sizes = {"state_size": modes} | options
    return [("lru", depth, width, mixing, features, classes, sizes | {"direction": d}, n) for d, n in rows if n]


def rotrnn(depth, width, size, heads, ways, mixing, features, classes, total, without_p):
    sizes = {"state_size": size, "heads": heads, "direction": ["forward", "bidirectional"][ways - 1]}
    both = ({}, total), ({"orthogonal": "identity"}, without_p)
    return [("rotrnn", depth, width, mixing, features, classes, sizes | extra, n) for extra, n in both]


COUNTS = [  # published sizes and totals
    *lru(6, 512, 384, 3, 10, 7_893_770, 10_253_066),
    *lru(6, 128, 256, 20, 10, 995_466, 1_388_682),
    *lru(6, 256, 192, 135, 2, 2_012_546, 2_602_370),
    *lru(6, 192, 256, 1, 2, 1_633_154, 2_222_978),
    *lru(6, 128, 256, 1, 2, 992_002, 1_385_218),
    *lru(6, 128, 256, 1, 2, None, 1_286_146, "half_glu1"),
    *lru(4, 256, 128, 3, 10, 1_058_826, None),
    *lru(4, 256, 128, 20, 10, 1_063_178, None),
    *lru(4, 256, 128, 135, 2, 1_090_562, None),
    *lru(6, 96, 128, 1, 35, None, 505_859, "half_glu1"),
    *lru(6, 96, 128, 1, 35, None, 505_091, "half_glu1", gamma="recomputed"),
    *lru(6, 96, 64, 1, 35, None, 283_523, "half_glu1"),
    *lru(6, 96, 64, 1, 35, None, 283_139, "half_glu1", gamma="recomputed"),
    *rotrnn(6, 96, 128, 32, 2, "half_glu1", 1, 35, 286_019, 282_947),
    *rotrnn(8, 128, 128, 32, 2, "full_glu", 20, 10, 669_322, 665_226),
    *rotrnn(8, 128, 128, 32, 2, "half_glu2", 20, 10, 537_226, 533_130),
    *rotrnn(6, 512, 384, 64, 1, "half_glu1", 1, 10, 3_965_962, 3_952_138),
    *rotrnn(6, 512, 384, 32, 2, "half_glu1", 1, 10, 5_159_242, 5_131_594),
    *rotrnn(6, 192, 256, 32, 2, "half_glu1", 1, 2, 1_124_546, 1_112_258),
    *rotrnn(6, 128, 256, 32, 2, "half_glu1", 1, 2, 704_962, 692_674),
    *rotrnn(6, 128, 256, 64, 2, "half_glu1", 1, 2, 699_010, 692_866),
]


@pytest.mark.parametrize(
    ("layer", "width", "mixing", "features", "options", "total"),
    [
        ("lru", 128, "full_glu", 98, {"state_size": 256, "direction": "forward"}, 1_070_082),
        ("s5", 128, "half_glu1", 98, {"state_size": 256, "blocks": 16, "direction": "bidirectional"}, 772_098),
    ],
)
def test_parameter_counts_of_pairs(layer, width, mixing, features, options, total):
    """LRA Retrieval, with batch norm, which has as many parameters as layer norm."""
    sizes = ModelConfig(layer, width, 6, Mixing(mixing), options=options, norm=Norm.BATCH)
    spec = dataclasses.replace(task(features, 2, InputKind.TOKENS), kind=TaskKind.PAIRS)
    assert sum(p.size for p in jax.tree.leaves(abstract_model(sizes, spec)[1])) == total


def test_parameter_counts():
    for layer, depth, width, mixing, features, classes, options, total in COUNTS:
        sizes = ModelConfig(layer=layer, width=width, depth=depth, mixing=mixing, options=options)
        kind = InputKind.CHANNELS if features in (1, 3) else InputKind.TOKENS
        _, shapes = abstract_model(sizes, task(features, classes, kind))
        assert all(isinstance(p, jax.ShapeDtypeStruct) for p in jax.tree.leaves(shapes))
        assert sum(p.size for p in jax.tree.leaves(shapes)) == total, (sizes, features, classes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 0}, r"width=4 and depth=0 must be at least 1"),
        ({"width": 0}, r"width=0 and depth=2 must be at least 1"),
        ({"dropout": 1.0}, r"0 <= dropout < 1 is needed, got 1.0"),
        ({"dropout": -0.1}, r"got -0.1"),
        ({"dropout": float("nan")}, r"got nan"),
        ({"mixing": "glu"}, r"unknown Mixing 'glu': expected one of full_glu, half_glu1, half_glu2, gelu"),
        ({"layer": "rnn"}, r"unknown layer 'rnn': expected one of rotrnn, lru"),
        ({"options": {"state_size": 6, "heads": 2}}, r"even .*6/2 = 3"),
        ({"options": {"state_size": 6, "heads": 4}}, r"state_size=6 is not divisible by heads=4"),
    ],
)
def test_refuses_bad_configs(options, message):
    base = {"layer": "rotrnn", "width": WIDTH, "depth": 2, "options": LAYER_OPTIONS["rotrnn"]}
    with pytest.raises(ValueError, match=message):
        ModelConfig(**(base | options))
