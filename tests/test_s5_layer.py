"""S5 as a layer: parameters, directions, streaming, rescaling at evaluation, published sizes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from data.spec import InputKind, TaskKind, TaskSpec
from models.block import Mixing
from models.build import ModelConfig, abstract_model, initial_params, split_model
from models.norm import Norm
from s5 import S5, CInit, Discretization, S5Config
from scans import Direction

CONFIG = S5Config(width=5, state_size=12, blocks=3)


def moved(config, seed=0):
    """A layer whose parameters have left their initial values."""
    layer = S5(config, rngs=nnx.Rngs(seed))
    rng = np.random.default_rng(seed)
    state = nnx.state(layer)
    nnx.update(layer, jax.tree.map(lambda x: x + 0.1 * jnp.asarray(rng.normal(size=x.shape), x.dtype), state))
    return layer


def inputs(seed, steps=20, width=5):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(2, steps, width)))


SHAPES = {
    "Lambda_re": (6,),
    "Lambda_im": (6,),
    "log_step": (6, 1),
    "B": (6, 5, 2),
    "C": (5, 6, 2),
    "D": (5,),
}


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("law", CInit)
def test_names_and_shapes_of_parameters(law, direction):
    _, params = split_model(S5(dataclasses.replace(CONFIG, direction=direction, C_init=law), rngs=nnx.Rngs(0)))
    expected = dict(SHAPES)
    if direction is Direction.BIDIRECTIONAL:
        expected["C1"] = expected["C2"] = expected.pop("C")
        assert (params["C1"] != params["C2"]).all()
    assert {name: value.shape for name, value in params.items()} == expected


def test_the_full_form_stores_every_mode():
    _, params = split_model(S5(dataclasses.replace(CONFIG, conj_sym=False), rngs=nnx.Rngs(0)))
    assert params["B"].shape == (12, 5, 2)
    assert params["log_step"].shape == (12, 1)


@pytest.mark.parametrize("rule", Discretization)
def test_step_by_step_equals_the_whole(x64, rule):
    layer = moved(dataclasses.replace(CONFIG, discretization=rule))
    u = inputs(1)
    whole, last, _ = layer(u)
    halfway, state, _ = layer(u[:, :8])
    y = [halfway]
    for t in range(8, 20):
        y_t, state = layer.step(u[:, t], state)
        y.append(y_t[:, None])
    np.testing.assert_allclose(jnp.concatenate(y, 1), whole, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(state.x, last.x, rtol=1e-12, atol=1e-13)


def test_backward_is_forward_on_the_turned_input(x64):
    forward = moved(CONFIG)
    backward = S5(dataclasses.replace(CONFIG, direction="backward"), rngs=nnx.Rngs(0))
    nnx.update(backward, nnx.state(forward))
    u = inputs(2)
    np.testing.assert_allclose(backward(u)[0], forward(u[:, ::-1])[0][:, ::-1], rtol=1e-12, atol=1e-13)


def test_both_directions_are_the_sum_with_one_skip(x64):
    both = moved(dataclasses.replace(CONFIG, direction="bidirectional"))
    u = inputs(3)
    total = -both.D[...] * u
    for direction, c in (("forward", both.C1), ("backward", both.C2)):
        one = S5(dataclasses.replace(CONFIG, direction=direction), rngs=nnx.Rngs(0))
        params = {name: value for name, value in nnx.to_pure_dict(nnx.state(both)).items() if name not in ("C1", "C2")}
        state = nnx.state(one)
        nnx.replace_by_pure_dict(state, params | {"C": c[...]})
        nnx.update(one, state)
        total = total + one(u)[0]
    np.testing.assert_allclose(both(u)[0], total, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("direction", ["backward", "bidirectional"])
def test_a_layer_that_reads_backward_does_not_stream(direction):
    layer = S5(dataclasses.replace(CONFIG, direction=direction), rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match=f"needs direction=forward: this layer is {direction}"):
        layer.initial_state(2)


def equations(jaxpr, inside=False):
    """(name of the primitive, whether it stands inside a loop over time) of a jaxpr and all that it calls."""
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        yield name, inside
        for value in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner, inside or name in ("scan", "while"))


@pytest.mark.parametrize("rule", Discretization)
def test_a_call_with_a_carried_state_discretises_once(rule):
    """No exponential, sine or arc tangent stands in the loop over time, and how many there are does not depend on T."""
    layer = S5(dataclasses.replace(CONFIG, discretization=rule), rngs=nnx.Rngs(0))
    costly = {"exp", "expm1", "sin", "cos", "atan2", "atanh", "log1p", "log"}
    counts = []
    for steps in (2, 50):
        found = jax.make_jaxpr(lambda u: layer(u, layer.initial_state(2))[0])(jnp.zeros((2, steps, 5)))
        names = list(equations(found.jaxpr))
        assert ("scan", False) in names
        assert not [name for name, inside in names if inside and name in costly]
        counts.append(sum(name in costly for name, _ in names))
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("rule", Discretization)
def test_gradients_stay_finite_over_long_inputs(rule):
    layer = moved(dataclasses.replace(CONFIG, discretization=rule, direction="bidirectional", clip_eigs=True))
    graphdef, params = split_model(layer)
    loss = lambda p: (nnx.merge(graphdef, p)(inputs(5, 2000).astype(jnp.float32))[0] ** 2).mean()  # noqa: E731
    grads = jax.jit(jax.grad(loss))(params)
    assert all(jnp.isfinite(g).all() and (g != 0).any() for g in jax.tree.leaves(grads))


TASK = TaskSpec("tiny", TaskKind.CLASSIFICATION, InputKind.TOKENS, input_width=6, length=12, classes=3)


def test_evaluation_at_another_rate_keeps_the_parameters():
    """The rescale is static: a model built with another one takes the trained parameters as they are."""
    trained = ModelConfig("s5", width=5, depth=2, options={"state_size": 12, "blocks": 3})
    rescaled = dataclasses.replace(trained, options=trained.options | {"step_rescale": 2.0})
    params = initial_params(trained, TASK, jax.random.key(0))
    (here, shapes), (there, shapes_there) = abstract_model(trained, TASK), abstract_model(rescaled, TASK)
    assert shapes == shapes_there
    tokens, lengths = jnp.arange(12).reshape(1, 12) % 6, jnp.array([12])
    doubled = jax.tree.map_with_path(
        lambda path, x: x + jnp.log(2.0) if "log_step" in jax.tree_util.keystr(path) else x, params
    )
    at_rate_2 = nnx.merge(there, params)(tokens, lengths)[0]
    np.testing.assert_allclose(at_rate_2, nnx.merge(here, doubled)(tokens, lengths)[0], rtol=1e-5, atol=1e-6)
    assert abs(at_rate_2 - nnx.merge(here, params)(tokens, lengths)[0]).max() > 1e-3


# Published sizes (lindermanlab/S5, all bidirectional, zoh with pairs): L, D, N, J, mixing, input width, classes, and
# the real parameters of one recurrent layer and of the whole.
PUBLISHED = {
    "listops": (8, 128, 16, 8, "half_glu2", 20, 10, 6_296, 188_490),
    "text": (6, 256, 192, 12, "half_glu2", 135, 2, 148_000, 1_321_154),
    "retrieval": (6, 128, 256, 16, "half_glu1", 98, 2, 98_816, 772_098),
    "image": (6, 512, 384, 3, "half_glu1", 1, 10, 590_912, 5_133_706),
    "pathfinder": (6, 192, 256, 8, "half_glu1", 1, 2, 148_032, 1_113_602),
    "path-x": (6, 128, 256, 16, "half_glu1", 1, 2, 98_816, 694_018),
    "sc35": (6, 96, 128, 16, "half_glu1", 1, 35, 37_152, 283_523),
}


def count(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize("task", PUBLISHED)
def test_parameter_counts_of_published_sizes(task):
    depth, width, n, blocks, mixing, input_width, classes, per_layer, total = PUBLISHED[task]
    config = ModelConfig(
        "s5", width, depth, Mixing(mixing), norm=Norm.BATCH,
        options={"state_size": n, "blocks": blocks, "direction": "bidirectional"},
    )  # fmt: skip
    kind = TaskKind.PAIRS if task == "retrieval" else TaskKind.CLASSIFICATION
    spec = TaskSpec(task, kind, InputKind.CHANNELS, input_width, length=8, classes=classes)
    _, params = abstract_model(config, spec)
    assert {count(block["layer"]) for block in params["blocks"].values()} == {per_layer}
    assert count(params) == total
