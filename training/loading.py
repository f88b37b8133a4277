"""A run opened again, from its folder: its model, its config, what it computes.

    >>> from training.loading import load_run
    >>> run = load_run("runs/smoke", seed=1, checkpoint="best")
    >>> run.config.model.layer, run.config.seeds, run.seed
    ('lru', (0, 1), 1)
    >>> run.model.blocks[0].layer.nu_log.shape
    (16,)

docs/api.md goes on from here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from data.folders import default_data_dir
from data.prepared import fixed_task
from data.spec import TaskKind, TaskSpec
from models.build import Params
from models.language_model import LanguageModel
from models.norm import Stats
from models.sequence import SequenceModel
from training.config import ExperimentConfig
from training.loop import load_task
from training.state import Affine, Program, features, make_program
from training.weights import Saved, fitted, read_saved


@dataclass(frozen=True)
class LoadedRun:
    """One seed of a run at a checkpoint.

    step: updates that made its parameters (-1: no evaluation has chosen a best yet, so they are the initial ones).
    params: nested dict of arrays. stats: running averages of batch norm, None for each block without it. record: what
    config.json holds. note: what is to be known of the checkpoint, "" if there is nothing.
    """

    workdir: Path
    program: Program
    seed: int
    step: int
    params: Params
    stats: Stats
    record: Mapping[str, Any]
    note: str

    @property
    def config(self) -> ExperimentConfig:
        """The resolved config of the run."""
        return self.program.config

    @property
    def task(self) -> TaskSpec:
        """The shape of what it was trained on."""
        return self.program.task

    @cached_property
    def model(self) -> SequenceModel | LanguageModel:
        """The flax module with these parameters."""
        return nnx.merge(self.program.graphdef, self.params)

    def logits(self, inputs: Any, lengths: Any = None) -> Float[Array, "B *T K"]:
        """Scores of the K classes, as evaluation computes them: batch norm by its running averages, no dropout.

        inputs: (B, T) ids or (B, T, C) samples as the data set stores them; of pairs (B, 2, ...). lengths: valid steps
        (B,), of pairs (B, 2); None: all T. A label at every step has scores (B, T, K). Can be jitted.
        """
        inputs = jnp.asarray(inputs)
        axes = 2 if self.task.kind is TaskKind.PAIRS else 1
        if lengths is None:
            lengths = np.full(inputs.shape[:axes], inputs.shape[axes], np.int32)
        return self.model(features(self.program, inputs), jnp.asarray(lengths), stats=self.stats).logits


def load_run(
    workdir: str | Path,
    seed: int | None = None,
    checkpoint: str | int = "best",
    data_dir: str | Path | None = None,
) -> LoadedRun:
    """Opens a seed of a run (None: its first) at a checkpoint: "best" (that seed's own), "last", or a step.

    The folder is left as it is, and a run in progress may be opened. data_dir: of prepared data; default $LINREC_DATA
    or ~/.cache/linrec. Only a vocabulary or statistics of samples, which came with the data, are read there.

    Raises:
      ConfigError: there is no such run, seed or checkpoint, or it is damaged.
      DataError: data are needed and missing.
    """
    saved = read_saved(Path(workdir).expanduser(), str(checkpoint))
    return opened(saved, seed, default_data_dir() if data_dir is None else Path(data_dir).expanduser())


def opened(saved: Saved, seed: int | None, data_dir: Path) -> LoadedRun:
    """A seed of a checkpoint that was read; see `load_run`."""
    program, weights = make_program(saved.config, *_task(saved.config, data_dir)), saved.of_seed(seed)
    params, stats = fitted(weights, program, saved.workdir)
    notes = [*saved.repairs, *(["not evaluated yet: initial parameters"] if weights.step < 0 else [])]
    notes += [] if weights.alive else ["not finite later on"]
    return LoadedRun(saved.workdir, program, weights.seed, weights.step, params, stats, saved.record, "; ".join(notes))


def _task(config: ExperimentConfig, data_dir: Path) -> tuple[TaskSpec, Affine | None]:
    """Without the data where nothing of it comes with them, so that a folder can be opened anywhere."""
    known = fixed_task(config.data.request)
    return (known, None) if known is not None else load_task(config, data_dir)
