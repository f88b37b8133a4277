"""The state of all seeds of a run, every leaf stacked over them."""

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from data.spec import InputKind, TaskSpec
from models.build import abstract_model, check_task, initial_params, initial_stats
from models.contract import ElementsConfig
from models.norm import Stats
from training.config import ExperimentConfig
from training.errors import ConfigError
from training.optim import ElementsRule, Optimiser, WInScaling, make_optimiser
from training.rng import Stream, stream_key

Params = Any


class EnergyRef(NamedTuple):
    """What the drawn initial parameters of a layer gave and promise, (S, heads): see `training.probe`."""

    energy: jax.Array
    gain: jax.Array
    log_decay: jax.Array


class Best(NamedTuple):
    """What the best evaluation of a seed was made with, its step (-1: none yet) and its value."""

    params: Params
    stats: Stats
    step: jax.Array
    value: jax.Array


class TrainState(NamedTuple):
    """stats: the running averages of batch norm; None for each block without it.

    alive: False once a seed has met a non-finite value; it then keeps its last finite state.
    """

    params: Params
    stats: Stats
    opt: Any
    alive: jax.Array
    best: Best
    energy_ref: tuple[EnergyRef | None, ...]


class Affine(NamedTuple):
    """x = scale v + shift for stored samples v; (C,), or (T, C) where every step has its own. Not trained."""

    scale: np.ndarray
    shift: np.ndarray


class Program(NamedTuple):
    """What stays fixed over a run. affine: how channels are normalised on the device; None: as they are, or tokens."""

    config: ExperimentConfig
    task: TaskSpec
    graphdef: nnx.GraphDef
    abstract_params: Params
    optimiser: Optimiser
    affine: Affine | None = None


def make_program(config: ExperimentConfig, task: TaskSpec, affine: Affine | None = None) -> Program:
    """Builds the model abstractly: no array is made. Raises ConfigError for sizes that do not fit.

    affine: for data whose statistics come with them; the default is the normalisation of the task.
    """
    _refuse_short_memory(config, task)
    try:
        check_task(config.model, task)
    except ValueError as error:
        raise ConfigError(f"config.model: {error}") from error
    graphdef, params = abstract_model(config.model, task)
    optim = config.optim
    elements = ElementsRule(optim.w_in_rate)
    if optim.w_in_scaling is WInScaling.PUBLISHED:
        order = cast(ElementsConfig, config.model.layer_config()).order
        elements = ElementsRule.published(optim.w_in_rate, order, task.length)
    optimiser = make_optimiser(
        params,
        config.model.layers,
        optim.groups,
        lr=optim.lr,
        ssm_lr=optim.ssm_lr,
        weight_decay=optim.weight_decay,
        warmup_steps=optim.warmup_steps,
        steps=config.train.steps,
        elements=elements,
        schedule=optim.schedule,
        decay=optim.decay,
        lr_min=optim.lr_min,
        b2=optim.b2,
        clip=optim.clip,
    )
    return Program(config, task, graphdef, params, optimiser, affine_of(task) if affine is None else affine)


def affine_of(task: TaskSpec) -> Affine | None:
    """(v / divisor - mean) / std as one product and one sum, in float32; None for a task without normalisation."""
    if task.normalisation is None:
        return None
    std = np.array(task.normalisation.std)
    scale, shift = 1 / (task.normalisation.divisor * std), -np.array(task.normalisation.mean) / std
    return Affine(scale.astype(np.float32), shift.astype(np.float32))


def features(program: Program, inputs: jax.Array) -> jax.Array:
    """What the encoder takes: ids as they are, samples as float32, normalised by `Program.affine`."""
    if program.task.input_kind is InputKind.TOKENS:
        return inputs
    samples = inputs.astype(jnp.float32)
    return samples if program.affine is None else samples * program.affine.scale + program.affine.shift


def _refuse_short_memory(config: ExperimentConfig, task: TaskSpec) -> None:
    """Raises ConfigError if a layer with a cache of fixed size cannot hold the longest input of the task."""
    longest = max(task.length, task.test_length or 0)
    limit = getattr(config.model.layer_config(), "max_length", longest)
    if limit < longest:
        raise ConfigError(f"config.model.options.max_length={limit}: inputs of {task.name} have up to {longest} steps")


def initial_params_of_all(program: Program) -> Params:
    """The parameters of every seed, drawn one after the other so that a seed does not depend on its neighbours."""
    model, task = program.config.model, program.task
    drawn = [initial_params(model, task, stream_key(seed, Stream.PARAMS)) for seed in program.config.seeds]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *drawn)


def abstract_params_of_all(program: Program) -> Params:
    """Their shapes and dtypes."""
    seeds = len(program.config.seeds)
    return jax.tree.map(lambda p: jax.ShapeDtypeStruct((seeds, *p.shape), p.dtype), program.abstract_params)


def initial_stats_of_all(program: Program) -> Stats:
    """The running averages of every seed before its first step."""
    seeds = len(program.config.seeds)
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * seeds), initial_stats(program.config.model))


def initial_state(
    program: Program, params: Params, energy_ref: tuple[EnergyRef | None, ...], stats: Stats | None = None
) -> TrainState:
    """The state of every seed before the first step, from its initial parameters and running averages (None: new)."""
    seeds = len(program.config.seeds)
    stats = initial_stats_of_all(program) if stats is None else stats
    best = Best(params, stats, jnp.full(seeds, -1, jnp.int32), jnp.full(seeds, -jnp.inf, jnp.float32))
    # Fresh buffers: the step donates those of the state, and those of `best` must outlive it.
    own, own_stats = jax.tree.map(jnp.copy, (params, stats))
    opt = jax.vmap(program.optimiser.transform.init)(own)
    return TrainState(own, own_stats, opt, jnp.ones(seeds, bool), best, energy_ref)
