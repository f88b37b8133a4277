"""A run leaves its compiled programs, and a trace of the steps that were asked for."""

import jax
import jax.numpy as jnp
import pytest
from commands import assert_refused, call, run
from tiny import tiny_config

from training.compiled import OPTIONS, compile_cache
from training.config import flat
from training.errors import ConfigError
from training.profile import Profile
from training.workdir import MAY_DIFFER, read_config, refuse_difference

MLP = "--config=configs/lra.py:layer=mlp,depth=1,smoke"
SHORT = ["--config.train.steps=2", "--config.train.eval_every=2", "--config.optim.warmup_steps=1"]


def test_a_second_process_compiles_nothing_and_a_trace_is_written(tmp_path):
    cache, first, second = (tmp_path / name for name in ("cache", "first", "second"))
    command = ["train.py", MLP, *SHORT, f"--config.compile_cache={cache}"]
    ended = run(*command, f"--workdir={first}", "--config.train.profile=(2,2)")
    assert ended.code == 0, ended.err
    compiled = {path.name for path in cache.glob("*-cache")}
    assert any(name.startswith("jit_train_step") for name in compiled)
    assert run(*command, f"--workdir={second}").code == 0
    assert {path.name for path in cache.glob("*-cache")} == compiled
    assert [path for path in (first / "profile").rglob("*") if path.suffix == ".pb"]
    assert not (second / "profile").exists()
    # Both keys may change: they change no number.
    refuse_difference(first, read_config(second)[0])


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


def test_what_may_differ_are_keys_of_a_config():
    assert flat(tiny_config("rotrnn")).keys() > MAY_DIFFER


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    ended = call("train.py", MLP, f"--workdir={tmp_path / 'run'}", f"--config.compile_cache={tmp_path / 'file' / 'c'}")
    assert_refused(ended, f"config.compile_cache: cannot write to {tmp_path / 'file' / 'c'}: Not a directory")
    assert not (tmp_path / "run").exists()
