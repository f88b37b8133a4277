"""bfloat16: which products are taken in it, what stays float32, how far the numbers are from float32."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from tiny import TASK, fresh, stacked_batch, tiny_config, tiny_split

from data.spec import TaskKind
from models.build import Backbone, ModelConfig, abstract_model, initial_params
from models.norm import Norm
from models.precision import Precision
from scans import project
from training.loss import score_labels
from training.step import make_train_step

TAGS = dataclasses.replace(TASK, kind=TaskKind.TAGGING)
TEXT = dataclasses.replace(TASK, kind=TaskKind.LANGUAGE, classes=TASK.input_width)
LRU = {"state_size": 8, "direction": "forward", "chunk": 1}
MODELS = {
    "sequence": (TAGS, {"layer": "lru", "depth": 2, "options": LRU, "mixing": "full_glu", "norm": Norm.BATCH}),
    "language": (
        TEXT,
        {"layer": "lru", "depth": 1, "options": LRU, "backbone": Backbone.LANGUAGE, "sublayers": ("lru", "mlp")},
    ),
}
LOSS_ERROR, GRADIENT_ERROR = 0.01, 0.05
"""Of bfloat16 (factors of 8 bits), relative: of the loss, and of the whole gradient in the Euclidean norm."""


def made(name, precision):
    """(graphdef, parameters) of a model, the same parameters in both precisions."""
    task, sizes = MODELS[name]
    config = ModelConfig(width=8, precision=precision, **sizes)
    return abstract_model(config, task)[0], initial_params(config, task, jax.random.key(0))


def inputs():
    draw = np.random.default_rng(0)
    tokens = draw.integers(0, 6, (4, 12)).astype(np.int32)
    return jnp.asarray(tokens), jnp.asarray([12, 9, 3, 12]), jnp.asarray(tokens % 3)


def loss_of(graphdef):
    def loss(params):
        tokens, lengths, labels = inputs()
        output = nnx.merge(graphdef, params)(tokens, lengths)
        return score_labels(output.logits, labels, None).loss.sum() / 36, output

    return loss


def equations(jaxpr):
    """All equations of a program, those of its inner programs too."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                yield from equations(getattr(inner, "jaxpr", inner))


def products(name, precision):
    """Types of (left, right, result) of every product of the loss and its gradient."""
    graphdef, params = made(name, precision)
    program = jax.make_jaxpr(jax.grad(lambda params: loss_of(graphdef)(params)[0]))(params)
    dots = [e for e in equations(program.jaxpr) if e.primitive.name == "dot_general"]
    return [tuple(str(v.aval.dtype) for v in (*e.invars, *e.outvars)) for e in dots]


@pytest.mark.parametrize("name", MODELS)
def test_every_product_multiplies_bfloat16_and_sums_float32(name):
    """Those of the gradient as well."""
    found = products(name, Precision.BFLOAT16)
    assert set(found) == {("bfloat16", "bfloat16", "float32")}
    plain = products(name, Precision.FLOAT32)
    assert set(plain) == {("float32", "float32", "float32")}
    assert len(found) == len(plain) > 10


@pytest.mark.parametrize("name", MODELS)
def test_the_error_of_loss_and_gradient(name):
    """Within what is stated, and not zero; logits, moments, states and gradients are float32."""
    graphdef, params = made(name, Precision.BFLOAT16)
    (low, output), low_gradient = jax.jit(jax.value_and_grad(loss_of(graphdef), has_aux=True))(params)
    (full, _), gradient = jax.jit(jax.value_and_grad(loss_of(made(name, Precision.FLOAT32)[0]), has_aux=True))(params)
    assert 0 < abs(low / full - 1) < LOSS_ERROR
    difference = optax.tree.norm(optax.tree.sub(low_gradient, gradient)) / optax.tree.norm(gradient)
    assert 0 < difference < GRADIENT_ERROR
    exact = output.logits, output.moments, low_gradient, [getattr(state, "x", ()) for state in output.state]
    assert {leaf.dtype for leaf in jax.tree.leaves(exact)} == {jnp.dtype("float32")}


def test_activations_between_blocks_are_bfloat16_and_moments_exact():
    """The moments of batch norm are float32 sums over the bfloat16 activations."""
    graphdef, params = made("sequence", Precision.BFLOAT16)
    model = nnx.merge(graphdef, params)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 12, 8)) + 3, jnp.bfloat16)
    y, _, moments = model.blocks[0](x, None)
    assert y.dtype == jnp.bfloat16
    assert moments is not None
    exact = np.asarray(x, np.float64)
    np.testing.assert_allclose(moments.mean, exact.mean((0, 1)), rtol=1e-6)
    np.testing.assert_allclose(moments.var, exact.var((0, 1)), rtol=1e-5)


def test_steps_of_a_language_model_are_its_whole_text():
    graphdef, params = made("language", Precision.BFLOAT16)
    model = nnx.merge(graphdef, params)
    tokens, _, _ = inputs()
    whole = model(tokens[:1], jnp.asarray([12])).logits[:, 3]
    state = model.initial_state(1)
    for t in range(4):
        logits, state = model.step(tokens[:1, t], state)
    assert logits.dtype == jnp.float32
    np.testing.assert_allclose(logits, whole, atol=0.02 * np.abs(whole).max())


def test_the_gradient_of_a_product_is_rounded_once():
    """w keeps float32: its gradient is a float32 sum of products of bfloat16 numbers, not rounded again."""
    draw = np.random.default_rng(0)
    x, w, g = (jnp.asarray(draw.normal(size=shape), jnp.float32) for shape in ((64, 4), (4, 3), (64, 3)))
    low = x.astype(jnp.bfloat16)
    by_x, by_w = jax.vjp(project, low, w)[1](g)
    rounded = [np.asarray(v.astype(jnp.bfloat16), np.float64) for v in (x, w, g)]
    np.testing.assert_allclose(by_w, rounded[0].T @ rounded[2], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.asarray(by_x, np.float64), rounded[2] @ rounded[1].T, rtol=2**-8, atol=1e-6)
    assert (by_x.dtype, by_w.dtype) == (jnp.bfloat16, jnp.float32)


def test_training_in_bfloat16_learns_and_keeps_a_float32_state():
    sizes = {"model.depth": 1, "model.precision": "bfloat16", "model.width": 8, "model.options.state_size": 8}
    rates = {"optim.lr": 0.03, "train.batch_size": 8, "train.steps": 40}
    program, state = fresh(tiny_config("lru", sizes | rates))
    step, losses = make_train_step(program), []
    for number in range(40):
        state, metrics = step(state, stacked_batch(tiny_split(), (0,), number, 8), jnp.asarray(number, jnp.int32))
        losses.append(float(metrics.loss[0]))
    assert losses[0] > 0.9
    assert np.mean(losses[-5:]) < 0.6
    floating = {leaf.dtype for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.floating)}
    assert floating == {jnp.dtype("float32")}
