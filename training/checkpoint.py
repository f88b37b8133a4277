"""Checkpoints: the two newest steps, each trusted only if every byte of it is what was written.

Layout: ``folder/STEP/state/`` (written by orbax), ``folder/STEP/meta.json`` and ``folder/STEP/sha256.json``. The last
one holds the hash of every other file. It is written after all of them have reached the disk, and is the commit: a step
without it was never saved. Orbax alone would not do: it restores a flipped byte of an array without a word.

Only this module imports orbax, inside the functions that need it: the import takes a third of a second, and a mistake
on the command line should be answered at once. We use orbax's synchronous ``Checkpointer``, neither its
``CheckpointManager`` nor its asynchronous saving: our manifest decides which steps exist, are whole and may go, so the
manager would be a second opinion on the same question; and a save is over only when the manifest is on the disk, so
nothing is left to do in the background.
"""

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from data import strict_json
from training.errors import ConfigError
from training.files import sync, write_atomically, write_json

KEPT = 2
MANIFEST = "sha256.json"
META = "meta.json"
STATE = "state"

PyTree = Any


@dataclass(frozen=True)
class Restored:
    """A checkpoint as it was saved.

    ``repairs`` has one line for each damaged step that was passed over on the way, to be said and recorded.
    """

    step: int
    tree: PyTree
    meta: dict[str, Any]
    repairs: tuple[str, ...]


def save(folder: Path, step: int, tree: PyTree, meta: dict[str, Any]) -> None:
    """Saves ``tree`` as checkpoint ``step``, then removes all but the two newest checkpoints.

    A kill at any moment leaves the older checkpoints as they were, and this one either whole or not there.

    Args:
      folder: the run's checkpoint folder; made if missing.
      step: the number of training steps done; not a checkpoint yet.
      tree: nested dicts, tuples, lists, named tuples and None over jax or NumPy arrays of at least one element.
      meta: what JSON can say.

    Raises:
      ConfigError: the disk is full or the folder unwritable; the older checkpoints are intact.
      ValueError: ``step`` is a checkpoint already. A step determines its state, so there is nothing to write.
    """
    folder = folder.absolute()  # orbax refuses relative paths
    target = folder / str(step)
    if step in steps(folder):
        raise ValueError(f"{target} is a checkpoint already")
    with _disk_errors(f"cannot save checkpoint {step} in {folder}"):
        try:
            _remove(target)
            target.mkdir(parents=True)
            _write(target, tree, meta)
        except BaseException:
            with suppress(OSError):
                _remove(target)  # gives a full disk its space back
            raise
        for old in steps(folder)[:-KEPT]:
            _remove(folder / str(old))


def restore(
    folder: Path, abstract_tree: PyTree | None, step: int | None = None, *, read_only: bool = False
) -> Restored | None:
    """Restores the newest intact checkpoint, or checkpoint ``step``; None if nothing was ever saved.

    Every file of every step is compared with its hash before orbax reads any. Unless the folder is to be left as it
    is, a step that was never committed is then removed and a damaged one renamed ``damaged-STEP``.

    Args:
      folder: the run's checkpoint folder.
      abstract_tree: the tree to be restored, with a ``jax.ShapeDtypeStruct`` at every leaf; a leaf with a sharding
        comes back with that sharding, one without on the first device. None: whatever was saved, as a dict by path.
      step: the checkpoint to restore instead of the newest; the folder is then left as it is.
      read_only: leave the folder as it is, because a training run may be writing to it.

    Raises:
      ConfigError: checkpoint ``step`` is missing or damaged (the message names the intact ones); steps were saved and
        none is intact (nothing is renamed then); the checkpoint holds another tree, or other shapes or dtypes, than
        ``abstract_tree`` (the message names the first leaf that differs).
    """
    folder = folder.absolute()
    problems = {saved: _problem(folder / str(saved)) for saved in steps(folder)}
    intact = [saved for saved, problem in problems.items() if problem is None]
    damaged = {saved: problem for saved, problem in problems.items() if problem is not None}
    if step is not None:
        _check_intact(folder, step, intact, damaged)
        return _read(folder, step, abstract_tree, ())
    if damaged and not intact:
        listed = ", ".join(f"{saved} ({problem})" for saved, problem in damaged.items())
        raise ConfigError(
            f"every checkpoint in {folder} is damaged: {listed}; put back a copy, or remove the folder to start at 0"
        )
    if not read_only:
        _remove_uncommitted(folder)
    if not intact:
        return None
    fate = "passed over" if read_only else "renamed damaged-{}"
    repairs = tuple(
        f"checkpoint {saved} is damaged ({problem}): {fate.format(saved)}, going on from checkpoint {intact[-1]}"
        for saved, problem in damaged.items()
    )
    restored = _read(folder, intact[-1], abstract_tree, repairs)
    if not read_only:
        for saved in damaged:
            _rename_damaged(folder, saved)
    return restored


def steps(folder: Path) -> list[int]:
    """The committed checkpoints, oldest first, damaged ones among them."""
    return sorted(int(path.name) for path in _step_folders(folder) if (path / MANIFEST).exists())


def is_intact(folder: Path, step: int) -> bool:
    """Whether checkpoint ``step`` is there, and its files are those that were saved."""
    return _problem(folder / str(step)) is None


def saved_leaves(folder: Path, step: int) -> dict[str, jax.ShapeDtypeStruct]:
    """What checkpoint ``step`` holds, by path.

    Raises:
      OSError: there is no such checkpoint.
      ConfigError: its meta.json does not say it.
    """
    saved, _ = _meta(folder / str(step))
    return saved


def _meta(step_folder: Path) -> tuple[dict[str, jax.ShapeDtypeStruct], dict[str, Any]]:
    """What meta.json says: the leaves by path, and what ``save`` was given as ``meta``."""
    try:
        found = strict_json.parse((step_folder / META).read_bytes())
        leaves = {path: _shape(*leaf) for path, leaf in found["leaves"].items()}
        meta = dict(found["meta"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{step_folder / META} is damaged ({type(error).__name__}: {error})") from error
    return leaves, meta


def _shape(dtype: str, shape: list[int]) -> jax.ShapeDtypeStruct:
    if not all(type(size) is int and 0 <= size < 2**63 for size in shape):
        raise TypeError(f"{shape} is no shape")
    return jax.ShapeDtypeStruct(shape, dtype)


def _write(target: Path, tree: PyTree, meta: dict[str, Any]) -> None:
    """Writes all files of a step and waits until they are on the disk; the manifest comes last."""
    leaves = by_path(tree)
    with _checkpointer() as (checkpointer, args):
        checkpointer.save(target / STATE, args=args.StandardSave(leaves))
    shapes = {path: [str(leaf.dtype), list(leaf.shape)] for path, leaf in leaves.items()}
    write_json(target / META, {"meta": meta, "leaves": shapes})
    paths = sorted(target.rglob("*"))
    for path in [*paths, target]:
        sync(path)
    hashes = {path.relative_to(target).as_posix(): _sha256(path) for path in paths if path.is_file()}
    write_atomically(target / MANIFEST, _manifest_bytes(hashes))
    sync(target.parent)


def _read(folder: Path, step: int, abstract_tree: PyTree | None, repairs: tuple[str, ...]) -> Restored:
    """Reads a step that is known to be intact, if it holds the tree that is asked for."""
    source = folder / str(step)
    saved, meta = _meta(source)
    if abstract_tree is None:
        abstract_tree = saved
    wanted = by_path(abstract_tree)
    difference = _first_difference(saved, wanted)
    if difference is not None:
        raise ConfigError(f"checkpoint {source} does not fit this run: {difference}")
    # Without a sharding orbax would go by the devices of the run that saved, or give back NumPy arrays.
    first_device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    placed = {
        path: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding or first_device)
        for path, leaf in wanted.items()
    }
    try:
        with _checkpointer() as (checkpointer, args):
            # Orbax would turn what is stored into the dtype that is asked for, whatever that does to it.
            stored = checkpointer.metadata(source / STATE).item_metadata.tree
            if (difference := _first_difference(stored, wanted)) is not None:
                raise ValueError(difference)
            leaves = checkpointer.restore(source / STATE, args=args.StandardRestore(placed))
    except (ValueError, LookupError, TypeError) as error:
        raise ConfigError(f"{source / STATE} does not hold what {META} says: {error}") from error
    tree = jax.tree.unflatten(jax.tree.structure(abstract_tree), [leaves[path] for path in wanted])
    return Restored(step, tree, meta, repairs)


@contextmanager
def _checkpointer() -> Iterator[tuple[Any, Any]]:
    """Orbax's checkpointer and the module of its arguments; it waits for no other process of a run.

    Its log is silenced: it prints pages of thread tracebacks before it raises.
    """
    import orbax.checkpoint as ocp

    alone = ocp.options.MultiprocessingOptions(primary_host=jax.process_index(), active_processes={jax.process_index()})
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        handler = ocp.StandardCheckpointHandler(multiprocessing_options=alone)
        with ocp.Checkpointer(handler, multiprocessing_options=alone) as checkpointer:
            yield checkpointer, ocp.args
    finally:
        logger.setLevel(level)


def by_path(tree: PyTree) -> dict[str, Any]:
    """The leaves by path ("opt/0/count"). Saved so, a checkpoint can be read without the code that made its tree."""
    leaves = jax.tree.leaves_with_path(tree)
    named = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}
    if len(named) < len(leaves):
        raise ValueError("two leaves of the tree have the same path; names must not contain '/'")
    return named


def _first_difference(saved: dict[str, Any], wanted: dict[str, Any]) -> str | None:
    there = {path: f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in saved.items()}
    here = {path: f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in wanted.items()}
    for path in [*here, *there]:
        if path not in there:
            return f"it has no {path}, here {here[path]}"
        if path not in here:
            return f"it has {path} ({there[path]}), which is not wanted here"
        if there[path] != here[path]:
            return f"{path} is {there[path]} in it, {here[path]} here"
    return None


def _step_folders(folder: Path) -> list[Path]:
    """The folders that ``save`` made; whatever else lies there is not ours."""
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if re.fullmatch("0|[1-9][0-9]*", path.name) and path.is_dir()]


def _problem(step_folder: Path) -> str | None:
    """What is wrong with a committed step, or None. Files that the manifest does not know are let be."""
    try:
        content = (step_folder / MANIFEST).read_bytes()
        hashes = strict_json.parse(content)
        # It is written in one form only, so any other form is damage, even one that says the same.
        if not isinstance(hashes, dict) or META not in hashes or content != _manifest_bytes(hashes):
            return f"{MANIFEST} was altered"
        for name, sha256 in hashes.items():
            if not (step_folder / name).is_file():
                return f"{name} is missing"
            if _sha256(step_folder / name) != sha256:
                return f"{name} does not match {MANIFEST}"
    except ValueError:
        return f"{MANIFEST} was altered"
    except OSError as error:
        return f"{error.filename} cannot be read: {error.strerror}"
    return None


def _check_intact(folder: Path, step: int, intact: list[int], damaged: dict[int, str]) -> None:
    if step in intact:
        return
    problem = f"is damaged ({damaged[step]})" if step in damaged else "does not exist"
    others = f"intact: {', '.join(map(str, intact))}" if intact else "none is intact"
    raise ConfigError(f"checkpoint {step} in {folder} {problem}; {others}")


def _remove_uncommitted(folder: Path) -> None:
    for path in _step_folders(folder):
        if not (path / MANIFEST).exists():
            with _disk_errors(f"cannot remove the unfinished checkpoint {path}"):
                _remove(path)


def _rename_damaged(folder: Path, step: int) -> None:
    target = folder / f"damaged-{step}"
    with _disk_errors(f"cannot rename the damaged checkpoint {folder / str(step)}"):
        if target.exists():  # the same step, damaged once before
            shutil.rmtree(target)
        (folder / str(step)).rename(target)
        sync(folder)


def _remove(step_folder: Path) -> None:
    """Removes a step. The manifest goes first: what a kill leaves of the rest is then uncommitted, not damaged."""
    if not step_folder.exists():
        return
    (step_folder / MANIFEST).unlink(missing_ok=True)
    sync(step_folder)
    shutil.rmtree(step_folder)


@contextmanager
def _disk_errors(failure: str) -> Iterator[None]:
    """Turns what the operating system refuses into one line; anything else is a bug and goes on as it is."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{failure}: {error.strerror or error}") from error
    except ValueError as error:
        code = re.search(r"os_error_code='(\d+)'", str(error))  # tensorstore's way to say it
        if code is None:
            raise
        raise ConfigError(f"{failure}: {os.strerror(int(code[1]))}") from error


def _manifest_bytes(hashes: dict[str, str]) -> bytes:
    return (json.dumps(hashes, indent=0, sort_keys=True) + "\n").encode()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
