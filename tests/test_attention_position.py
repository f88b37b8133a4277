"""Position codes on queries and keys."""

import jax.numpy as jnp
import numpy as np
import pytest
from attention_loop import orthogonal, turned_product, xpos_512_product

from attention.config import MRUVariant
from attention.position import mru_matrices, rope, rotate_pairs, turn_blocks, turned_by_rope, xpos_512

SIZE = 64


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def products(q, k):
    """(T, S) products of all queries and keys of one head."""
    return np.asarray(q)[0, :, 0] @ np.asarray(k)[0, :, 0].T


def repeated(seed, positions):
    """The same vector at every position, (1, T, 1, SIZE) float32."""
    return jnp.broadcast_to(jnp.asarray(random(SIZE, seed=seed), jnp.float32), (1, len(positions), 1, SIZE))


@pytest.mark.parametrize("code", ["rope", "xpos_512"])
def test_products_depend_on_the_distance_only(code):
    place = np.arange(256)
    q, k = repeated(1, place), repeated(2, place)
    position = jnp.asarray(place)[None]
    q, k = (rope(q, position), rope(k, position)) if code == "rope" else xpos_512(q, k, position)
    found = products(q, k)
    by_distance = [np.diagonal(found, -distance) for distance in place[:-1]]
    largest = np.abs(found).max()
    assert max(np.ptp(line) for line in by_distance) < 2e-5 * largest
    # And they do depend on it.
    assert np.ptp(found[:, 0]) > (0.5 if code == "rope" else 0.02) * largest


def test_rope_against_the_formula(x64):
    place = np.array([0, 1, 5, 300])
    q, k = random(1, 4, 2, 6, seed=1), random(1, 4, 2, 6, seed=2)
    position = jnp.asarray(place)[None]
    found = np.einsum("bthd,bshd->hts", rope(jnp.asarray(q), position), rope(jnp.asarray(k), position))
    expected = [[turned_product(q[0, t], k[0, s], place[t] - place[s]) for s in range(4)] for t in range(4)]
    np.testing.assert_allclose(np.moveaxis(found, 0, -1), expected, atol=1e-12)


def test_the_first_pair_turns_by_one_radian_a_token():
    x = jnp.zeros((1, 256, 1, SIZE)).at[..., 0].set(1)
    turned = np.asarray(rope(x, jnp.arange(256)[None]))[0, :, 0]
    angle = np.unwrap(np.arctan2(turned[:, 1], turned[:, 0]))
    np.testing.assert_allclose(angle, np.arange(256), atol=1e-4)


def test_xpos_512_against_the_formula(x64):
    place = np.array([0, 1, 5, 300])
    q, k = random(1, 4, 2, 6, seed=1), random(1, 4, 2, 6, seed=2)
    found = np.einsum("bthd,bshd->hts", *xpos_512(jnp.asarray(q), jnp.asarray(k), jnp.asarray(place)[None]))
    expected = [[xpos_512_product(q[0, t], k[0, s], place[t] - place[s]) for s in range(4)] for t in range(4)]
    np.testing.assert_allclose(np.moveaxis(found, 0, -1), expected, atol=1e-12)


def test_xpos_512_is_nearly_blind_to_positions(x64):
    """Heads of 64: the fastest pair turns by 0.37 radians over 255 tokens; factors run from 0.965 to 1.038."""
    ones = jnp.zeros((1, 513, 1, SIZE)).at[..., 0::2].set(1)
    q, k = (np.asarray(x)[0, :, 0] for x in xpos_512(ones, ones, jnp.arange(513)[None]))
    angle = np.arctan2(q[255, 1::2], q[255, 0::2])
    assert angle.max() == angle[0] == pytest.approx(0.3735, abs=1e-4)
    growth = np.hypot(q[512, 0::2], q[512, 1::2])
    np.testing.assert_allclose(growth[[0, -1]], [0.965, 1.038], atol=5e-4)
    np.testing.assert_allclose(np.hypot(k[512, 0::2], k[512, 1::2]), 1 / growth, rtol=1e-12)


@pytest.mark.parametrize("variant", MRUVariant)
def test_mru_matrices_against_the_formula(x64, variant):
    order, blocks = 4, 2
    e = random(2, 3, 1, blocks, order * (order - 1) // 2)
    found = mru_matrices(jnp.asarray(e), order, variant)
    turned = turned_by_rope(found)
    for i, t in np.ndindex(2, 3):
        expected = orthogonal(e[i, t, 0], order, variant, "identity", blocks * order)
        np.testing.assert_allclose(found[i, t, 0], expected, atol=1e-12)
        expected = orthogonal(e[i, t, 0], order, variant, "rope", blocks * order)
        np.testing.assert_allclose(turned[i, t, 0], expected, atol=1e-12)
    defect = np.swapaxes(found, -1, -2) @ found - np.eye(order)
    assert np.abs(defect).max() < 1e-12


@pytest.mark.parametrize("variant", MRUVariant)
def test_mru_matrices_start_at_the_identity(variant):
    found = mru_matrices(jnp.zeros((1, 1, 1, 1, 3)), 3, variant)
    assert (found == jnp.eye(3)).all()


def test_blocks_are_turned_by_their_own_matrix(x64):
    s, x = random(2, 3, 2, 2, 3, 3, seed=1), random(2, 3, 2, 6, seed=2)
    expected = np.einsum("bthnij,bthnj->bthni", s, x.reshape(2, 3, 2, 2, 3)).reshape(x.shape)
    np.testing.assert_allclose(turn_blocks(jnp.asarray(s), jnp.asarray(x)), expected, atol=1e-12)


def test_rotate_pairs_turns_counterclockwise(x64):
    found = rotate_pairs(jnp.array([[1.0, 0.0, 0.0, 2.0]]), jnp.array([np.pi / 2, np.pi / 6]))
    np.testing.assert_allclose(found, [[0, 1, -1, np.sqrt(3)]], atol=1e-12)
