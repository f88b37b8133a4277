"""The forms that the benchmarks measure against compute the right thing: the reference values, gradients included."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import oracle_dir

from benchmarks import textbook
from mru import Variant

FORMS = {"lru": textbook.lru, "rotrnn": textbook.rotrnn} | {
    f"mru_{variant}": textbook.mru(variant) for variant in Variant
}
FILES = {p.stem: (p, form) for name, form in FORMS.items() for p in sorted(oracle_dir().glob(f"{name}*.npz"))}


@pytest.mark.parametrize("name", FILES, ids=[f"oracle-{name}" for name in FILES])
def test_published_forms_match_the_reference_values(x64, name):
    path, form = FILES[name]
    with np.load(path) as file:
        values = {k: jnp.asarray(v) for k, v in file.items()}
    params = {k.removeprefix("param_"): v for k, v in values.items() if k.startswith("param_")}

    @jax.jit
    def run(params, u, cotangent):
        y, vjp = jax.vjp(form, params, u)
        return y, *vjp(cotangent)

    # A second sequence of the batch, other in content, must not reach the first.
    u = jnp.stack([values["input"], values["input"][::-1]])
    cotangent = jnp.stack([values["cotangent"], jnp.zeros_like(values["cotangent"])])
    y, grads, grad_u = run(params, u, cotangent)
    found = {"output": y[0], "grad_input": grad_u[0], **{f"grad_{k}": g for k, g in grads.items()}}
    wanted = {f"grad_{k}" for k in params} | {"output", "grad_input"}
    assert found.keys() == wanted <= values.keys()
    for what, value in found.items():
        scale = np.abs(values[what]).max()
        np.testing.assert_allclose(value, values[what], rtol=0, atol=1e-9 * scale, err_msg=what)
    np.testing.assert_array_equal(grad_u[1], 0)


def test_bidirectional_lru_adds_the_same_recurrence_over_the_inputs_from_the_end(x64):
    with np.load(FILES["lru"][0]) as file:
        forward = {k.removeprefix("param_"): jnp.asarray(v) for k, v in file.items() if k.startswith("param_")}
        u = jnp.asarray(file["input"])[None, :5]
    run = jax.jit(textbook.lru)
    backward = forward | {"C_re": forward["C_im"], "C_im": 2 * forward["C_re"], "D": jnp.zeros_like(forward["D"])}
    both = forward | {"C_backward_re": backward["C_re"], "C_backward_im": backward["C_im"]}
    expected = run(forward, u) + run(backward, u[:, ::-1])[:, ::-1]
    np.testing.assert_allclose(run(both, u), expected, rtol=0, atol=1e-12)
