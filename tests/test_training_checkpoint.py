"""Checkpoints: what is restored is bit for bit what was saved, whatever was killed or damaged in between."""

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from training import checkpoint
from training.errors import ConfigError


class Moments(NamedTuple):
    mean: jax.Array
    count: np.ndarray


def train_state(step: int, width: int = 5) -> dict:
    """A state with all that a train state has, its values drawn from ``step``; NaN, infinities and -0.0 among them."""
    rng = np.random.default_rng(step)
    params = {
        "layers": {"0": {"theta": jnp.asarray(rng.normal(size=(2, width)), jnp.float32)}},
        "head": jnp.asarray([[np.nan, np.inf, -np.inf, -0.0, 1e-45]], jnp.float32),
    }
    labels = {"layers": {"0": {"theta": "recurrent"}}, "head": "rest"}
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.partition({"recurrent": optax.adam(optax.constant_schedule(1e-3)), "rest": optax.adamw(1e-3)}, labels),
    )
    opt = jax.tree.map(lambda leaf: leaf + step, optimizer.init(params))
    return {
        "params": params,
        "stats": {},
        "opt": opt,
        "step": jnp.int32(step),
        "alive": jnp.asarray([True, False]),
        "best": Moments(mean=jnp.full((2,), step / 3, jnp.float32), count=np.full((2,), step, np.int32)),
        "energy_ref": None,
    }


def abstract(tree: dict) -> dict:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def assert_same_bits(restored: dict, saved: dict) -> None:
    assert jax.tree.structure(restored) == jax.tree.structure(saved)
    for (path, new), old in zip(jax.tree.leaves_with_path(restored), jax.tree.leaves(saved), strict=True):
        assert isinstance(new, jax.Array), path
        assert (new.dtype, new.shape) == (old.dtype, old.shape), path
        assert np.asarray(new).tobytes() == np.asarray(old).tobytes(), path


def files_of(step_folder: Path) -> list[str]:
    return sorted(path.relative_to(step_folder).as_posix() for path in step_folder.rglob("*") if path.is_file())


def flip_bit(path: Path, position: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


DAMAGES = {
    "flipped": lambda path: flip_bit(path, path.stat().st_size // 2, 3),
    "truncated": lambda path: os.truncate(path, path.stat().st_size - 1),
    "emptied": lambda path: os.truncate(path, 0),
    "removed": lambda path: path.unlink(),
}


@pytest.fixture(scope="module")
def two_steps(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("two") / "checkpoints"
    for step in (3, 7):
        checkpoint.save(folder, step, train_state(step), {"saved_at": step})
    return folder


@pytest.fixture
def folder(two_steps, tmp_path) -> Path:
    """A copy of a folder with the intact checkpoints 3 and 7."""
    return Path(shutil.copytree(two_steps, tmp_path / "checkpoints"))


def test_restores_the_newest_state_bit_for_bit_with_its_meta(folder):
    restored = checkpoint.restore(folder, abstract(train_state(0)))
    assert restored is not None
    assert (restored.step, restored.meta, restored.repairs) == (7, {"saved_at": 7}, ())
    assert_same_bits(restored.tree, train_state(7))


def test_restores_a_step_that_is_asked_for(folder):
    restored = checkpoint.restore(folder, abstract(train_state(0)), step=3)
    assert restored is not None
    assert restored.step == 3
    assert_same_bits(restored.tree, train_state(3))


def test_restores_with_the_sharding_of_the_abstract_tree(folder):
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    wanted = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), abstract(train_state(0))
    )
    restored = checkpoint.restore(folder, wanted)
    assert restored is not None
    assert {leaf.sharding for leaf in jax.tree.leaves(restored.tree)} == {sharding}


def test_a_relative_folder_is_accepted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpoint.save(Path("run/checkpoints"), 1, train_state(1), {})
    restored = checkpoint.restore(Path("run/checkpoints"), abstract(train_state(0)))
    assert restored is not None
    assert_same_bits(restored.tree, train_state(1))


def test_reads_any_checkpoint_by_path(folder):
    by_path = {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree.leaves_with_path(train_state(7))
    }
    restored = checkpoint.restore(folder, None)
    assert restored is not None
    assert "opt/1/inner_states/rest/inner_state/0/count" in restored.tree
    assert_same_bits(restored.tree, by_path)


def test_lists_the_committed_steps_by_number(folder):
    for name in ("100", "9", "20", "damaged-8"):
        (folder / name).mkdir()
        (folder / name / "sha256.json").touch()
    (folder / "11").mkdir()
    assert checkpoint.steps(folder) == [3, 7, 9, 20, 100]


def test_leaves_that_would_share_a_path_are_refused(tmp_path):
    with pytest.raises(ValueError, match="same path"):
        checkpoint.save(tmp_path, 1, {"a/b": jnp.zeros(1), "a": {"b": jnp.ones(1)}}, {})


def test_the_two_newest_are_kept(folder):
    checkpoint.save(folder, 10, train_state(10), {})
    assert sorted(path.name for path in folder.iterdir()) == ["10", "7"]


def test_a_checkpoint_is_never_written_twice(folder):
    with pytest.raises(ValueError, match="checkpoint already"):
        checkpoint.save(folder, 7, train_state(8), {})
    restored = checkpoint.restore(folder, abstract(train_state(0)))
    assert restored is not None
    assert_same_bits(restored.tree, train_state(7))


@pytest.mark.parametrize("made", [False, True])
def test_nothing_saved_gives_none(tmp_path, made):
    if made:
        (tmp_path / "checkpoints").mkdir()
    assert checkpoint.restore(tmp_path / "checkpoints", abstract(train_state(0))) is None


def test_uncommitted_step_is_removed_without_a_word(folder):
    (folder / "7" / "sha256.json").unlink()
    restored = checkpoint.restore(folder, abstract(train_state(0)))
    assert restored is not None
    assert (restored.step, restored.repairs) == (3, ())
    assert [path.name for path in folder.iterdir()] == ["3"]


def test_only_an_uncommitted_step_means_start_at_zero(folder):
    shutil.rmtree(folder / "3")
    (folder / "7" / "sha256.json").unlink()
    assert checkpoint.restore(folder, abstract(train_state(0))) is None
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_to_any_file_of_the_newest_step_falls_back(two_steps, tmp_path, damage):
    names = [name for name in files_of(two_steps / "7") if (damage, name) != ("removed", "sha256.json")]
    assert len(names) > 8
    for number, name in enumerate(names):
        folder = Path(shutil.copytree(two_steps, tmp_path / str(number)))
        DAMAGES[damage](folder / "7" / name)
        restored = checkpoint.restore(folder, abstract(train_state(0)))
        assert restored is not None, name
        assert restored.step == 3, name
        assert_same_bits(restored.tree, train_state(3))
        (repair,) = restored.repairs
        assert repair.startswith("checkpoint 7 is damaged (")
        assert name in repair
        assert repair.endswith("renamed damaged-7, going on from checkpoint 3")
        assert sorted(path.name for path in folder.iterdir()) == ["3", "damaged-7"]


def test_a_bit_anywhere_in_the_manifest_matters(folder):
    manifest = folder / "7" / "sha256.json"
    intact = manifest.read_bytes()
    wanted = abstract(train_state(0))
    rng = random.Random(0)
    for position in rng.sample(range(len(intact)), 200):
        manifest.write_bytes(intact)
        flip_bit(manifest, position, rng.randrange(8))
        with pytest.raises(ConfigError, match=r"^checkpoint 7 in .* is damaged"):
            checkpoint.restore(folder, wanted, step=7)


def test_damage_to_an_older_step_is_found_too(folder):
    DAMAGES["flipped"](folder / "3" / "meta.json")
    restored = checkpoint.restore(folder, abstract(train_state(0)))
    assert restored is not None
    assert restored.step == 7
    assert restored.repairs == (
        "checkpoint 3 is damaged (meta.json does not match sha256.json): renamed damaged-3, going on from checkpoint 7",
    )


def test_the_same_step_damaged_again_replaces_the_damaged_one(folder):
    (folder / "damaged-7").mkdir()
    (folder / "damaged-7" / "old").touch()
    DAMAGES["removed"](folder / "7" / "meta.json")
    checkpoint.restore(folder, abstract(train_state(0)))
    assert "old" not in files_of(folder / "damaged-7")


def test_when_every_step_is_damaged_nothing_is_touched(folder, monkeypatch):
    DAMAGES["flipped"](folder / "3" / "meta.json")
    DAMAGES["removed"](folder / "7" / "state" / "_METADATA")
    (folder / "9").mkdir()
    before = files_of(folder)
    monkeypatch.setattr(checkpoint, "_checkpointer", lambda: pytest.fail("orbax was asked"))
    with pytest.raises(ConfigError) as refused:
        checkpoint.restore(folder, abstract(train_state(0)))
    message = str(refused.value)
    assert "\n" not in message
    assert str(folder) in message
    assert "3 (meta.json does not match sha256.json), 7 (state/_METADATA is missing)" in message
    assert (files_of(folder), (folder / "9").exists()) == (before, True)


def test_reading_only_leaves_the_folder_alone(folder):
    DAMAGES["flipped"](folder / "7" / "meta.json")
    (folder / "9").mkdir()
    restored = checkpoint.restore(folder, abstract(train_state(0)), read_only=True)
    assert restored is not None
    assert restored.step == 3
    assert restored.repairs == (
        "checkpoint 7 is damaged (meta.json does not match sha256.json): passed over, going on from checkpoint 3",
    )
    assert sorted(path.name for path in folder.iterdir()) == ["3", "7", "9"]


def test_a_missing_step_names_the_intact_ones(folder):
    with pytest.raises(ConfigError, match=r"^checkpoint 5 in .* does not exist; intact: 3, 7$"):
        checkpoint.restore(folder, abstract(train_state(0)), step=5)


def test_a_damaged_step_names_the_intact_ones(folder):
    DAMAGES["truncated"](folder / "7" / "meta.json")
    with pytest.raises(
        ConfigError, match=r"^checkpoint 7 in .* is damaged \(meta\.json does not match sha256\.json\); intact: 3$"
    ):
        checkpoint.restore(folder, abstract(train_state(0)), step=7)


def without(tree: dict, name: str) -> dict:
    return {key: value for key, value in tree.items() if key != name}


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (lambda tree: train_state(0, width=6), "opt/1/inner_states/recurrent/inner_state/0/mu/layers/0/theta is "
         r"float32\[2, 5\] in it, float32\[2, 6\] here"),
        (lambda tree: tree | {"step": jnp.float32(0)}, r"step is int32\[\] in it, float32\[\] here"),
        (lambda tree: tree | {"energy_ref": jnp.zeros(3)}, r"it has no energy_ref, here float32\[3\]"),
        (lambda tree: without(tree, "alive"), r"it has alive \(bool\[2\]\), which is not wanted here"),
        (lambda tree: tree | {"best": (tree["best"].count,)}, r"it has no best/0, here int32\[2\]"),
    ],
)  # fmt: skip
def test_another_tree_is_refused_by_the_first_leaf_that_differs(folder, change, difference):
    DAMAGES["removed"](folder / "3" / "meta.json")
    with pytest.raises(ConfigError, match=f"does not fit this run: {difference}$"):
        checkpoint.restore(folder, abstract(change(train_state(0))))
    assert (folder / "3").exists(), "nothing may be renamed by a run that does not fit"


def test_a_full_disk_is_one_line_and_costs_no_older_checkpoint(folder, caplog):
    big = {"noise": jnp.asarray(np.random.default_rng(0).normal(size=(300, 1000)), jnp.float32)}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        with pytest.raises(ConfigError, match=r"^cannot save checkpoint 9 in .*: File too large$"):
            checkpoint.save(folder, 9, big, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caplog.records == [], "orbax printed its tracebacks"
    assert sorted(path.name for path in folder.iterdir()) == ["3", "7"]
    restored = checkpoint.restore(folder, abstract(train_state(0)))
    assert restored is not None
    assert_same_bits(restored.tree, train_state(7))


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "checkpoints").write_text("a file where the folder should be")
    with pytest.raises(ConfigError, match=r"^cannot save checkpoint 1 in .*/checkpoints: "):
        checkpoint.save(tmp_path / "checkpoints", 1, train_state(1), {})


def test_a_kill_between_any_two_file_operations_leaves_whole_steps(folder, tmp_path, monkeypatch):
    """Copies the folder before each operation of a save that also prunes; each copy is what a kill would leave."""
    copies = []

    def copy_before(function):
        def wrapped(*args, **kwargs):
            with monkeypatch.context() as plain:
                for name in ("fsync", "unlink", "rmdir"):
                    plain.setattr(os, name, original[name])
                copies.append(Path(shutil.copytree(folder, tmp_path / f"copy{len(copies)}")))
            return function(*args, **kwargs)

        return wrapped

    @contextmanager
    def manifest_listed_last(path):  # rmtree goes by the file system's order; this is the worst one
        with scandir(path) as entries:
            yield sorted(entries, key=lambda entry: entry.name == "sha256.json")

    original = {name: getattr(os, name) for name in ("fsync", "unlink", "rmdir")}
    scandir = os.scandir
    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", manifest_listed_last)
        for name, function in original.items():
            patched.setattr(os, name, copy_before(function))
        checkpoint.save(folder, 9, train_state(9), {})
    assert len(copies) > 30
    found = []
    for copy in copies:
        restored = checkpoint.restore(copy, abstract(train_state(0)))
        assert restored is not None
        assert restored.repairs == (), "a kill is not damage"
        assert_same_bits(restored.tree, train_state(restored.step))
        found.append(restored.step)
    assert found == sorted(found)
    assert set(found) == {7, 9}


CHILD = """
import sys
from pathlib import Path
from training import checkpoint
from tests.test_training_checkpoint import train_state
folder = Path(sys.argv[1])
checkpoint.save(folder, 1, train_state(1, width=100_000), {})
print("saving", flush=True)
for step in range(2, 10_000):
    checkpoint.save(folder, step, train_state(step, width=100_000), {})
"""


def test_sigkill_in_the_middle_of_saves_leaves_intact_steps(tmp_path):
    rng = random.Random(1)
    left_over = 0
    for number in range(4):
        folder = tmp_path / str(number)
        command = [sys.executable, "-c", CHILD, str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"saving\n"
            time.sleep(rng.uniform(0.1, 0.5))
            child.send_signal(signal.SIGKILL)
        left_over += any(not (path / "sha256.json").exists() for path in folder.iterdir())
        restored = checkpoint.restore(folder, abstract(train_state(0, width=100_000)))
        assert restored is not None
        assert restored.repairs == ()
        assert_same_bits(restored.tree, train_state(restored.step, width=100_000))
    assert left_over > 0, "no kill came in the middle of a save"
