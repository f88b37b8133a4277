"""A run leaves its compiled programs, and a trace of the steps that were asked for."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from commands import ROOT, assert_refused, call
from tiny import tiny_config

from training.compiled import OPTIONS, compile_cache
from training.config import flat
from training.errors import ConfigError
from training.profile import Profile
from training.workdir import MAY_DIFFER

MLP = "--config=configs/lra.py:layer=mlp,depth=1,smoke"


PROCESS = """
import sys, jax, jax.numpy as jnp
from training.compiled import compile_cache
events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event.rsplit("/", 1)[-1]))
with compile_cache(sys.argv[1]):
    jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((3, 3)))
print(events.count("cache_misses"), events.count("cache_hits"))
"""


def test_a_second_process_compiles_nothing(tmp_path):
    counted = []
    for _ in range(2):
        command = [sys.executable, "-c", PROCESS, str(tmp_path / "cache")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        counted.append(tuple(map(int, done.stdout.split())))
    (misses, hits), again = counted
    assert misses > 0
    assert again == (0, misses + hits)


def test_the_cache_is_counted_and_put_back(tmp_path):
    events = []

    def listen(event: str, **_: object) -> None:
        events.append(event.rsplit("/", 1)[-1])

    jax.monitoring.register_event_listener(listen)
    before = [getattr(jax.config, option) for option in OPTIONS]
    for _ in range(2):
        with compile_cache(str(tmp_path / "cache")):
            jax.jit(lambda x: jnp.cos(x) + 17.5)(jnp.ones(3)).block_until_ready()
        assert [getattr(jax.config, option) for option in OPTIONS] == before
    jax.monitoring.unregister_event_listener(listen)
    counted = [event for event in events if event in ("cache_hits", "cache_misses")]
    assert "cache_misses" in counted
    assert counted[-1] == "cache_hits"
    files = set((tmp_path / "cache").iterdir())
    with compile_cache(""):
        jax.jit(lambda x: jnp.cos(x) + 18.5)(jnp.ones(3)).block_until_ready()
    assert set((tmp_path / "cache").iterdir()) == files


@pytest.mark.parametrize(("begins", "ends", "traced"), [(1, 4, [2, 3]), (3, 4, [3]), (4, 5, []), (1, 2, [2])])
def test_the_steps_between_first_and_last_are_traced(begins, ends, traced, monkeypatch, tmp_path):
    """Also by a run that begins, or stops, between them."""
    calls, tracing = [], []
    monkeypatch.setattr(jax.profiler, "start_trace", lambda folder: tracing.append(folder))
    monkeypatch.setattr(jax.profiler, "stop_trace", lambda: tracing.pop())
    profile = Profile(tmp_path, (2, 3))
    for step in range(begins, ends + 1):
        profile.before(step)
        calls += [step] * len(tracing)
        profile.after(step, jnp.ones(()))
    profile.close()
    assert calls == traced
    assert tracing == []


@pytest.mark.parametrize("steps", [(3, 2), (0, 2), (2, 13), (2,), (1, 2, 3)])
def test_a_trace_of_steps_that_are_not_there_is_refused(steps):
    message = r"train: profile=\(.*\) must be \(\) or \(first, last\) with 1 <= first <= last <= 12"
    with pytest.raises(ConfigError, match=message):
        tiny_config("rotrnn", {"train.profile": steps})


def test_what_changes_no_number_may_differ_on_resume():
    assert flat(tiny_config("rotrnn")).keys() > MAY_DIFFER
    assert {"compile_cache", "mirrors", "train.profile"} < MAY_DIFFER
    assert "train.remat" not in MAY_DIFFER


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    ended = call("train.py", MLP, f"--workdir={tmp_path / 'run'}", f"--config.compile_cache={tmp_path / 'file' / 'c'}")
    assert_refused(ended, f"config.compile_cache: cannot write to {tmp_path / 'file' / 'c'}: Not a directory")
    assert not (tmp_path / "run").exists()
