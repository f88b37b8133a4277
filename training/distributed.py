"""Several hosts: a process on each holds its own devices, draws its own records, and all of them train as one.

Every process runs the same steps in the same order, because each of them is one half of an exchange. Process 0 alone
has the folder of the run: the others are told what it restored, and write nothing.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from data.errors import DataError, first_line
from training.errors import ConfigError


def join(coordinator: str | None, processes: int | None, process: int | None) -> None:
    """Makes this process one of those of a run, before anything is computed; waits for the others.

    coordinator: HOST:PORT of process 0; processes: how many; process: the number of this one. All None: whatever
    started the processes says it (SLURM, a TPU pod, Open MPI, Kubernetes). Raises ConfigError if it does not.
    """
    given = {"coordinator": coordinator, "processes": processes, "process": process}
    missing = [f"--{name}" for name, value in given.items() if value is None]
    if 0 < len(missing) < len(given):
        raise ConfigError(f"{' and '.join(missing)} is missing: --coordinator, --processes and --process go together")
    if processes is not None and process is not None and not 0 <= process < processes:
        raise ConfigError(f"--process={process} of --processes={processes}: they are counted from 0")
    if coordinator is not None and not re.fullmatch(r".+:\d+", coordinator):
        raise ConfigError(f"--coordinator={coordinator}: expected HOST:PORT")
    try:
        jax.distributed.initialize(coordinator, processes, process)
    except RuntimeError as error:
        raise ConfigError(f"--distributed: {first_line(error)}") from error
    except ValueError as error:
        raise ConfigError(
            f"--distributed: nothing here says how many processes there are ({error}): "
            "give --coordinator=HOST:PORT, --processes and --process"
        ) from error


def is_first() -> bool:
    """Whether this is process 0, which writes."""
    return jax.process_index() == 0


@contextlib.contextmanager
def together() -> Iterator[None]:
    """What one process refuses inside, all refuse: none is left waiting for an answer. Raises ConfigError there."""
    refused = None
    try:
        yield
    except (ConfigError, DataError, OSError) as error:
        refused = error
    places = np.flatnonzero(multihost_utils.process_allgather(np.array([refused is not None])))
    if refused is not None:
        raise refused
    if places.size:
        raise ConfigError(f"process {places[0]} of {jax.process_count()} has refused: its line says why")


def told(value: Any) -> Any:
    """`value` of process 0, which JSON can say, in every process."""
    text = json.dumps(value).encode() if is_first() else b""
    size = int(multihost_utils.broadcast_one_to_all(np.array(len(text))))
    padded = np.zeros(size, np.uint8)
    padded[: len(text)] = np.frombuffer(text, np.uint8)
    return json.loads(multihost_utils.broadcast_one_to_all(padded).tobytes())


def copied(tree: Any) -> Any:
    """The arrays of process 0 in every process, as NumPy arrays; all give trees of the same shapes."""
    return multihost_utils.broadcast_one_to_all(tree)


def agreed(ask: Callable[[], bool]) -> Callable[[], bool]:
    """Whether any process was answered yes, when all asked the time before: asking so delays no device."""
    if jax.process_count() == 1:
        return ask
    mesh = jax.make_mesh((jax.device_count(),), ("devices",), (AxisType.Auto,))
    each, all_of_it = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("devices",), ()))
    count = jax.jit(lambda votes: votes.sum(), out_shardings=all_of_it)
    before: list[jax.Array] = []

    def asked() -> bool:
        vote = np.array([ask()], np.int32)
        before.append(count(jax.make_array_from_callback((jax.device_count(),), each, lambda _: vote)))
        return len(before) > 1 and int(before.pop(0)) > 0

    return asked
