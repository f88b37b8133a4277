"""The state of a run before its first step, and its form without any array."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from data.spec import InputKind, TaskKind
from models.norm import Stats
from training.probe import energy_refs
from training.state import Params, Program, TrainState, abstract_params_of_all, initial_state
from training.step import make_probe_step

Diagnostics = list[dict[str, Any]]


def begin(
    program: Program,
    params: Params,
    probe_step: Callable[[Any, Any], Diagnostics],
    inputs: Any,
    stats: Stats | None = None,
) -> tuple[TrainState, Diagnostics]:
    """The state of the initial parameters of all seeds, and the energies that the probe `inputs` find in them.

    stats: running averages to begin with, None: new ones.
    """
    diagnostics = probe_step(params, inputs)
    return initial_state(program, params, energy_refs(diagnostics), stats), diagnostics


def abstract_state(program: Program) -> TrainState:
    """Shapes and dtypes of the state; nothing is computed."""
    task = program.task
    pair = (2,) if task.kind is TaskKind.PAIRS else ()
    channels = () if task.input_kind is InputKind.TOKENS else (task.input_width,)
    inputs = {
        "inputs": jnp.zeros((1, *pair, task.length, *channels), task.dtype),
        "lengths": jnp.ones((1, *pair), jnp.int32),
    }
    probe_step = make_probe_step(program, (1,))
    return jax.eval_shape(lambda params: begin(program, params, probe_step, inputs)[0], abstract_params_of_all(program))
