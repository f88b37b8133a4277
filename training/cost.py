"""What a run takes: facts of its model for config.json, and the largest memory it has held."""

import resource
import sys
from pathlib import Path
from typing import Any

import jax

from data.spec import TaskKind
from training.errors import ConfigError
from training.files import read_sealed, write_sealed
from training.state import Program

COST = "cost.json"


def model_facts(program: Program) -> dict[str, int]:
    """parameters: real numbers that one seed trains. state_size: real numbers carried by a layer, per direction.

    steps_per_record: time steps that the layers read of one record, padding included; both documents of a pair.
    """
    documents = 2 if program.task.kind is TaskKind.PAIRS else 1
    return {
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(program.abstract_params)),
        "state_size": program.config.model.layer_config().real_state_size,
        "steps_per_record": documents * program.task.length,
    }


def record_peak(workdir: Path) -> None:
    """Writes the largest memory held so far to cost.json, unless an earlier process of the run held more."""
    found = peak_memory()
    if found["peak_memory_bytes"] > recorded_peak(workdir):
        write_sealed(workdir / COST, found)


def recorded_peak(workdir: Path) -> int:
    """The bytes in cost.json, 0 if there is none. Raises ConfigError if it is damaged."""
    path = workdir / COST
    if not path.exists():
        return 0
    try:
        return int(read_sealed(path)["peak_memory_bytes"])
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise ConfigError(f"{path} is damaged ({error}): put back a copy, or remove it") from error


def peak_memory() -> dict[str, Any]:
    """peak_memory_bytes `of` the fullest device where it keeps count, else of this whole process, compiler included."""
    peaks = [(device.memory_stats() or {}).get("peak_bytes_in_use") for device in jax.local_devices()]
    if known := [peak for peak in peaks if peak is not None]:
        return {"peak_memory_bytes": max(known), "of": "device"}
    unit = 1 if sys.platform == "darwin" else 1024
    return {"peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, "of": "process"}
