"""The jitted programs of a run, each one over all its seeds: train, evaluate, probe, keep the best."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import lax

from data.spec import NO_LABEL
from models.language_model import LanguageModel
from models.norm import Moments, Stats, running
from training.loss import Sums, score_labels
from training.mesh import over_seeds
from training.optim import path_names
from training.rng import Stream, stream_key
from training.state import Best, Params, Program, TrainState, features

States = Any
"""The carried states of all seeds, see `models.language_model.States`."""

CarriedStep = Callable[[Params, States, Any], tuple[Sums, States]]

KEEP_BARRIERS = {"xla_disable_hlo_passes": "cse_barrier_expander"}
"""For XLA's CPU compiler, which else takes away what keeps a block apart from its recomputation, and merges the two."""

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
    would give alone. On an accelerator side by side, which is what fills it. Devices that share the seeds
    (`training.mesh`) each map their own.
    """
    if jax.default_backend() == "cpu":
        return over_seeds(lambda *args: lax.map(lambda x: f(*x), args))(*args)
    return over_seeds(jax.vmap(f))(*args)


def tensor_names(state: TrainState) -> list[str]:
    """What `StepMetrics.bad` counts: the loss, every gradient, every updated parameter, every running average."""
    paths = ["/".join(path_names(path)) for path, _ in jax.tree.leaves_with_path(state.params)]
    averages = [f"blocks/{i}/norm" for i, moments in enumerate(state.stats) if moments is not None]
    return [
        "the loss",
        *(f"the gradient of {p}" for p in paths),
        *(f"the update of {p}" for p in paths),
        *(f"the running {field} of {p}" for p in averages for field in Moments._fields),
    ]


def _averaged(stats: Stats, found: Stats, momentum: float) -> Stats:
    """The running averages after a step whose batch had the moments `found`."""
    pairs = zip(stats, found, strict=True)
    return tuple(None if old is None or new is None else running(old, new, momentum) for old, new in pairs)


def _first_bad(*trees: Any) -> jax.Array:
    finite = jnp.stack([jnp.isfinite(leaf).all() for tree in trees for leaf in jax.tree.leaves(tree)])
    return jnp.where(finite.all(), FINE, jnp.argmin(finite)).astype(jnp.int32)


def _in_parts(batch: Any, parts: int) -> Any:
    """(B, ...) -> (parts, B / parts, ...). A part takes every so many records: one of each device, where it lies."""
    return jax.tree.map(lambda x: x.reshape(-1, parts, *x.shape[1:]).swapaxes(0, 1), batch)


def _summed(f: Callable[[Any], Any], parts: Any) -> Any:
    """The sum of f(part) over the leading axis of `parts`, one part at a time."""
    zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(f, jax.tree.map(lambda x: x[0], parts)))
    return lax.scan(lambda total, part: (jax.tree.map(jnp.add, total, f(part)), None), zero, parts)[0]


def make_gradient(program: Program) -> Callable[[Params, Any, jax.Array | None], Any]:
    """(parameters of one seed, its batch, dropout key or None) -> ((loss, (accuracy, moments)), gradient)."""

    train = program.config.train
    parts = train.accumulate

    def forward(params, batch, key, count):
        inputs = features(program, batch["inputs"])
        output = nnx.merge(program.graphdef, params)(inputs, batch["lengths"], key=key, remat=train.remat)
        sums = score_labels(output.logits, batch["labels"], None)
        return sums.loss.sum() / count, (sums.correct.sum() / count, output.moments)

    gradient = jax.value_and_grad(forward, has_aux=True)

    def whole(params, batch, key):
        count = (batch["labels"] != NO_LABEL).sum()
        if parts == 1:
            return gradient(params, batch, key, count)
        keys = None if key is None else jax.random.split(key, parts)
        return _summed(lambda part: gradient(params, *part, count), (_in_parts(batch, parts), keys))

    return whole


def make_train_step(program: Program) -> jax.stages.Wrapped:
    """(state, batch over seeds, number of updates done) -> (state, metrics). The old state is given away."""

    model, train, gradient = program.config.model, program.config.train, make_gradient(program)

    def advance(old, batch, seed, step):
        params, stats, opt = old
        key = stream_key(seed, Stream.DROPOUT, step) if model.dropout else None
        (loss, (accuracy, moments)), grads = gradient(params, batch, key)
        updates, new_opt = program.optimiser.transform.update(grads, opt, params)
        new_params, new_stats = optax.apply_updates(params, updates), _averaged(stats, moments, model.bn_momentum)
        bad = _first_bad(loss, grads, new_params, new_stats)
        new = jax.tree.map(lambda x, y: jnp.where(bad == FINE, x, y), (new_params, new_stats, new_opt), old)
        metrics = StepMetrics(loss, accuracy, optax.tree.norm(grads), jnp.asarray(program.optimiser.lr(step)), bad)
        return *new, bad == FINE, metrics

    def rest(old):
        none = jnp.full((), jnp.nan)
        return *old, jnp.asarray(False), StepMetrics(none, none, none, none, jnp.full((), FINE, jnp.int32))

    def train_step(state: TrainState, batch, step):
        def one_seed(old, alive, batch, seed):
            return lax.cond(alive, lambda: advance(old, batch, seed, step), lambda: rest(old))

        old, seeds = (state.params, state.stats, state.opt), jnp.asarray(program.config.seeds)
        params, stats, opt, alive, metrics = map_seeds(one_seed, old, state.alive, batch, seeds)
        return state._replace(params=params, stats=stats, opt=opt, alive=alive), metrics

    barriers = KEEP_BARRIERS if train.remat and jax.default_backend() == "cpu" else None
    return jax.jit(train_step, donate_argnums=0, compiler_options=barriers)


def make_eval_step(program: Program, every: int = 1) -> Callable[[Params, Stats, Any], Sums]:
    """(parameters and running averages of all seeds, one batch for all) -> sums per seed; dropout off.

    every: take the first, and then every so many samples of the normalised inputs.
    """

    def eval_step(params, stats, batch):
        def one_seed(params, stats):
            inputs, lengths = features(program, batch["inputs"])[:, ::every], -(-batch["lengths"] // every)
            output = nnx.merge(program.graphdef, params)(inputs, lengths, stats=stats)
            return score_labels(output.logits, batch["labels"], batch["weight"])

        return map_seeds(one_seed, params, stats)

    return jax.jit(eval_step)


def make_carried_steps(program: Program) -> tuple[Callable[[Params], States], CarriedStep]:
    """The states of all seeds before a text, and (parameters and states of all seeds, a batch of one window for all)
    -> (sums per seed, states after the window); dropout off.
    """

    def model(params) -> LanguageModel:
        return nnx.merge(program.graphdef, params)

    def start(params):
        return map_seeds(lambda params: model(params).initial_state(1), params)

    def carried_step(params, states, batch):
        def one_seed(params, state):
            output = model(params)(batch["inputs"], batch["lengths"], state)
            return score_labels(output.logits, batch["labels"], None), output.state

        return map_seeds(one_seed, params, states)

    return jax.jit(start), jax.jit(carried_step)


def make_probe_step(program: Program, times: tuple[int, ...]) -> Callable[[Params, Any], list[dict[str, jax.Array]]]:
    """(parameters of all seeds, one batch for all) -> diagnostics of every block, stacked over seeds.

    Batch norm takes the moments of that batch, not the running averages: the energies depend on the parameters alone.
    """

    def probe_step(params, batch):
        def one_seed(params):
            return nnx.merge(program.graphdef, params)(
                features(program, batch["inputs"]), batch["lengths"], probe=times
            ).diagnostics

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
        jax.tree.map(choose, state.stats, state.best.stats),
        jnp.where(better, step, state.best.step).astype(jnp.int32),
        jnp.where(better, value, state.best.value).astype(jnp.float32),
    )
