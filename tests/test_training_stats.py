"""Batch norm in training: running averages per seed, in the state, the best, the checkpoint and the evaluation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from tiny import TASK, assert_same_bits, fresh, of_seed, stacked_batch, tiny_config, tiny_split

from data.batching import evaluation_batches
from models.norm import Moments
from training import checkpoint
from training.step import FINE, keep_best, make_eval_step, make_train_step, tensor_names

SPLIT = tiny_split()
BATCH = 8
SEEDS = (7, 0, 3)
META = {"repairs": [], "stopped": []}


def config(seeds=SEEDS, **changes):
    small = {"seeds": seeds, "model.norm": "batch", "model.bn_momentum": 0.5, "model.depth": 1, "model.width": 4}
    return tiny_config("lru", small | {"model.options.state_size": 4, "train.batch_size": BATCH} | changes)


@functools.cache
def trained(seeds):
    """The program, its step and the states before and after two steps, on the host."""
    program, state = fresh(config(seeds))
    step, states = make_train_step(program), [jax.device_get(state)]
    for i in range(2):
        state, metrics = step(state, stacked_batch(SPLIT, seeds, i, BATCH), jnp.asarray(i, jnp.int32))
        assert (np.asarray(metrics.bad) == FINE).all()
        states.append(jax.device_get(state))
    return program, step, states


def on_device(state):
    return jax.tree.map(jnp.asarray, state)


def test_the_step_averages_the_moments_of_each_seeds_batch():
    program, _, states = trained(SEEDS)
    forward = jax.jit(lambda params, *args: nnx.merge(program.graphdef, params)(*args).moments)
    batch = stacked_batch(SPLIT, SEEDS, 0, BATCH)
    np.testing.assert_array_equal(states[0].stats[0].var, np.ones((3, 4)))
    for place in range(3):
        (found,) = forward(of_seed(states[0].params, place), batch["inputs"][place], batch["lengths"][place])
        expected = Moments(0.5 * found.mean, 0.5 + 0.5 * found.var)
        for name in Moments._fields:
            after = getattr(states[1].stats[0], name)[place]
            np.testing.assert_allclose(after, getattr(expected, name), rtol=1e-5, atol=1e-6)
    assert_same_bits(states[1].best.stats, states[0].stats)


def test_a_seed_alone_has_the_averages_it_has_among_others():
    among, alone = trained(SEEDS)[2][-1], trained((0,))[2][-1]
    assert_same_bits(of_seed((among.params, among.stats), 1), of_seed((alone.params, alone.stats), 0))


def test_evaluation_is_that_of_the_running_averages():
    program, _, states = trained(SEEDS)
    (batch,) = evaluation_batches(SPLIT, len(SPLIT))
    run = make_eval_step(program)
    start, later = (run(states[-1].params, state.stats, batch).loss for state in (states[0], states[-1]))
    assert (np.abs(np.asarray(start) - np.asarray(later)) > 1e-3).all()
    # A record's score does not depend on those beside it.
    parts = [run(states[-1].params, states[-1].stats, part) for part in evaluation_batches(SPLIT, 20)]
    np.testing.assert_allclose(sum(np.asarray(part.loss) for part in parts), later, rtol=1e-5)


def test_the_best_keeps_the_averages_it_was_measured_with():
    state = on_device(trained(SEEDS)[2][-1])
    value = jnp.asarray([0.5, np.nan, 0.5])
    best = keep_best(state, jnp.asarray(2), value)
    assert best.step.tolist() == [2, -1, 2]
    for place, source in enumerate((state.stats, state.best.stats, state.stats)):
        assert_same_bits(of_seed(best.stats, place), of_seed(source, place))


def test_averages_that_are_not_finite_are_bad_and_are_not_kept():
    """Loss and gradients are fine: the running average alone is not. The seed keeps its last state, others go on."""
    _, step, states = trained(SEEDS)
    _, clean = step(on_device(states[0]), stacked_batch(SPLIT, SEEDS, 0, BATCH), jnp.asarray(0, jnp.int32))
    spoilt = on_device(states[0])
    (old,) = spoilt.stats
    spoilt = spoilt._replace(stats=(old._replace(var=old.var.at[1, 2].set(jnp.inf)),))
    before = jax.device_get(spoilt)
    after, found = jax.device_get(step(spoilt, stacked_batch(SPLIT, SEEDS, 0, BATCH), jnp.asarray(0, jnp.int32)))
    assert after.alive.tolist() == [True, False, True]
    assert found.bad[1] != FINE
    assert tensor_names(before)[found.bad[1]] == "the running var of blocks/0/norm"
    assert_same_bits(
        of_seed((after.params, after.stats, after.opt), 1), of_seed((before.params, before.stats, before.opt), 1)
    )
    for place in (0, 2):
        assert_same_bits(of_seed(after.stats, place), of_seed(states[1].stats, place))
        assert_same_bits(of_seed(found, place), of_seed(jax.device_get(clean), place))


def test_a_checkpoint_holds_the_averages(tmp_path):
    state = trained(SEEDS)[2][-1]
    checkpoint.save(tmp_path, 2, state, META)
    restored = checkpoint.restore(tmp_path, jax.eval_shape(lambda: on_device(state)))
    assert restored is not None
    assert_same_bits(jax.device_get(restored.tree), state)
    saved = checkpoint.saved_leaves(tmp_path, 2)
    assert saved["stats/0/mean"].shape == saved["best/stats/0/var"].shape == (3, 4)


def test_layer_norm_adds_nothing_to_a_checkpoint():
    """So those of before batch norm was known are read as they are."""
    state = fresh(tiny_config("lru", {"model.depth": 1}))[1]
    assert jax.tree.leaves((state.stats, state.best.stats)) == []
    assert TASK.length == 12
