"""The timing behind the benchmark tables: intervals, order of runs, the allocator switch, the table itself."""

import ctypes
import platform
import re
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from benchmarks import layers, textbook, timing
from lru import LRU, LRUConfig


def test_ratio_is_paired_within_rounds():
    load = np.linspace(1, 30, 11)  # a machine that gets busier by the round disturbs both alike
    found = timing.ratio(3 * load, load)
    assert (found.median, found.low, found.high) == (3, 3, 3)
    assert str(found) == "3.00 [3.00, 3.00]"


@pytest.mark.parametrize(("rounds", "rank"), [(6, 1), (11, 2), (21, 6)])
def test_interval_takes_the_order_statistics_of_the_sign_test(rounds, rank):
    # Ranks of Conover, Practical Nonparametric Statistics, for a median at 95 %.
    found = timing.ratio(np.random.default_rng(0).permutation(rounds) + 1.0, np.ones(rounds))
    assert (found.low, found.median, found.high) == (rank, (rounds + 1) / 2, rounds + 1 - rank)


def test_interval_covers_the_median_in_95_percent_of_skewed_samples():
    samples = np.random.default_rng(0).exponential(size=(4000, 15))
    found = [timing.ratio(sample, np.ones(15)) for sample in samples]
    covered = np.mean([r.low <= np.log(2) <= r.high for r in found])
    assert 0.95 <= covered <= 0.98  # exactly 0.965 by the binomial law


@pytest.mark.parametrize(("first", "second"), [(5, 5), (11, 12)])
def test_too_few_or_unpaired_rounds_are_refused(first, second):
    with pytest.raises(ValueError, match=f"{first} and {second}"):
        timing.ratio(np.ones(first), np.ones(second))


def test_interleave_begins_each_round_with_another_program_and_times_it():
    calls = []
    naps = {"a": 0.0, "b": 0.02, "c": 0.0}

    def program(name):
        return timing.Program(name, lambda: (calls.append(name), time.sleep(naps[name])), print, 0.0, 0, 0)

    programs = [program(name) for name in naps]
    timing.interleave(programs, 4)
    assert "".join(calls) == "abc" + "abc" + "bca" + "cab" + "abc"
    assert [len(p.wall) for p in programs] == [len(p.cpu) for p in programs] == [4, 4, 4]
    assert min(programs[1].wall) >= 0.02 > max(programs[1].cpu)


def test_compile_program_runs_the_function_and_reports_its_memory_and_size():
    size = 300

    def function(x):
        return jnp.sin(x @ x) @ x

    x = jnp.eye(size)
    program = timing.compile_program("p", function, x)
    np.testing.assert_allclose(program.run(), np.sin(1) * np.eye(size), atol=1e-6)
    assert program.temp_bytes >= 4 * size**2  # sin(x @ x) must lie somewhere
    assert 3 <= program.hlo_ops <= 40
    assert program.compile_seconds > 0


def test_machine_is_described_by_what_a_reader_needs():
    words = timing.describe_machine()
    assert f"jax {jax.__version__} on cpu" in words
    assert re.search(r"\d+ cores.*20\d\d-\d\d-\d\d", words)
    assert 1e8 < timing.matmul_rate(size=128, repeats=3) < 1e14


def test_allocator_is_set_through_mallopt(monkeypatch):
    seen = []

    class Libc:
        @staticmethod
        def mallopt(option, value):
            seen.append((option, value))
            return 1

    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Libc)
    assert "MMAP_MAX=0" in timing.tune_allocator()
    # The numbers of malloc.h: M_MMAP_MAX -4, M_TRIM_THRESHOLD -1, M_TOP_PAD -2, M_ARENA_MAX -8.
    assert sorted(seen) == [(-8, 1), (-4, 0), (-2, 2**28), (-1, 2**31 - 1)]
    monkeypatch.setattr(Libc, "mallopt", staticmethod(lambda option, value: 0))
    with pytest.raises(RuntimeError, match="refused"):
        timing.tune_allocator()
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert timing.tune_allocator().startswith("default")


def test_a_published_form_and_ours_are_compiled_on_the_same_values():
    layer = LRU(LRUConfig(width=3, state_size=4), rngs=nnx.Rngs(0))
    published, ours = layers.compile_pair("LRU tiny", layer, textbook.lru, (2, 5, 3))
    assert (published.name, ours.name) == ("published form", "linrec")
    with pytest.raises(AssertionError, match="LRU tiny"):
        layers.compile_pair("LRU tiny", layer, lambda params, u: 1.01 * textbook.lru(params, u), (2, 5, 3))


def test_the_flops_of_a_layer_are_those_of_its_projections():
    """Forward: [Re | Im] of N states from D inputs and back, 2 operations a weight; backward twice that."""
    shape = layers.Shape(batch=2, length=5, width=3, modes=4)
    weights = 2 * (3 * 2 * 4)
    assert shape.flops == 3 * 2 * weights * 2 * 5
