"""What a config would run, in words, before anything is run."""

import shutil
import sys
from pathlib import Path

import jax

from data.errors import DataError
from data.registry import folder_of, task_spec
from training.config import ExperimentConfig, flat
from training.loop import load_data
from training.memory import abstract_start, state_sizes
from training.optim import parameter_table
from training.state import make_program


def describe(config: ExperimentConfig, data_dir: Path) -> str:
    """Resolved keys, parameter table with groups, state size, state of the data, published number."""
    program = make_program(config, task_spec(config.data.request))
    keys = "\n".join(f"  {key} = {value!r}" for key, value in flat(config).items())
    table = parameter_table(program.abstract_params, config.model.layers, config.optim.groups, config.optim.decay)
    state = state_sizes(abstract_start(program)).table
    try:
        sizes = {name: len(split) for name, split in load_data(config, data_dir).splits.items()}
        data = f"ready, {sizes}" + (" (smoke: made in memory)" if config.data.smoke else f" in {data_dir}")
    except DataError as error:
        data = f"not ready: {error}"
    return "\n".join(
        [
            keys,
            table,
            f"memory of the state (a run says at its start what a step takes):\n{state}",
            f"carried state: {config.model.layer_config().real_state_size} real numbers a layer and direction",
            f"data: {folder_of(config.data.request)}: {data}",
            f"published: {config.published or 'no number for this setting'}",
        ]
    )


def warn_unused_gpu() -> None:
    """One line on stderr when the machine has a GPU and this installation of JAX does not use it."""
    if jax.default_backend() == "cpu" and shutil.which("nvidia-smi"):
        remedy = "make setup ACCEL=cuda12 or cuda13; if that was done, look at the driver"
        print(f"warning: a GPU is visible but JAX runs on the CPU: {remedy}", file=sys.stderr)
