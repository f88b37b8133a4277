"""Registered layers as functions of their parameters, at initialisation and after a little training; laws of samples.

What is not the layer's own work is done in NumPy, and what is runs inside one jitted function: here compiling takes
nearly all the time.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import lax

from models.build import Params, split_model
from models.registry import LAYERS

STANDARD_ERRORS = 5


class Run(NamedTuple):
    """A layer of the registry, taken apart."""

    graphdef: nnx.GraphDef
    params: Params

    @classmethod
    def of(cls, name: str, width: int, seed: int = 0, **options: Any) -> "Run":
        """The layer `name` with initial parameters drawn from `seed`."""
        layer: Any = LAYERS[name].build(width, options, nnx.Rngs(cheap_key(seed)))
        return cls(*split_model(layer))

    @classmethod
    def drawn(cls, name: str, width: int, seed: int = 0, **options: Any) -> "Run":
        """The layer with arbitrary parameters instead of initial ones, in the default precision."""
        rng = np.random.default_rng(seed)
        abstract: Any = nnx.eval_shape(lambda: LAYERS[name].build(width, options, nnx.Rngs(0)))
        graphdef, shapes = split_model(abstract)
        draw = lambda p: jnp.asarray(0.7 * rng.normal(size=p.shape), p.dtype)  # noqa: E731
        return cls(graphdef, jax.tree.map(draw, shapes))

    def module(self) -> Any:
        """The layer itself."""
        return nnx.merge(self.graphdef, self.params)

    def on(self, params: Params) -> "Run":
        """The same layer with all parameters replaced."""
        return Run(self.graphdef, params)

    def with_params(self, **params: Any) -> "Run":
        """The same layer with some parameters replaced; names and shapes must be the old ones."""
        new = {k: jnp.asarray(v, self.params[k].dtype) for k, v in params.items()}
        assert all(v.shape == self.params[k].shape for k, v in new.items())
        return self.on(self.params | new)

    def array(self, name: str) -> np.ndarray:
        """One parameter."""
        return np.asarray(self.params[name])


def outputs(run: Run, u: Any) -> np.ndarray:
    """y over whole sequences."""
    return np.asarray(jax.jit(lambda u: run.module()(u)[0])(u))


def evaluate(run: Run, u: Any, cotangent: Any, mask: Any = None) -> dict[str, Any]:
    """y, the last state x, and the gradient of sum(y cotangent) by u."""
    mask = None if mask is None else jnp.asarray(mask)

    def value(u):
        y, state, _ = run.module()(u, mask=mask)
        return (y * cotangent).sum(), {"y": y, "x": state.x}

    by_u, found = jax.jit(jax.grad(value, has_aux=True))(u)
    return {"by_u": by_u, **found}


def assert_close(found: Any, expected: Any, tolerance: float = 1e-12) -> None:
    """Trees of equal form, each leaf within `tolerance` of its largest entry (or of 1)."""
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1, np.abs(b).max())), found, expected
    )


def normals(*shape: int, seed: int = 1) -> np.ndarray:
    """Standard normal values, float64."""
    return np.random.default_rng(seed).normal(size=shape)


def cheap_key(seed: int) -> jax.Array:
    """A random key whose draws compile in a third of the time of the default ones."""
    return jax.random.key(seed, impl="unsafe_rbg")


def trained(run: Run, width: int, steps: int = 20, rate: float = 3e-2) -> Run:
    """The layer after `steps` updates of Adam towards a random target."""
    u, target = normals(4, 7, width, seed=11), normals(4, 7, width, seed=12)
    optimiser = optax.adam(rate)

    def loss(params):
        return ((run.on(params).module()(jnp.asarray(u))[0] - target) ** 2).mean()

    def update(carry, _):
        params, state = carry
        updates, state = optimiser.update(jax.grad(loss)(params), state)
        return (optax.apply_updates(params, updates), state), None

    @jax.jit
    def train(params):
        return lax.scan(update, (params, optimiser.init(params)), length=steps)[0][0]

    later = run.on(train(run.params))
    assert all(np.isfinite(x).all() for x in later.params.values())
    return later


def mode_energy(x: jax.Array) -> jax.Array:
    """|x_k|^2 of every mode of a state [Re | Im]."""
    re, im = jnp.split(x, 2, -1)
    return re**2 + im**2


def by_steps(run: Run, u: Any, reset: Any = None) -> tuple[jax.Array, jax.Array]:
    """Outputs and states (B, T, ...) of the layer fed u (B, T, D) one step after the other.

    A layer without a state gives its outputs twice.
    """
    layer, u = run.module(), jnp.asarray(u)
    reset = jnp.zeros(u.shape[:2], bool) if reset is None else reset

    def step(state, x):
        y, state = layer.step(x[0], state, reset=x[1])
        return state, (y, next(iter(jax.tree.leaves(state)), y))

    out = lax.scan(step, layer.initial_state(u.shape[0]), (jnp.swapaxes(u, 0, 1), reset.T))[1]
    return jnp.swapaxes(out[0], 0, 1), jnp.swapaxes(out[1], 0, 1)


def assert_all_finite(runs: list[Run], width: int) -> None:
    """Parameters, outputs and gradients of layers of one form, in float32."""
    params = {name: np.stack([run.array(name) for run in runs]) for name in runs[0].params}
    u = jnp.float32(normals(1, 5, width))
    value = lambda p: (runs[0].on(p).module()(u)[0] ** 2).sum()  # noqa: E731
    found = jax.jit(lambda p: lax.map(jax.value_and_grad(value), p))(params)
    assert all(x.dtype == np.float32 and np.isfinite(x).all() for x in jax.tree.leaves((params, found)))


def extreme_uniforms(monkeypatch: Any) -> Iterator[None]:
    """Uniform draws that all give their lower bound, then their upper one."""
    for edge, otherwise in (("minval", 0.0), ("maxval", 1.0)):
        extreme = lambda key, shape, *, e=edge, o=otherwise, **bounds: jnp.full(shape, bounds.get(e, o))  # noqa: E731
        monkeypatch.setattr(jax.random, "uniform", extreme)
        yield


def assert_normal(samples: Any, std: float) -> None:
    """Mean 0 and the given standard deviation, within error bars."""
    samples = np.asarray(samples).ravel()
    assert abs(samples.mean()) < STANDARD_ERRORS * std / np.sqrt(samples.size)
    assert abs(samples.std() / std - 1) < STANDARD_ERRORS / np.sqrt(2 * samples.size), (samples.std(), std)


def assert_uniform(samples: Any, low: float, high: float) -> None:
    """Uniform on [low, high]: nothing outside, and the deciles within error bars."""
    place = (np.asarray(samples, np.float64).ravel() - low) / (high - low)
    assert place.min() > -1e-5
    assert place.max() < 1 + 1e-5
    for share in np.arange(1, 10) / 10:
        error = np.sqrt(share * (1 - share) / place.size)
        assert abs((place < share).mean() - share) < STANDARD_ERRORS * error, share


def assert_mean(samples: Any, law: Any, power: float = 0.03) -> None:
    """The mean over axis 0 is `law` within error bars, which are at most `power` of it."""
    samples = np.asarray(samples)
    error = samples.std(0) / np.sqrt(len(samples))
    assert (error < power * law).all()
    score = (samples.mean(0) - law) / error
    assert (np.abs(score) < STANDARD_ERRORS).all(), score
