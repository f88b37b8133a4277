"""The backbone of language models: published sizes, the tied head, what a step sees, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from layer_runs import cheap_key
from tiny import TASK, tiny_config

from configs.layers import options_of
from data.spec import InputKind, TaskKind, TaskSpec
from models import language_model
from models.block import drop
from models.build import Backbone, ModelConfig, abstract_model, initial_params
from models.norm import Norm
from training.errors import ConfigError
from training.state import make_program

SMALL_MLP = ("mlp",) * 4


def spec(tokens=7) -> TaskSpec:
    return TaskSpec("text", TaskKind.LANGUAGE, InputKind.TOKENS, input_width=tokens, length=8, classes=tokens)


def config(layer="mru", width=4, sublayers=("mru", "mlp"), depth=1, dropout=0.0, **options) -> ModelConfig:
    sizes = options_of(layer, **options, sublayers=depth * len(sublayers))
    return ModelConfig(
        layer, width, depth, dropout=dropout, options=sizes, backbone=Backbone.LANGUAGE, sublayers=sublayers
    )


def mru(heads: int, order: int, variant="ldu") -> dict:
    return {"heads": heads, "state_size": heads * order**2, "variant": variant}


ORTHOGONAL = "orthogonal_cayley"
COUNTS = [  # layer, width, sublayers, depth, options, {ids: parameters}
    ("mru", 256, ("mru", *SMALL_MLP), 1, mru(4, 8), {65: 2_246_656, 10_000: 4_790_016, 50_257: 15_095_808}),
    ("mru", 256, ("mru", *SMALL_MLP), 1, mru(4, 8, ORTHOGONAL), {65: 2_209_792}),
    ("attention", 256, ("attention", *SMALL_MLP), 1, {}, {65: 2_377_472, 10_000: 4_920_832, 50_257: 15_226_624}),
    ("linear_attention", 256, ("linear_attention", *SMALL_MLP), 1, {}, {65: 2_377_472, 50_257: 15_226_624}),
    ("mlp", 256, SMALL_MLP, 1, {}, {65: 2_115_072, 10_000: 4_658_432, 50_257: 14_964_224}),
    ("mru", 384, ("mru", "mlp"), 6, mru(6, 8), {65: 8_879_616}),
    ("mru", 384, ("mru", "mlp"), 6, mru(6, 8, ORTHOGONAL), {65: 8_381_952}),
    ("attention", 384, ("attention", "mlp"), 6, {"heads": 6}, {65: 10_646_784}),
    ("attention", 768, ("attention", "mlp"), 4, {"heads": 16}, {10_000: 35_998_464, 50_257: 66_915_840}),
    ("mru", 768, ("mru", "mlp"), 4, mru(3, 16), {10_000: 31_282_944, 50_257: 62_200_320}),
    ("mru", 768, ("mru", "mlp"), 5, mru(3, 16), {10_000: 37_183_488, 50_257: 68_100_864}),
    ("mru", 768, ("mru", "mlp"), 6, mru(3, 16), {10_000: 43_084_032, 50_257: 74_001_408}),
]


@pytest.mark.parametrize(("layer", "width", "sublayers", "depth", "options", "totals"), COUNTS)
def test_parameter_counts(layer, width, sublayers, depth, options, totals):
    for tokens, total in totals.items():
        _, shapes = abstract_model(config(layer, width, sublayers, depth, **options), spec(tokens))
        assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == total, tokens


def test_the_formula(x64):
    """h + f(LN(h)) with exact GELU, LN without a bias, logits LN(h) E^T; padding changes nothing."""
    graphdef, shapes = abstract_model(config("mlp", 4, ("mlp", "mlp"), expansion=2), spec())
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda p: jnp.asarray(rng.normal(size=p.shape)), shapes)
    run = jax.jit(lambda inputs: nnx.merge(graphdef, params)(inputs, jnp.asarray([5, 3])))
    inputs = np.array([[0, 6, 2, 1, 1], [3, 3, 1, 0, 0]], np.uint8)

    def norm(x, scale):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale

    def gelu(x):
        return x * jax.scipy.stats.norm.cdf(x)

    h = np.asarray(params["embedding"])[inputs]
    for block in (params["blocks"][i] for i in range(2)):
        assert block["norm"].keys() == {"scale"}
        h = h + gelu(norm(h, block["norm"]["scale"]) @ block["layer"]["W_in"]) @ block["layer"]["W_out"]
    expected = norm(h, params["norm"]["scale"]) @ params["embedding"].T
    logits, diagnostics, moments, state = run(inputs)
    valid = np.arange(5) < np.array([[5], [3]])
    np.testing.assert_allclose(np.asarray(logits)[valid], expected[valid], rtol=1e-9, atol=1e-9)
    assert (diagnostics, moments) == ([{}, {}], (None, None))
    assert state == ((), ())


def test_a_step_sees_the_past_only():
    made = config("mru", 4, ("mru", "mlp"), **mru(1, 2))
    graphdef, params = abstract_model(made, spec())[0], initial_params(made, spec(), cheap_key(0))
    # W_in of MRU starts at 0: nothing would be carried.
    params["blocks"][0]["layer"]["W_in"] = jax.random.normal(cheap_key(1), (4, 4))
    run = jax.jit(lambda inputs: nnx.merge(graphdef, params)(inputs, jnp.asarray([5, 5])).logits)
    inputs = np.array([[0, 6, 2, 1, 1], [1, 1, 1, 1, 1]], np.uint8)
    logits, other = run(inputs), run(np.where(np.arange(5) < 3, inputs, 4).astype(np.uint8))
    assert logits.shape == (2, 5, 7)
    np.testing.assert_array_equal(logits[:, :3], other[:, :3])
    assert (np.abs(logits[0, 3:] - other[0, 3:]).max(-1) > 1e-6).all()


def test_dropout_is_drawn_for_each_step_at_each_place(monkeypatch):
    dropped = np.asarray(drop(jnp.ones((2, 50, 8)), 0.5, cheap_key(0), shared_over_time=False))
    assert set(dropped.ravel().tolist()) == {0.0, 2.0}
    assert dropped.std(1).min() > 0
    made, keys, shared = config("mlp", 4, ("mlp", "mlp"), dropout=0.5), [], []

    def record(x, rate, key, *, shared_over_time):
        keys.append(jax.random.key_data(key))
        shared.append((rate, shared_over_time))
        return x

    monkeypatch.setattr(language_model, "drop", record)
    graphdef, params = abstract_model(made, spec())[0], initial_params(made, spec(), cheap_key(0))
    nnx.merge(graphdef, params)(jnp.zeros((1, 3), jnp.uint8), jnp.asarray([3]), key=cheap_key(1))
    assert shared == [(0.5, False)] * 3
    assert len({tuple(np.asarray(key).tolist()) for key in keys}) == 3


def test_initial_distribution():
    made = config("mlp", 64, SMALL_MLP)
    params = initial_params(made, spec(65), cheap_key(0))
    assert np.std(params["embedding"]) == pytest.approx(0.02, rel=0.05)
    assert np.std(params["blocks"][3]["layer"]["W_out"]) == pytest.approx(0.01, rel=0.05)
    beside = initial_params(config("attention", 64, ("attention", "mlp", "mlp", "mlp")), spec(65), cheap_key(0))
    assert np.std(beside["blocks"][1]["layer"]["W_out"]) == pytest.approx(0.01, rel=0.05)


LANGUAGE = {"backbone": Backbone.LANGUAGE, "options": options_of("mlp", sublayers=2)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sublayers": ()}, r"needs sublayers of mlp \(at least one\) and mlp, got \(\)"),
        ({"sublayers": ("mlp", "mru")}, r"needs sublayers of mlp"),
        ({"sublayers": ("mlp",)}, r"options.sublayers=2: 1 times \('mlp',\) are 1 sublayers"),
        ({"norm": Norm.BATCH, "sublayers": ("mlp", "mlp")}, r"backbone=language has norm=layer, got norm=batch"),
        ({"backbone": Backbone.SEQUENCE, "sublayers": ("mlp",)}, r"sublayers=\('mlp',\) are for backbone=language"),
    ],
)
def test_refused_configs(change, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig("mlp", 4, 1, **(LANGUAGE | change))


def test_refused_for_the_task():
    changes = {"model.layer": "mlp", "model.depth": 1, "model.backbone": "language", "model.sublayers": ("mlp", "mlp")}
    made = tiny_config("lru", changes | {"model.options": {"sublayers": 2}})
    with pytest.raises(ConfigError, match=r"backbone=language predicts the next token, tiny has labels"):
        make_program(made, TASK)
    assert make_program(made, spec()).config is made
    both = tiny_config("lru", {"model.options.direction": "bidirectional"})
    with pytest.raises(ConfigError, match=r"direction=bidirectional would see the tokens of text that it predicts"):
        make_program(both, spec())


def test_sublayers_computed_again_give_the_same_gradient():
    """With dropout, whose keys are the same, and with the barriers that keep XLA from merging both computations."""
    model_config = config(dropout=0.3, **mru(1, 2))
    graphdef, _ = abstract_model(model_config, spec())
    params = initial_params(model_config, spec(), jax.random.key(0))
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 7, (2, 8)), jnp.int32)

    def loss(params, remat):
        model = nnx.merge(graphdef, params)
        return (model(tokens, jnp.asarray([8, 5]), key=cheap_key(0), remat=remat).logits ** 2).mean()

    both = jax.jit(lambda params: [jax.value_and_grad(loss)(params, remat) for remat in (False, True)])
    assert both.lower(params).as_text().count("optimization_barrier") == 2
    kept, again = both(params)
    for leaf, expected in zip(jax.tree.leaves(again), jax.tree.leaves(kept), strict=True):
        np.testing.assert_allclose(leaf, expected, rtol=1e-5, atol=1e-7 * np.abs(expected).max())
