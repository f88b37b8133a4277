"""Language models in pieces: one call, a call that goes on from a state, and steps give the same logits."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from language_models import TOKENS, Model

BATCH, STEPS, LENGTH, SPLIT = 3, 7, 5, 3
VARIANTS = ("identity", "orthogonal_cayley", "orthogonal_expm", "ldu", "qr_cayley", "qr_expm", "determinant")
MODELS = [
    *(("mru", {"heads": 2, "state_size": 8, "variant": variant}) for variant in VARIANTS),
    ("mru", {"heads": 2, "state_size": 8, "state_scan": "rescaled", "output_norm": "frobenius"}),
    *(
        ("attention", {"heads": 2, "position": position, "max_length": STEPS})
        for position in ("rope", "none", "xpos_512")
    ),
    ("linear_attention", {"heads": 2}),
    ("mlp", {}),
    ("rotrnn", {"heads": 2, "state_size": 8, "direction": "forward"}),
    ("lru", {"state_size": 6, "direction": "forward"}),
    ("s5", {"state_size": 8, "blocks": 2, "direction": "forward"}),
]


def in_all_ways(model):
    """inputs -> logits of one call, of steps, and of a call for what comes after SPLIT steps; the states after that
    one call, after the other, whose row 2 has LENGTH steps in all, and after every step."""

    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def run(inputs):
        module = model.module()

        def step(state, token):
            logits, state = module.step(token, state)
            return state, (logits, state)

        whole = module(inputs, jnp.full(BATCH, STEPS))
        _, (stepped, states) = lax.scan(step, module.initial_state(BATCH), inputs.T)
        before = jax.tree.map(lambda path: path[SPLIT - 1], states)
        rest = module(inputs[:, SPLIT:], jnp.full(BATCH, STEPS - SPLIT).at[2].set(LENGTH - SPLIT), before)
        logits = {"one call": whole.logits, "steps": jnp.swapaxes(stepped, 0, 1), "rest": rest.logits}
        return logits, (whole.state, rest.state, states)

    return lambda inputs: jax.device_get(run(inputs))


@pytest.fixture(scope="module", params=MODELS, ids=lambda model: "-".join(map(str, [model[0], *model[1].values()])))
def run(request):
    return in_all_ways(Model.of(*request.param))


INPUTS = np.random.default_rng(1).integers(0, TOKENS, (BATCH, STEPS))


def close(found, expected):
    """Within the tolerance of float32, relative to the largest entry."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-4 * max(1, np.abs(expected).max()))


def test_calls_and_steps_give_the_same(run):
    logits, (end, short, states) = run(INPUTS)
    assert np.std(logits["one call"], axis=1).min() > 1e-3
    close(logits["steps"], logits["one call"])
    valid = np.arange(SPLIT, STEPS) < np.array([[STEPS], [STEPS], [LENGTH]])
    close(logits["rest"][valid], logits["one call"][:, SPLIT:][valid])
    jax.tree.map(lambda leaf, path: close(leaf, path[-1]), end, states)
    jax.tree.map(lambda leaf, path: close(leaf[:2], path[-1][:2]), short, states)
    jax.tree.map(lambda leaf, path: close(leaf[2], path[LENGTH - 1][2]), short, states)


def test_rows_do_not_touch_each_other(run):
    other = INPUTS.copy()
    other[1] = (other[1] + 1) % TOKENS
    logits, (_, _, states) = run(INPUTS)
    changed, (_, _, changed_states) = run(other)
    for way, found in logits.items():
        # Not to the bit: how often the exponential of a matrix is squared depends on the whole batch.
        np.testing.assert_allclose(found[[0, 2]], changed[way][[0, 2]], rtol=0, atol=1e-5)
        assert (np.abs(found[1] - changed[way][1]).max(-1) > 1e-3).all()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[:, ::2], b[:, ::2], atol=1e-5), states, changed_states)
