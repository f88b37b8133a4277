"""The commands that `scripts.kill_test` kills: what they do at a moment, and whether two of their ends are equal."""

import glob
import itertools
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from training import checkpoint

RUN = ("depth=1", "direction=forward", "seeds=0:2", "smoke")


@dataclass(frozen=True)
class Before:
    """What a start finds."""

    log: bytes
    metrics: bytes
    step: int


@dataclass(frozen=True)
class Subject:
    """name: of the folders. command: what works in a folder. prepare: makes what it needs there.

    during: what it is doing, by what lies in the folder; phases: those that must be hit, where "start", while Python
    imports, need not be. differ: a line for each thing by which the ends in two folders differ.
    """

    name: str
    command: Callable[[Path], list[str]]
    during: Callable[[Path, Before], str]
    differ: Callable[[Path, Path], list[str]]
    phases: tuple[str, ...]
    prepare: Callable[[Path], object] = lambda _: None


def training(layer: str) -> Subject:
    """A run of a minute at most that uses all that a resume must get right: two seeds, dropout, many saves."""
    phases = ("compile", "step", "evaluate", "save", "rename")
    return Subject("train", lambda workdir: train_command(layer, workdir), train_phase, differ_runs, phases)


def others(trained: Path) -> list[Subject]:
    """What else leaves files; `trained`: the folder of a run, to be scored and reported."""
    module = [sys.executable, "-m"]
    listops = ["listops", "--length_window=24:96", "--limit=1500"]
    grid = ["--config=configs/lra.py:task=listops,smoke,depth=1", "--grid=layer=lru,rotrnn", "--seeds=0:2"]
    return [
        Subject(
            "prepare",
            lambda folder: [*module, "scripts.prepare_data", *listops, f"--data_dir={folder}"],
            lambda folder, _: "prepare" if list(folder.glob(".*.preparing")) else "start",
            differ_files,
            ("prepare",),
        ),
        Subject(
            "score",
            lambda folder: [sys.executable, "eval.py", f"--workdir={folder}", "--checkpoint=last"],
            lambda folder, _: "score" if (folder / "results.json.tmp").exists() else "start",
            lambda one, other: differ_files(one, other, "results.json"),
            (),
            lambda folder: shutil.copytree(trained, folder, dirs_exist_ok=True),
        ),
        Subject(
            "report",
            lambda folder: [*module, "scripts.report", str(trained), f"--out={folder}"],
            lambda folder, _: "report" if any(folder.rglob("*.*")) else "start",
            differ_files,
            ("report",),
        ),
        Subject(
            "sweep",
            lambda folder: [*module, "scripts.sweep", *grid, f"--out={folder}", "--workers=2"],
            lambda folder, _: "sweep" if list(folder.glob("*/config.json")) else "start",
            _differ_sweeps,
            ("sweep",),
        ),
    ]


def train_command(layer: str, workdir: Path) -> list[str]:
    """Of `training`."""
    return [
        sys.executable,
        "train.py",
        f"--config=configs/lra.py:task=listops,layer={layer},{','.join(RUN)}",
        "--config.model.dropout=0.1",
        "--config.train.steps=60",
        "--config.train.eval_every=6",
        "--config.train.checkpoint_every=4",
        f"--workdir={workdir}",
    ]


def train_phase(workdir: Path, before: Before) -> str:
    """What a run is doing, by what it has left in its folder since it was started."""
    if not (workdir / "config.json").exists():
        return "start"
    if read(workdir / "train.log") == before.log:
        return "compile"  # or it reads its checkpoint
    rows = rows_of(workdir)
    if read(workdir / "metrics.jsonl") == before.metrics or all(row["step"] <= before.step for row in rows):
        return "compile"
    # By `glob`, and not by `Path.glob`, which raises an error where a folder is removed meanwhile.
    if glob.glob(f"{workdir}/*.tmp") or glob.glob(f"{workdir}/checkpoints/*/*.tmp"):
        return "rename"
    if not all(Path(path, checkpoint.MANIFEST).exists() for path in glob.glob(f"{workdir}/checkpoints/[0-9]*")):
        return "save"
    train = json.loads(read(workdir / "config.json"))["config"]["train"]
    last = rows[-1]
    evaluating = last["step"] % train["eval_every"] == 0 or last["step"] == train["steps"]
    return "evaluate" if evaluating and last["split"] == "train" else "step"


def differ_runs(reference: Path, workdir: Path) -> list[str]:
    """What the ends of two runs differ in: final checkpoint (bits) and metrics (all but ``seconds``)."""
    differences = []
    (step, leaves), (other_step, other_leaves) = _final_state(reference), _final_state(workdir)
    if (step, list(leaves)) != (other_step, list(other_leaves)):
        differences.append(f"the last checkpoint is {other_step} with {len(other_leaves)} leaves, not {step}")
    else:
        changed = [path for path in leaves if leaves[path].tobytes() != other_leaves[path].tobytes()]
        if changed:
            differences.append(f"checkpoint {step} has other bits in {', '.join(changed)}")
    for number, (row, other) in enumerate(itertools.zip_longest(rows_of(reference), rows_of(workdir), fillvalue={}), 1):
        if row != other:
            names = [name for name in row | other if row.get(name) != other.get(name)]
            differences.append(f"metrics.jsonl differs from line {number} on, there in {', '.join(names)}")
            break
    return differences


def differ_files(reference: Path, folder: Path, pattern: str = "*") -> list[str]:
    """The files of two folders that differ, but for where the folders are."""
    contents = [
        {
            path.relative_to(here).as_posix(): path.read_bytes().replace(bytes(here), b"")
            for path in _files(here, pattern)
        }
        for here in (reference, folder)
    ]
    return [
        f"{name} differs" for name in sorted(set().union(*contents)) if contents[0].get(name) != contents[1].get(name)
    ]


def _files(folder: Path, pattern: str) -> list[Path]:
    return [path for path in folder.rglob(pattern) if path.is_file() and path.suffix != ".lock"]


def _differ_sweeps(reference: Path, folder: Path) -> list[str]:
    cells = [path.parent.name for path in sorted(reference.glob("*/config.json"))]
    return [
        f"{cell}: {line}"
        for cell in cells
        for line in (
            *differ_runs(reference / cell, folder / cell),
            *differ_files(reference / cell, folder / cell, "results.json"),
        )
    ]


def newest(workdir: Path) -> int:
    """The step of the newest checkpoint, 0 if there is none."""
    return max(checkpoint.steps(workdir / "checkpoints"), default=0)


def rows_of(workdir: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl without seconds and check; NaN stays null, so that rows can be compared."""
    *lines, _ = read(workdir / "metrics.jsonl").split(b"\n")
    rows = map(json.loads, lines)
    return [{name: value for name, value in row.items() if name not in ("seconds", "crc32")} for row in rows]


def read(path: Path) -> bytes:
    """The bytes of a file, none if it is not there."""
    return path.read_bytes() if path.exists() else b""


def _final_state(workdir: Path) -> tuple[int, dict[str, np.ndarray]]:
    folder, step = workdir / "checkpoints", newest(workdir)
    restored = checkpoint.restore(folder, None, step)
    assert restored is not None
    return step, jax.device_get(restored.tree)
