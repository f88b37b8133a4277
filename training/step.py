"""The jitted programs of a run, each one over all its seeds: train, evaluate, probe, keep the best."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import lax

from training.loss import Sums, score_labels
from training.optim import path_names
from training.rng import Stream, stream_key
from training.state import Best, Params, Program, TrainState

FINE = -1
"""Value of `StepMetrics.bad` when everything is finite."""


class StepMetrics(NamedTuple):
    """Of one update, stacked over seeds: before it (loss, accuracy, grad_norm), its rate, and what was not finite.

    bad: FINE, or the place in `tensor_names` of the first tensor with a NaN or an infinity.
    """

    loss: jax.Array
    accuracy: jax.Array
    grad_norm: jax.Array
    lr: jax.Array
    bad: jax.Array


def map_seeds(f: Callable, *args: Any) -> Any:
    """f over the leading axis of all args.

    On a CPU one seed after the other in one program, which loses no time there and gives every seed bit for bit what it
    would give alone. On an accelerator side by side, which is what fills it.
    """
    if jax.default_backend() == "cpu":
        return lax.map(lambda x: f(*x), args)
    return jax.vmap(f)(*args)


def tensor_names(params: Params) -> list[str]:
    """What `StepMetrics.bad` counts: the loss, every gradient, every updated parameter."""
    paths = ["/".join(path_names(path)) for path, _ in jax.tree.leaves_with_path(params)]
    return ["the loss", *(f"the gradient of {p}" for p in paths), *(f"the update of {p}" for p in paths)]


def _first_bad(*trees: Any) -> jax.Array:
    finite = jnp.stack([jnp.isfinite(leaf).all() for tree in trees for leaf in jax.tree.leaves(tree)])
    return jnp.where(finite.all(), FINE, jnp.argmin(finite)).astype(jnp.int32)


def make_train_step(program: Program) -> Callable[[TrainState, Any, jax.Array], tuple[TrainState, StepMetrics]]:
    """(state, batch over seeds, number of updates done) -> (state, metrics). The old state is given away."""

    def forward(params, batch, key):
        logits, _ = nnx.merge(program.graphdef, params)(batch["inputs"], batch["lengths"], key=key)
        sums = score_labels(logits, batch["labels"], None)
        return sums.mean_loss, sums.accuracy

    def advance(params, opt, batch, seed, step):
        key = stream_key(seed, Stream.DROPOUT, step) if program.config.model.dropout else None
        (loss, accuracy), grads = jax.value_and_grad(forward, has_aux=True)(params, batch, key)
        updates, new_opt = program.optimiser.transform.update(grads, opt, params)
        new_params = optax.apply_updates(params, updates)
        bad = _first_bad(loss, grads, new_params)
        new = jax.tree.map(lambda x, y: jnp.where(bad == FINE, x, y), (new_params, new_opt), (params, opt))
        metrics = StepMetrics(loss, accuracy, optax.tree.norm(grads), jnp.asarray(program.optimiser.lr(step)), bad)
        return *new, bad == FINE, metrics

    def rest(params, opt):
        none = jnp.full((), jnp.nan)
        return params, opt, jnp.asarray(False), StepMetrics(none, none, none, none, jnp.full((), FINE, jnp.int32))

    def train_step(state: TrainState, batch, step):
        def one_seed(params, opt, alive, batch, seed):
            return lax.cond(alive, lambda: advance(params, opt, batch, seed, step), lambda: rest(params, opt))

        seeds = jnp.asarray(program.config.seeds)
        params, opt, alive, metrics = map_seeds(one_seed, state.params, state.opt, state.alive, batch, seeds)
        return state._replace(params=params, opt=opt, alive=alive), metrics

    return jax.jit(train_step, donate_argnums=0)


def make_eval_step(program: Program) -> Callable[[Params, Any], Sums]:
    """(parameters of all seeds, one batch for all) -> sums per seed; dropout off."""

    def eval_step(params, batch):
        def one_seed(params):
            logits, _ = nnx.merge(program.graphdef, params)(batch["inputs"], batch["lengths"])
            return score_labels(logits, batch["labels"], batch["weight"])

        return map_seeds(one_seed, params)

    return jax.jit(eval_step)


def make_probe_step(program: Program, times: tuple[int, ...]) -> Callable[[Params, Any], list[dict[str, jax.Array]]]:
    """(parameters of all seeds, one batch for all) -> diagnostics of every block, stacked over seeds."""

    def probe_step(params, batch):
        def one_seed(params):
            return nnx.merge(program.graphdef, params)(batch["inputs"], batch["lengths"], probe=times)[1]

        return map_seeds(one_seed, params)

    return jax.jit(probe_step)


@jax.jit
def keep_best(state: TrainState, step: jax.Array, value: jax.Array) -> Best:
    """The best of each seed after an evaluation: replaced if strictly better and finite, while the seed is alive."""
    better = state.alive & jnp.isfinite(value) & (value > state.best.value)

    def choose(new, old):
        return jnp.where(better.reshape(-1, *[1] * (old.ndim - 1)), new, old)

    return Best(
        jax.tree.map(choose, state.params, state.best.params),
        jnp.where(better, step, state.best.step).astype(jnp.int32),
        jnp.where(better, value, state.best.value).astype(jnp.float32),
    )
