"""What a step needs is known before it runs, fits or is refused, and shrinks by the keys that say so."""

import dataclasses
import functools
import logging
import re
from types import SimpleNamespace
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, Mesh
from tiny import TASK, fresh_of, stacked_batch, tiny_config, tiny_split

from configs import lra, pixels, probes, shakespeare_char, speech_commands
from data.prepared import smoke_data
from training import loop, memory
from training.config import from_config_dict
from training.errors import ConfigError
from training.mesh import make_mesh, split_seeds
from training.state import make_program

LONG = dataclasses.replace(TASK, length=512)
BATCH = 16
AXES = ("seeds", "batch", "sequence")
SMALL = {"model.width": 16, "model.depth": 4, "model.mixing": "gelu", "model.options": {}, "model.dropout": 0.1}


def program_of(**changes):
    config = tiny_config("mlp", SMALL | {"train.batch_size": BATCH} | changes)
    return fresh_of(config, LONG)


@functools.cache
def compiled(*changes):
    """The compiled step, and state and metrics after one update."""
    program, state = program_of(**dict(changes))
    step = memory.compile_step(program, make_mesh(BATCH, "batch"))
    batch = padded(stacked_batch(tiny_split(), (0,), 0, BATCH))
    return step, *jax.device_get(step.call(state, batch, jnp.asarray(0, jnp.int32)))


def padded(batch):
    return batch | {"inputs": np.pad(batch["inputs"], ((0, 0), (0, 0), (0, LONG.length - TASK.length)))}


def test_the_gradient_in_four_parts_holds_a_quarter_of_the_activations():
    whole, parts = (compiled(("train.accumulate", n))[0].sizes for n in (1, 4))
    assert whole[:4] == parts[:4]
    assert 0.2 < parts.activations / whole.activations < 0.35


def test_rematerialisation_takes_less_memory_and_gives_the_same_update():
    """With dropout and batch norm: keys and moments are those of the blocks that are computed once."""
    keys = ("model.norm", "batch"), ("train.remat", False)
    (kept, state, metrics), (again, other, found) = compiled(*keys), compiled(keys[0], ("train.remat", True))
    assert kept.sizes[:4] == again.sizes[:4]
    assert again.sizes.activations < 0.6 * kept.sizes.activations
    assert found.loss == pytest.approx(metrics.loss, rel=1e-6)
    assert found.grad_norm == pytest.approx(metrics.grad_norm, rel=1e-6)
    # The first moment of Adam is the gradient, scaled.
    trees = (state.opt, state.stats), (other.opt, other.stats)
    for leaf, expected in zip(*map(jax.tree.leaves, trees), strict=True):
        np.testing.assert_allclose(leaf, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


def test_the_table_adds_up_to_the_peak_and_names_every_part():
    step, _, _ = compiled(("train.accumulate", 1))
    program, state = program_of()
    numbers = sum(leaf.size for leaf in jax.tree.leaves(state.params))
    assert step.sizes.parameters == 4 * numbers
    assert 8 * numbers <= step.sizes.optimiser < 9 * numbers  # two moments, some counters
    assert step.sizes.batch == BATCH * (512 + 4 + 4)
    assert sum(memory.state_sizes(state)) == sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    assert step.sizes.peak == sum(step.sizes) > 10e6
    first, *lines = step.table.splitlines()
    assert first.startswith(f"memory of a training step on each device: {step.sizes.peak / 1e6:.1f} MB of ")
    assert [line.split("  ")[1] for line in lines] == list(memory.NAMES)
    assert program.task is LONG


def test_the_program_that_was_measured_is_the_one_that_runs(caplog):
    program, state = program_of(**{"model.depth": 1})
    batch = padded(stacked_batch(tiny_split(), (0,), 0, BATCH))
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        step = memory.compile_step(program, make_mesh(BATCH, "batch"))
        for number in range(3):
            state, _ = step.call(state, batch, jnp.asarray(number, jnp.int32))
    compilations = [line for line in caplog.messages if "XLA compilation of jit(train_step)" in line]
    assert len(compilations) == 1


def test_a_step_that_does_not_fit_is_refused_before_the_data_are_touched(monkeypatch, tmp_path):
    config = tiny_config("lru", {"model.depth": 1})
    monkeypatch.setattr(loop, "load_data", lambda *_: pytest.fail("data were read"))
    monkeypatch.setattr(loop, "compile_step", functools.partial(memory.compile_step, limit=300_000))
    with pytest.raises(ConfigError) as refusal:
        loop.train(config, tmp_path / "run", tmp_path)
    line = str(refusal.value)
    assert "\n" not in line
    assert re.match(r"a training step needs \d{3}\.\d kB on each device ", line)
    assert re.search(r"activations \d+\.\d kB", line)
    assert line.endswith(
        "which has 300.0 kB: set train.accumulate above 1 (smaller micro-batches), or train.remat=True, or "
        "model.options.chunk=2 to 8, or a smaller train.batch_size"
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "sizes", "end"),
    [
        ({"model.norm": "batch"}, (1, 2, 3, 0, 90), "set train.accumulate above 1 and model.norm=layer "),
        ({"train.accumulate": 8, "train.remat": True}, (1, 2, 3, 0, 90), ": a smaller train.batch_size"),
        ({}, (30, 60, 30, 1, 90), ": train fewer seeds together or a smaller model"),
    ],
)
def test_only_what_helps_is_proposed(changes, sizes, end):
    config = tiny_config("mlp", SMALL | {"train.batch_size": 8} | changes)
    line = memory.refusal(config, memory.Sizes(*(10**6 * size for size in sizes)), 50 * 10**6)
    assert end in line
    assert "chunk" not in line
    assert f"parameters {sizes[0]}.0 MB" in line
    assert "batch 0 B" not in line
    assert ("remat" in line) == ("norm" in line)


@pytest.mark.parametrize(
    ("family", "argument"),
    [
        (lra, "task=listops,layer=mlp,smoke"),
        (lra, "task=retrieval,layer=mlp,smoke"),
        (pixels, "task=psmnist,layer=mlp,smoke"),
        (speech_commands, "task=sc10,layer=mlp,smoke"),
        (probes, "task=s3,layer=mlp,smoke"),
        (shakespeare_char, "model=small_mlp,smoke"),
    ],
)
def test_what_is_compiled_for_is_what_the_data_then_are(family, argument, tmp_path):
    """Labels of sequences, of pairs, of steps, of text; ids and samples: shapes are known before a record is read."""
    config = from_config_dict(family.get_config(f"{argument},seeds=0:2").to_dict())
    spec, affine = loop.load_task(config, tmp_path)
    data = smoke_data(config.data.request)
    assert spec == data.spec
    assert (affine is None) == (data.affine is None)
    batch = stacked_batch(data.splits["train"], (0, 1), 0, config.train.batch_size)
    found = memory.abstract_batch(make_program(config, spec, affine), cast(Mesh, AbstractMesh((1, 1, 1), AXES)))
    assert {k: (v.shape, v.dtype) for k, v in found.items()} == {k: (v.shape, v.dtype) for k, v in batch.items()}


def test_sizes_are_those_of_one_of_many_devices():
    mesh = cast(Mesh, AbstractMesh((1, 4, 1), AXES))
    program, _ = program_of()
    assert memory._bytes(memory.abstract_batch(program, mesh)) == BATCH // 4 * 520
    start, whole = (memory.abstract_start(program, sharding) for sharding in (split_seeds(mesh), None))
    assert memory.state_sizes(start) == memory.state_sizes(whole)


def test_the_limit_of_a_device_and_of_this_machine(tmp_path):
    for stats, bytes_limit in (({"bytes_limit": 80}, 80), ({}, None), (None, None)):
        device = SimpleNamespace(platform="gpu", memory_stats=lambda stats=stats: stats)
        assert memory.available(cast(jax.Device, device)) == bytes_limit
    here = memory.available(jax.local_devices()[0])
    assert here is None or here > 10e6
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable:   70 kB\n")
    assert list(memory._meminfo(tmp_path / "meminfo")) == [70 * 1024]
    groups, root = tmp_path / "cgroup", tmp_path / "fs"
    groups.write_text("5:cpu,cpuacct:/\n4:memory:/a/b\n0::/c\n")
    for place, limit in (("memory/a/b/memory.limit_in_bytes", "50"), ("c/memory.max", "max"), ("memory.max", "60")):
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text(limit + "\n")
    assert sorted(memory._group_limits(groups, root)) == [50, 60]
    assert list(memory._group_limits(tmp_path / "none", root)) == []
