"""The folder of a run: what it holds, and whether a config may go on in it."""

import contextlib
import fcntl
import importlib.metadata
import os
import platform
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from training.config import ExperimentConfig, flat, from_config_dict, to_plain
from training.errors import ConfigError
from training.files import read_sealed, write_sealed
from training.folders import CHECKPOINTS, CONFIG, LOCK, METRICS, SCHEMA, refuse_schema

RESULTS = "results.json"
LOG = "train.log"

MAY_DIFFER = {"on_nonfinite", "compile_cache", "mirrors", "train.profile", "mesh.batch", "mesh.seeds", "mesh.sequence"}
MAY_DIFFER |= {"schema"}
"""Keys that a resumed run may change: they change no number of a step, but by rounding."""

PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "ml_collections", "tensorflow-datasets")
ORIGIN = ("schema", "git_commit", "platform")
KINDS = {"cores": int, "data_sha256": str, "devices": list, "versions": dict, "git_commit": str | None, "platform": str}
"""What is read of config.json besides the config."""


def claim(workdir: Path, config: ExperimentConfig, facts: dict[str, Any]) -> list[str]:
    """Writes config.json with `facts` (data_sha256 among them) into a held folder, or checks the one that is there.

    Returns what is another way than where the run was begun, a line each, to be said and recorded. Raises ConfigError
    for a folder of another config (naming the keys that differ) or of other data, or one that cannot be written.
    """
    try:
        if not (workdir / CONFIG).exists():
            if any((workdir / name).exists() for name in (METRICS, CHECKPOINTS, RESULTS)):
                raise ConfigError(f"{workdir} holds a run but no {CONFIG}: put it back, or choose another --workdir")
            write_sealed(workdir / CONFIG, {"config": to_plain(config), **facts, **environment()})
            return []
        if not os.access(workdir, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise ConfigError(f"cannot write to workdir {workdir}: {error.strerror}") from error
    record = refuse_difference(workdir, config)
    refuse_other_data(workdir, record, facts["data_sha256"])
    mesh = to_plain(config)["mesh"]
    before = record["cores"], len(record["devices"]), record["config"].get("mesh", mesh)
    now = cores(), jax.device_count(), mesh
    return [
        *(f"begun with {there}, going on with {here}" for there, here in other_versions(record, environment())),
        *(
            f"begun on {there} {what}, going on with {here}: the last bits will differ"
            for what, there, here in zip(("cores", "devices", "as mesh"), before, now, strict=True)
            if there != here
        ),
    ]


def other_versions(record: dict[str, Any], here: dict[str, Any]) -> list[tuple[str, str]]:
    """What a run of that config.json was begun with, and what is `here` (`environment`) instead: libraries, code,
    platform, schema."""
    now = here["versions"] | {key: here[key] for key in ORIGIN}
    before = record["versions"] | {key: record[key] for key in ORIGIN}
    return [(f"{name} {before[name]}", str(now[name])) for name in now if now[name] != before.get(name, now[name])]


@contextlib.contextmanager
def alone(workdir: Path) -> Iterator[None]:
    """Holds a folder, made if missing, as long as this process lives.

    Raises ConfigError while another process trains in it (naming that one), or if it cannot be written.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        file = (workdir / LOCK).open("a+", encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"cannot write to workdir {workdir}: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise ConfigError(f"{holder} trains in {workdir}: wait, or choose another --workdir") from error
        file.truncate(0)
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        print(f"process {os.getpid()} on {platform.node()}, since {since},", file=file, flush=True)
        yield


def gone(config: ExperimentConfig, step: int, end: int) -> list[str]:
    """A line if the newest checkpoint is that of `step` (0: there is none) but the run came to step `end`, behind
    another one: whoever saves a checkpoint does so before the next step."""
    every = config.train.checkpoint_every
    due = min((step // every + 1) * every, config.train.steps)
    return [f"checkpoint {due} is gone, and {METRICS} goes on to step {end}: going on from step {step}"] * (end > due)


def refuse_difference(workdir: Path, config: ExperimentConfig) -> dict[str, Any]:
    """The whole of config.json. Raises ConfigError, naming the keys, if it is that of a run of another config."""
    found, record = read_config(workdir)
    differing = differences(found, config)
    if differing:
        raise ConfigError(
            f"{workdir} belongs to a run of another config: {'; '.join(differing)}; choose another --workdir"
        )
    return record


def differences(there: ExperimentConfig, here: ExperimentConfig) -> list[str]:
    """The keys by which a run is another one, each with its two values."""
    saved, asked = flat(there), flat(here)
    keys = sorted(key for key in saved.keys() | asked.keys() if saved.get(key) != asked.get(key))
    return [f"{key} ({saved.get(key)!r} there, {asked.get(key)!r} here)" for key in keys if key not in MAY_DIFFER]


def refuse_other_data(workdir: Path, record: dict[str, Any], sha256: str) -> None:
    """Raises ConfigError if the run of that config.json was begun on records with another sha256."""
    if record["data_sha256"] != sha256:
        raise ConfigError(
            f"{workdir} was begun on other data (sha256 {record['data_sha256'][:16]} there, {sha256[:16]} here): "
            "put those data back, or choose another --workdir"
        )


def read_config(workdir: Path) -> tuple[ExperimentConfig, dict[str, Any]]:
    """The config of a run and the whole of its config.json. Raises ConfigError if there is none or it is damaged."""
    path = workdir / CONFIG
    try:
        record = read_sealed(path)
        refuse_schema(record["schema"])
        config = from_config_dict(record["config"])
        for key, kind in KINDS.items():
            if not isinstance(record[key], kind):
                raise TypeError(f"{key} is {record[key]!r}")
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}: is {workdir} the folder of a run?") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is damaged ({type(error).__name__}: {error}): put back a copy") from error
    return config, record


def environment() -> dict[str, Any]:
    """What made the numbers: versions, commit, devices, cores."""
    return {
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES}
        | {"python": platform.python_version()},
        "schema": SCHEMA,
        "git_commit": git_commit(),
        "devices": [str(device) for device in jax.devices()],
        "platform": jax.default_backend(),
        "cores": cores(),
    }


def cores() -> int:
    """Cores that this process may run on; sums on a CPU are split among them, so the last bits depend on it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def git_commit() -> str | None:
    """The commit of the code, with "+changes" if files differ from it; None outside a repository."""
    here = Path(__file__).parent
    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True)
        status = subprocess.run(["git", "status", "--porcelain"], cwd=here, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.stdout.strip() + ("+changes" if status.stdout.strip() else "")
