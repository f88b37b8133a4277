"""One program over all seeds: each gets what it would get alone, and a broken one disturbs nobody."""

import dataclasses
import functools
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from tiny import TASK, assert_same_bits, fresh, fresh_of, of_seed, stacked_batch, tiny_config, tiny_split

from data.batching import evaluation_batches
from data.spec import NO_LABEL, TaskKind
from training.errors import ConfigError
from training.evaluate import binomial_interval, evaluate
from training.loss import score_labels
from training.mesh import make_mesh
from training.optim import path_names
from training.rng import Stream, stream_key
from training.step import (
    FINE,
    keep_best,
    make_eval_step,
    make_train_step,
    tensor_names,
)

SPLIT = tiny_split()
BATCH = 8
SEEDS = (7, 0, 3)
STEPS = 5


def small_config(seeds, layer="lru", changes=None):
    return tiny_config(layer, {"seeds": seeds, "optim.lr": 0.03, "train.batch_size": BATCH} | (changes or {}))


@functools.cache
def dropping(layer, seeds):
    """A program with dropout and its step."""
    program = fresh(small_config(seeds, layer, {"model.dropout": 0.2}))[0]
    return program, make_train_step(program)


@functools.cache
def plain():
    """A program of one seed without dropout, its step and its initial state on the host."""
    program, state = fresh(small_config((0,), changes={"train.steps": 40}))
    return program, make_train_step(program), jax.device_get(state)


def run(program, train_step, *, steps=STEPS, poison=None):
    """Trains `steps` steps. Returns the state before the first and after each, and all metrics.

    poison: (place, step): before that step, one parameter of that seed becomes infinite.
    """
    seeds = program.config.seeds
    state = fresh(program.config)[1]
    states, metrics = [jax.device_get(state)], []
    for step in range(steps):
        if poison is not None and poison[1] == step:
            state.params["head"]["bias"] = state.params["head"]["bias"].at[poison[0], 0].set(jnp.inf)
        state, found = train_step(state, stacked_batch(SPLIT, seeds, step, BATCH), jnp.asarray(step, jnp.int32))
        states.append(jax.device_get(state))
        metrics.append(jax.device_get(found))
    return states, metrics


@functools.cache
def trained(layer, seeds):
    return run(*dropping(layer, seeds))


@pytest.fixture(scope="module")
def three():
    return trained("lru", SEEDS)


def first_step(train_step, state, batch, step=0):
    """Metrics of one step from a state on the host, which stays as it is."""
    return jax.device_get(train_step(jax.tree.map(jnp.asarray, state), batch, jnp.asarray(step, jnp.int32))[1])


def test_a_seed_alone_is_the_same_seed_among_others():
    place = 2
    states, metrics = trained("lru", SEEDS)
    alone, alone_metrics = trained("lru", (SEEDS[place],))
    for state, state_alone in zip(states, alone, strict=True):
        for part in ("params", "stats", "opt", "alive"):
            assert_same_bits(of_seed(getattr(state, part), place), of_seed(getattr(state_alone, part), 0))
    for found, found_alone in zip(metrics, alone_metrics, strict=True):
        assert_same_bits(of_seed(found, place), of_seed(found_alone, 0))


def test_the_old_state_is_given_away():
    program, train_step = dropping("lru", (SEEDS[0],))
    state = fresh(program.config)[1]
    train_step(state, stacked_batch(SPLIT, (0,), 0, BATCH), jnp.asarray(0, jnp.int32))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves((state.params, state.opt)))


def test_seeds_differ_in_init_data_and_dropout(three):
    kernel = three[0][0].params["head"]["kernel"]
    assert len({kernel[i].tobytes() for i in range(3)}) == 3
    batch = stacked_batch(SPLIT, SEEDS, 0, BATCH)
    assert len({batch["inputs"][i].tobytes() for i in range(3)}) == 3
    keys = [stream_key(seed, stream, step) for seed in (7, 0) for stream in Stream for step in (0, 1)]
    assert len({jax.random.key_data(key).tobytes() for key in keys}) == len(keys) == 4 * len(Stream)


def test_dropout_is_drawn_anew_for_each_seed_and_step(three):
    """Three seeds made alike in parameters and data differ by dropout alone, and so do two steps."""
    program, train_step = dropping("lru", SEEDS)
    alike = jax.tree.map(lambda leaf: np.stack([leaf[0]] * 3), three[0][0])
    batch = stacked_batch(SPLIT, (7, 7, 7), 0, BATCH)
    losses = [first_step(train_step, alike, batch, step).loss for step in (1, 2)]
    assert len(np.unique(losses)) == 6
    weighted = {key: value[0] for key, value in batch.items()} | {"weight": np.ones(BATCH, np.float32)}
    assert len(np.unique(make_eval_step(program)(alike.params, alike.stats, weighted).loss)) == 1


def test_training_learns():
    program, train_step, _ = plain()
    _, metrics = run(program, train_step, steps=40)
    assert metrics[0].loss[0] > 0.9
    assert metrics[-1].loss[0] < 0.3
    assert all((found.bad == FINE).all() for found in metrics)


def test_a_poisoned_seed_keeps_its_last_finite_state_and_disturbs_nobody(three):
    clean, clean_metrics = three
    program, train_step = dropping("lru", SEEDS)
    states, metrics = run(program, train_step, poison=(1, 2))
    assert [state.alive.tolist() for state in states] == [[True] * 3] * 3 + [[True, False, True]] * 3
    for place in (0, 2):
        for state, undisturbed in zip(states, clean, strict=True):
            assert_same_bits(of_seed(state, place), of_seed(undisturbed, place))
        for found, undisturbed in zip(metrics, clean_metrics, strict=True):
            assert_same_bits(of_seed(found, place), of_seed(undisturbed, place))
    for later in (3, 4, 5):
        assert_same_bits(of_seed(states[later].opt, 1), of_seed(clean[2].opt, 1))
        kept = of_seed(states[later].params, 1)
        assert kept["head"]["bias"][0] == np.inf  # what was planted; nothing is computed from it
        kept["head"]["bias"][0] = clean[2].params["head"]["bias"][1, 0]
        assert_same_bits(kept, of_seed(clean[2].params, 1))
    assert tensor_names(states[0])[metrics[2].bad[1]] == "the loss"
    # Afterwards the seed is skipped: nothing new is found, and nothing is measured.
    assert [metrics[later].bad[1] for later in (3, 4)] == [FINE, FINE]
    assert np.isnan([metrics[later].loss[1] for later in (3, 4)]).all()


def test_a_rate_that_is_too_large_leaves_the_last_finite_parameters():
    changes = {"optim.lr": 1e38, "optim.warmup_steps": 0, "model.depth": 1}
    program, _ = fresh(small_config((0,), changes=changes))
    states, metrics = run(program, make_train_step(program), steps=3)
    bad = [int(found.bad[0]) for found in metrics]
    broken = next(step for step, index in enumerate(bad) if index != FINE)
    assert all(np.isfinite(leaf).all() for state in states for leaf in jax.tree.leaves((state.params, state.opt)))
    assert_same_bits(states[broken + 1].params, states[broken].params)
    assert not states[broken + 1].alive[0]
    name = tensor_names(states[0])[bad[broken]]
    assert name == "the loss" or name.startswith(("the gradient of ", "the update of "))


def test_tensor_names_follow_the_order_of_what_is_checked():
    program, _, state = plain()
    paths = ["/".join(path_names(path)) for path, _ in jax.tree.leaves_with_path(program.abstract_params)]
    names = tensor_names(state)
    assert names[0] == "the loss"
    assert names[1 : len(paths) + 1] == [f"the gradient of {path}" for path in paths]
    assert names[len(paths) + 1 :] == [f"the update of {path}" for path in paths]


@pytest.mark.parametrize("path", [("encoder", "dense", "kernel"), ("head", "bias")])
def test_the_first_tensor_that_is_not_finite_is_found(path):
    """Loss and gradients are fine, the first moment of one parameter is not: its update is named."""
    _, train_step, state = plain()

    def spoil(where, leaf):
        names = path_names(where)
        return np.full_like(leaf, np.nan) if names[-len(path) :] == path and "mu" in names else leaf

    spoilt = state._replace(opt=jax.tree.map_with_path(spoil, state.opt))
    found = first_step(train_step, spoilt, stacked_batch(SPLIT, (0,), 0, BATCH))
    assert tensor_names(state)[found.bad[0]] == f"the update of {'/'.join(path)}"


def reference_scores(logits, labels, weight):
    """Sums of -log softmax and of hits in float64."""
    logits = logits.astype(np.float64)
    largest = logits.max(1, keepdims=True)
    log_total = np.log(np.exp(logits - largest).sum(1)) + largest[:, 0]
    nll = log_total - logits[np.arange(len(labels)), labels]
    return (weight * nll).sum(), (weight * (logits.argmax(1) == labels)).sum()


def test_loss_is_that_of_numpy():
    draw = np.random.default_rng(0)
    logits = draw.normal(size=(9, 4)).astype(np.float32) * 10
    labels, weight = draw.integers(0, 4, 9, np.int32), draw.integers(0, 2, 9).astype(np.float32)
    found = score_labels(jnp.asarray(logits), jnp.asarray(labels), jnp.asarray(weight))
    loss, correct = reference_scores(logits, labels, weight)
    assert found.loss == pytest.approx(loss, rel=1e-5)
    assert (found.correct, found.count) == (correct, weight.sum())
    all_of_them = score_labels(jnp.asarray(logits), jnp.asarray(labels), None)
    assert all_of_them.loss == pytest.approx(reference_scores(logits, labels, np.ones(9))[0], rel=1e-5)
    assert all_of_them.count == 9


def test_steps_without_a_label_count_for_nothing():
    """Sums of labelled steps are those of as many records with one label; they stand at their step."""
    draw = np.random.default_rng(0)
    logits, weight = draw.normal(size=(3, 5, 4)).astype(np.float32), np.array([1, 0, 1], np.float32)
    labels = draw.integers(0, 4, (3, 5)).astype(np.int32)
    labels[0, 2] = labels[2, :2] = NO_LABEL
    found = score_labels(jnp.asarray(logits), jnp.asarray(labels), jnp.asarray(weight))
    labelled = (labels != NO_LABEL) & (weight[:, None] > 0)
    loss, correct = reference_scores(logits[labelled], labels[labelled], np.ones(labelled.sum()))
    assert found.loss.sum() == pytest.approx(loss, rel=1e-5)
    assert found.correct.sum() == correct
    for t in range(5):
        at = labelled[:, t]
        loss_t, correct_t = reference_scores(logits[at, t], labels[at, t], np.ones(at.sum())) if at.any() else (0, 0)
        assert (found.loss[t], found.correct[t]) == (pytest.approx(loss_t, rel=1e-5), correct_t)
    np.testing.assert_array_equal(found.count, labelled.sum(0))


def test_metrics_of_a_step_are_those_before_it():
    """Loss, accuracy and gradient norm of the first step, found again from the initial parameters."""
    program, train_step, state = plain()
    batch = stacked_batch(SPLIT, (0,), 0, BATCH)
    found = first_step(train_step, state, batch)
    params = jax.tree.map(lambda leaf: leaf[0], state.params)

    def loss(params):
        logits = nnx.merge(program.graphdef, params)(batch["inputs"][0], batch["lengths"][0]).logits
        return score_labels(logits, batch["labels"][0], None).loss / BATCH, logits

    (value, logits), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    assert found.loss[0] == pytest.approx(float(value), rel=1e-5)
    assert found.accuracy[0] == np.mean(np.argmax(logits, 1) == batch["labels"][0])
    squares = sum(np.square(np.asarray(leaf, np.float64)).sum() for leaf in jax.tree.leaves(gradients))
    assert found.grad_norm[0] == pytest.approx(np.sqrt(squares), rel=1e-5)
    assert found.lr[0] == pytest.approx(0.03 / 2)


@pytest.mark.parametrize("parts", [2, 4])
def test_the_gradient_of_a_batch_can_be_taken_in_parts(parts):
    """Records of one to twelve labelled steps: a part with few labels must weigh as little as in the whole batch."""
    task = dataclasses.replace(TASK, kind=TaskKind.LANGUAGE, input_width=6, classes=6)
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 6, (1, BATCH, 12)).astype(np.int32)
    lengths = np.array([[1, 12, 2, 3, 12, 12, 5, 4]], np.int32)
    labels[np.arange(12) >= lengths[..., None]] = NO_LABEL
    batch = {"inputs": draw.integers(0, 6, (1, BATCH, 12)).astype(np.int32), "lengths": lengths, "labels": labels}

    def step(parts):
        sublayers = {"model.backbone": "language", "model.sublayers": ("mru", "mlp"), "model.options.sublayers": 4}
        config = small_config((0,), "mru", sublayers | {"train.accumulate": parts})
        program, state = fresh_of(config, task)
        return make_train_step(program)(state, batch, jnp.asarray(0, jnp.int32))

    (state, found), (whole, expected) = step(parts), step(1)
    for name in ("loss", "accuracy", "grad_norm"):
        assert getattr(found, name)[0] == pytest.approx(float(getattr(expected, name)[0]), rel=1e-5), name
    moments, wanted = (optax.tree.get_all_with_path(s.opt, "mu") for s in (state, whole))
    assert len(moments) == len(wanted) > 0
    for (_, leaf), (_, other) in zip(moments, wanted, strict=True):
        for got, want in zip(jax.tree.leaves(leaf), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-7)


def test_evaluation_is_exact_over_the_whole_split(three):
    """41 records in batches of 8: fillers count for nothing, the mean is over records."""
    eval_step, (params, stats, *_) = make_eval_step(dropping("lru", SEEDS)[0]), three[0][-1]
    split, mesh = tiny_split(41, seed=1), make_mesh(8, "batch")
    found = evaluate(eval_step, params, stats, split, 8, mesh)
    (whole,) = evaluation_batches(split, 41)
    sums = jax.device_get(eval_step(params, stats, whole))
    np.testing.assert_allclose(found["loss"], sums.loss / 41, rtol=1e-5)
    np.testing.assert_array_equal(found["accuracy"], sums.correct.astype(np.float64) / 41)
    assert found["loss"].dtype == np.float64


def test_interval_of_an_accuracy():
    # Wilson's interval of 18 in 20, as R's prop.test(18, 20, correct = FALSE) gives it.
    assert binomial_interval(0.9, 20) == pytest.approx((0.6989664, 0.9721335), abs=1e-6)
    low, high = binomial_interval(0.0, 100)
    assert low == pytest.approx(0, abs=1e-12)
    assert 0.03 < high < 0.04


def test_best_is_kept_per_seed_and_only_if_strictly_better(three):
    state = jax.tree.map(jnp.asarray, three[0][1])

    def evaluated(state, step, values):
        return state._replace(best=keep_best(state, jnp.asarray(step), jnp.asarray(values, jnp.float32)))

    first = evaluated(state, 10, [0.5, 0.0, np.nan])
    assert first.best.step.tolist() == [10, 10, -1]
    moved = first._replace(params=jax.tree.map(lambda leaf: leaf + 1, first.params))
    second = evaluated(moved, 20, [0.5, 0.25, 0.1])  # equal, better, first finite one
    assert second.best.step.tolist() == [10, 20, 20]
    assert second.best.value.tolist() == [0.5, 0.25, pytest.approx(0.1)]
    for place, source in enumerate((state, moved, moved)):
        assert_same_bits(of_seed(second.best.params, place), of_seed(source.params, place))
    dead = evaluated(second._replace(alive=jnp.asarray([False, True, True])), 30, [0.9, np.inf, 0.05])
    assert_same_bits(dead.best, second.best)


def test_a_batch_that_does_not_divide_among_the_devices_is_refused(monkeypatch):
    assert make_mesh(8, "batch_size").devices.shape == (1, 1, 1)
    monkeypatch.setattr(jax, "devices", lambda: [None] * 3)
    with pytest.raises(
        ConfigError, match=r"^train.batch_size=8 does not divide among 3 devices: choose a multiple of 3$"
    ):
        make_mesh(8, "train.batch_size")


ON_DEVICES = """
import sys
import jax, numpy as np
import test_training_step as here
from training.mesh import make_mesh, place, place_batch, share_of, split_seeds
assert len(jax.devices()) == 4
mesh = make_mesh(here.BATCH, "batch")
program, step = here.dropping("lru", here.SEEDS)
state = here.fresh(program.config)[1]
state, share = place(state, split_seeds(mesh)), share_of(mesh, len(here.SEEDS), here.BATCH)
for i in range(here.STEPS):
    batch = here.stacked_batch(here.SPLIT, here.SEEDS, i, here.BATCH)
    batch = place_batch(mesh, batch, share, seeds=True)
    state, metrics = step(state, batch, jax.numpy.asarray(i, jax.numpy.int32))
print(batch["inputs"].addressable_shards[0].data.shape, len(state.params["head"]["bias"].sharding.device_set))
np.savez(sys.argv[1], *[np.asarray(leaf) for leaf in jax.tree.leaves((state.params, metrics))])
"""


def test_four_devices_give_what_one_gives(three, tmp_path):
    tests = pathlib.Path(__file__).parent
    environment = os.environ | {
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4",
        "PYTHONPATH": f"{tests}:{tests.parent}",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    command = [sys.executable, "-c", ON_DEVICES, str(tmp_path / "leaves.npz")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"(3, {BATCH // 4}, {TASK.length}) 4"
    states, metrics = three
    with np.load(tmp_path / "leaves.npz") as arrays:
        four = [arrays[name] for name in arrays.files]
    for leaf, expected in zip(four, jax.tree.leaves((states[-1].params, metrics[-1])), strict=True):
        np.testing.assert_allclose(leaf, expected, rtol=2e-4, atol=2e-6)
