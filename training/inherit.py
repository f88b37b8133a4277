"""A new run that starts from the weights of an old one: `config.init_from`, its folder, and `config.init_checkpoint`.

Taken are the parameters and the running averages of batch norm, of the same shapes. Seed s starts from seed s of the
old run; an old run of one seed starts all seeds. Everything else is new: optimiser, schedule, order of data, dropout.

What the energies of the hidden state are measured against (`training.probe`) are then the parameters that the run
starts from, on its own probe: at step 0 `state_gain` is 1 and the drift 0, and the numbers need nothing of the old run.
Gains multiply: state_gain of the old run at that checkpoint x state_gain of the new one = gain over the drawn ones.

config.json and results.json say under "init_from" what was taken. Checkpoint 0 holds it: from there on the old run is
needed no more.
"""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from models.build import Params
from models.norm import Stats
from training import checkpoint
from training.errors import ConfigError
from training.state import Program
from training.weights import Saved, Weights, config_sha256, fitted, read_saved
from training.workdir import CHECKPOINTS, differences


class Inherited(NamedTuple):
    """What all seeds of a run start from, stacked over them; what is recorded of it, and lines that say it."""

    params: Params
    stats: Stats
    facts: dict[str, Any]
    lines: list[str]


def inherit(program: Program, workdir: Path, begun: dict[str, Any] | None) -> Inherited | None:
    """What `config.init_from` asks for; None if it asks for nothing, or the run has a checkpoint of its own.

    begun: config.json of the run, if it was begun before. Raises ConfigError if there is no such run, checkpoint or
    seed, for another model (the first array that differs, and both shapes), and if it has changed since.
    """
    config = program.config
    if not config.init_from or checkpoint.steps(workdir / CHECKPOINTS):
        return None
    saved = read_saved(Path(config.init_from).expanduser(), config.init_checkpoint, "config.init_checkpoint")
    taken = {seed: _weights_for(seed, saved) for seed in config.seeds}
    trees = [fitted(weights, program, saved.workdir) for weights in taken.values()]
    params, stats = jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
    facts = _facts(saved, taken)
    if begun is not None and begun.get("init_from") != facts:
        raise ConfigError(
            f"{saved.workdir} is not what {workdir} was begun from: put that back, or choose another --workdir"
        )
    return Inherited(params, stats, facts, _lines(program, saved, taken))


def _weights_for(seed: int, saved: Saved) -> Weights:
    return saved.of_seed(None if len(saved.config.seeds) == 1 else seed)


def _facts(saved: Saved, taken: dict[int, Weights]) -> dict[str, Any]:
    """For JSON. seeds: of the new run. init_from: of the old run, if it started from weights as well."""
    record = saved.record
    return {
        "workdir": str(saved.workdir),
        "checkpoint": saved.which,
        "config_sha256": config_sha256(saved.record),
        "git_commit": record.get("git_commit"),
        "data_sha256": record["data_sha256"],
        "seeds": {
            str(seed): {"seed": w.seed, "step": w.step, "alive": w.alive, "sha256": w.sha256}
            for seed, w in taken.items()
        },
        **({"init_from": record["init_from"]} if "init_from" in record else {}),
    }


def _lines(program: Program, saved: Saved, taken: dict[int, Weights]) -> list[str]:
    started = ", ".join(f"{seed} from {w.seed} at step {w.step}" for seed, w in taken.items())
    lines = [f"starts from {saved.workdir}, {saved.which} checkpoint: seed {started}"]
    if differing := [line for line in differences(saved.config, program.config) if not line.startswith("init_")]:
        lines.append(f"differs from it in {'; '.join(differing)}")
    halted = [str(w.seed) for w in taken.values() if not w.alive]
    lines += [f"warning: not finite later on there: seed {', '.join(halted)}"] if halted else []
    return [*lines, *saved.repairs]
