"""A step that met a value that was not finite, taken once more from the checkpoint of its run."""

import dataclasses
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from training import checkpoint, nonfinite
from training.config import ExperimentConfig, MeshConfig
from training.errors import ConfigError
from training.loop import load_data
from training.nonfinite import Incident, Layers
from training.rng import Stream, stream_key
from training.start import abstract_state
from training.state import Affine, Program, TrainState, make_program
from training.step import FINE, make_gradient, make_probe_step, make_train_step, tensor_names
from training.workdir import CHECKPOINTS, read_config, refuse_other_data


class Replayed(NamedTuple):
    """incident: as the run wrote it. tensor: the first that is not finite now, None if all are. layers: sizes before
    the update, and the norm of the `gradient`."""

    incident: Incident
    tensor: str | None
    layers: Layers


def replay(workdir: Path, data_dir: Path, seed: int | None = None) -> Replayed:
    """Takes the bad step of a seed once more, alone; None: of the seed that met one first.

    Raises ConfigError if there is no such run or step, or no checkpoint behind it; DataError if the data are missing.
    """
    config, run = read_config(workdir)
    incident = _chosen(workdir, config, seed)
    data = load_data(config, data_dir)
    refuse_other_data(workdir, run, data.content_sha256)
    nonfinite.refuse_unknown_records(workdir, incident, len(data.splits["train"]))
    affine = data.affine and Affine(*data.affine)
    state = _before(workdir, make_program(config, data.spec, affine), config.seeds.index(incident.seed), incident)
    alone = dataclasses.replace(config, seeds=(incident.seed,), mesh=MeshConfig())
    program = make_program(alone, data.spec, affine)
    batch = data.splits["train"].gather(incident.records)
    layers = _layers(program, state, batch, incident)
    _, metrics = make_train_step(program)(state, jax.tree.map(lambda x: x[None], batch), np.int32(incident.step - 1))
    bad = int(metrics.bad[0])
    return Replayed(incident, None if bad == FINE else tensor_names(state)[bad], layers)


def _chosen(workdir: Path, config: ExperimentConfig, seed: int | None) -> Incident:
    """The incident that is asked for."""
    incidents = nonfinite.read(workdir, config)
    found = [incident for incident in incidents if seed in (None, incident.seed)]
    if not found:
        known = ", ".join(str(incident.seed) for incident in incidents)
        raise ConfigError(
            f"{workdir / nonfinite.FOLDER} has no step of seed {seed}: choose from {known}"
            if incidents
            else f"{workdir / nonfinite.FOLDER} has no step to take again: none that was not finite is recorded there"
        )
    return found[0]


def _before(workdir: Path, program: Program, place: int, incident: Incident) -> TrainState:
    """The state of the seed at `place` as the bad step found it."""
    restored = checkpoint.restore(workdir / CHECKPOINTS, abstract_state(program), read_only=True)
    if restored is None or restored.step < incident.step or restored.tree.alive[place]:
        raise ConfigError(
            f"{workdir} has no checkpoint of step {incident.step} or later in which seed {incident.seed} is held"
        )
    own = jax.tree.map(lambda leaf: leaf[place : place + 1], restored.tree)
    return own._replace(alive=jnp.ones(1, bool))


def _layers(program: Program, state: TrainState, batch: dict, incident: Incident) -> Layers:
    config, (params, times) = program.config, (state.params, (program.task.length,))
    blocks = jax.device_get(make_probe_step(program, times)(params, batch))
    key = stream_key(incident.seed, Stream.DROPOUT, incident.step - 1) if config.model.dropout else None
    own = jax.tree.map(lambda leaf: leaf[0], params)
    _, gradient = jax.jit(make_gradient(program))(own, batch, key)
    own_blocks = [jax.tree.map(lambda leaf: leaf[0], block) for block in blocks]
    return nonfinite.sizes({"parameters": own, "gradient": gradient}, own_blocks)
