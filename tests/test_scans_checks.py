"""Every layer refuses calls that do not fit, with the numbers."""

import jax.numpy as jnp
import pytest
from flax import nnx

from models.registry import LAYERS
from scans import check_call

SIZES = {
    "rotrnn": {"state_size": 4, "heads": 2},
    "lru": {"state_size": 3},
    "s5": {"state_size": 4, "blocks": 2},
    "mru": {"state_size": 8, "heads": 2},
    "dense": {"state_size": 3},
    "attention": {"heads": 2, "max_length": 8},
    "linear_attention": {"heads": 2},
    "mlp": {},
}
assert SIZES.keys() == LAYERS.keys()


@pytest.fixture(params=SIZES)
def layer(request):
    return LAYERS[request.param].build(4, SIZES[request.param], nnx.Rngs(0))


@pytest.mark.parametrize("shape", [(2, 5, 3), (2, 0, 4)])
def test_inputs_of_another_width_or_of_no_step_are_refused(layer, shape):
    with pytest.raises(ValueError, match=rf"u must be \(B, T, 4\) with at least one time step, got shape \({shape[0]}"):
        layer(jnp.zeros(shape))


def test_a_state_of_another_batch_is_refused(layer):
    state = layer.initial_state(3)
    if state == ():
        state = (jnp.zeros(3),)
    with pytest.raises((ValueError, TypeError), match=r"the carried state must have shapes|(?i:type-check)") as refusal:
        layer(jnp.zeros((2, 5, 4)), state)
    assert "\n" not in str(refusal.value) or "Type-check" in str(refusal.value)  # mlp's (): by its type, in tests


def test_marks_and_states_of_another_form_are_refused():
    u, state = jnp.zeros((2, 5, 4)), {"turn": jnp.zeros((2, 3)), "length": jnp.zeros(2)}

    def initial(batch):
        return {"turn": jnp.zeros((batch, 3)), "length": jnp.zeros(batch)}

    check_call("x", u, 4, initial, state, mask=jnp.ones((2, 5), bool), reset=None)
    for changed, line in (
        ({**state, "length": jnp.zeros(1)}, r"shapes .*'length': \(2,\).*, got .*'length': \(1,\)"),
        ({**state, "turn": None}, r"got \{'length': \(2,\)\}"),
        ((), r"got \{\}"),
    ):
        with pytest.raises(ValueError, match=line):
            check_call("x", u, 4, initial, changed)
    for shape in ((1, 5), (5,), (2, 6)):
        with pytest.raises(ValueError, match=r"x: reset must have shape \(2, 5\), got \("):
            check_call("x", u, 4, initial, None, mask=None, reset=jnp.ones(shape, bool))
    for mask in (jnp.ones(2, bool), jnp.ones(2), jnp.ones(3, int), jnp.ones((2, 5), int), jnp.ones((2, 6), bool)):
        with pytest.raises(ValueError, match=r"flags of shape \(2, 5\) or whole lengths of shape \(2,\), got"):
            check_call("x", u, 4, initial, None, mask=mask)
    with pytest.raises(ValueError, match=r"u must be \(B, T, 4\)"):
        check_call("x", jnp.zeros((5, 4)), 4, initial, None)
