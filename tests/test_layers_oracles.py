"""Layers against the reference values: outputs, every gradient, hidden states. One case per oracle file."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import oracle_dir
from flax import nnx

from lru import LRU, LRUConfig
from mru import MRU, MRUConfig, Variant
from mru.parametrize import input_states
from rotrnn import RotRNN, RotRNNConfig
from rotrnn.parametrize import original_basis
from s5 import S5, Discretization, S5Config
from s5.init import hippo_normal
from scans import Direction, diagonal_layer, matrix_scan


def build(name: str, values) -> Any:
    """The registered layer of an oracle file's sizes, with initial parameters."""
    parameters = {k.removeprefix("param_") for k in values if k.startswith("param_")}
    backward = any(k.startswith(("C_backward", "C2")) for k in parameters)
    direction = Direction.BIDIRECTIONAL if backward else Direction.FORWARD
    width, rngs = values["input"].shape[1], nnx.Rngs(0)
    if name.startswith("lru"):
        return LRU(LRUConfig(width=width, state_size=values["param_nu_log"].size, direction=direction), rngs=rngs)
    if name.startswith("mru"):
        heads, n, _ = values["param_W_down"].shape
        variant = Variant(name.removeprefix("mru_"))
        return MRU(MRUConfig(width=width, state_size=heads * n**2, heads=heads, variant=variant), rngs=rngs)
    if name.startswith("s5"):
        conj_sym = "conj" in name.split("_")
        config = S5Config(
            width=width,
            state_size=values["param_Lambda_re"].size * (2 if conj_sym else 1),
            direction=direction,
            discretization=Discretization.BILINEAR if "bilinear" in name else Discretization.ZOH,
            conj_sym=conj_sym,
            step_rescale=float(values["step_rescale"]),
        )
        return S5(config, rngs=rngs)
    heads, n, _ = values["param_M"].shape
    return RotRNN(RotRNNConfig(width=width, state_size=heads * n, heads=heads, direction=direction), rngs=rngs)


FAMILIES = ("lru", "rotrnn", "s5", "mru")
FILES = {p.stem: p for family in FAMILIES for p in sorted(oracle_dir().glob(f"{family}*.npz"))}
assert FILES, f"no oracle files in {oracle_dir()}"


@pytest.fixture(params=FILES, ids=[f"oracle-{name}" for name in FILES])
def oracle(request):
    with np.load(FILES[request.param]) as values:
        return request.param, dict(values)


def evaluate(layer, values, dtype):
    """Output, gradients and parameters of sum(output * cotangent), all in dtype."""
    graphdef, _ = nnx.split(layer)
    params = {k.removeprefix("param_"): jnp.asarray(v, dtype) for k, v in values.items() if k.startswith("param_")}
    assert params.keys() == nnx.to_pure_dict(nnx.state(layer)).keys()
    u, cotangent = (jnp.asarray(values[k], dtype) for k in ("input", "cotangent"))

    def run(params, u):
        module = nnx.merge(graphdef, _state(layer, params))
        y, _, _ = module(u[None])
        return (y[0] * cotangent).sum(), y[0]

    (_, y), (grads, grad_u) = jax.jit(jax.value_and_grad(run, (0, 1), has_aux=True))(params, u)
    return y, {"input": grad_u, **grads}, params


def _state(layer, params):
    state = nnx.state(layer)
    nnx.replace_by_pure_dict(state, params)
    return state


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 2e-4)])
def test_output_and_all_gradients(x64, oracle, dtype, tolerance):
    name, values = oracle
    y, grads, _ = evaluate(build(name, values), values, dtype)
    assert y.dtype == dtype
    for what, found, expected in [("output", y, values["output"])] + [
        (k, g, values[f"grad_{k}"]) for k, g in grads.items()
    ]:
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max(), err_msg=what)


@pytest.mark.parametrize("name", [pytest.param(n, id=f"oracle-{n}") for n in FILES if n.startswith("rotrnn")])
def test_hidden_states_and_head_energies_of_rotrnn(x64, name):
    with np.load(FILES[name]) as file:
        values = dict(file)
    layer = build(name, values)
    nnx.update(layer, _state(layer, evaluate(layer, values, "float64")[2]))
    u, expected = jnp.asarray(values["input"])[None], values["hidden_states"]
    x = diagonal_layer(layer.system(), u, states="all")[2]
    forward, basis = (x[0] if isinstance(x, tuple) else x), layer.basis()
    found = jnp.moveaxis(original_basis(forward[0], basis), 1, 0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
    energies = layer.state_energies(u, None, (1,))["energy"][: len(expected)]
    np.testing.assert_allclose(energies, (expected**2).sum(2).mean(1), rtol=1e-9)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 2e-4)])
@pytest.mark.parametrize("name", [pytest.param(n, id=f"oracle-{n}") for n in FILES if n.startswith("mru")])
def test_states_of_mru_and_the_gradient_by_its_matrices(x64, name, dtype, tolerance):
    with np.load(FILES[name]) as file:
        values = {key: jnp.asarray(value, dtype) for key, value in file.items()}
    layer = build(name, values)
    nnx.update(layer, _state(layer, {k.removeprefix("param_"): v for k, v in values.items() if k.startswith("param_")}))

    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def run(m):
        elements = layer.elements(values["input"][None])
        found = [elements[0], input_states(elements, layer.config.order, layer.config.variant)[0]]
        for method in ("sequential", "associative", "chunked"):

            def loss(m, method=method):
                s = matrix_scan(m[None], method=method)[0][0]
                read = jnp.einsum("thij,hjc->thic", s, values["param_W_down"]).reshape(len(m), -1)
                return (read @ values["param_W_out"] * values["cotangent"]).sum(), s

            gradient, s = jax.grad(loss, has_aux=True)(m)
            found += [s, gradient]
        return found

    expected = [values[key] for key in ("state_elements", "input_states", *["output_states", "grad_input_states"] * 3)]
    for i, (x, y) in enumerate(zip(run(values["input_states"]), expected, strict=True)):
        assert x.dtype == dtype
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * np.abs(y).max(), err_msg=str(i))


HIPPO = {p.stem: p for p in sorted(oracle_dir().glob("hippo_dplr_*.npz"))}
assert HIPPO, f"no hippo_dplr files in {oracle_dir()}"


@pytest.mark.parametrize("name", HIPPO, ids=[f"oracle-{name}" for name in HIPPO])
def test_hippo_normal_part(name):
    """Eigenvectors are unique only up to a phase each: absolute values are compared."""
    with np.load(HIPPO[name]) as file:
        values = dict(file)
    eigenvalues, vectors = hippo_normal(values["Lambda"].size)
    np.testing.assert_allclose(eigenvalues, values["Lambda"], atol=1e-12)
    n = np.arange(eigenvalues.size)
    for key, rotated in {"P": np.sqrt(n + 0.5), "B": np.sqrt(2 * n + 1)}.items():
        np.testing.assert_allclose(abs(vectors.conj().T @ rotated), abs(values[key]), atol=1e-12, err_msg=key)
    np.testing.assert_allclose(vectors @ vectors.conj().T, values["V_V_star"], atol=1e-12)
