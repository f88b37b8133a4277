"""Matrices of the MRU variants: determinants, orthogonality, first order, representations, norms of the output."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

from mru import MRUConfig, OutputNorm, Variant
from mru.parametrize import input_states, normalised
from scans import matrix_scan, scaled_matrix_scan

ORTHOGONAL = (Variant.ORTHOGONAL_CAYLEY, Variant.ORTHOGONAL_EXPM)
FREE = tuple(variant for variant in Variant if variant not in ORTHOGONAL)

# Nearly all the time of these tests is compilation; without optimisation it takes a seventh.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def count(variant, n):
    """z"""
    return MRUConfig(n, n**2, 1, variant=variant).elements


def draw(variant, n, spread, shape=(50,), seed=0):
    return spread * np.random.default_rng(seed).normal(size=(*shape, count(variant, n)))


def states(variant, n, elements, **options):
    return np.asarray(jit(lambda e: input_states(e, n, variant, **options))(jnp.asarray(elements)))


def parts(a):
    """L, U, a - mean a as matrices."""
    diagonal = np.diagonal(a, axis1=-2, axis2=-1)
    centred = diagonal - diagonal.mean(-1, keepdims=True)
    return np.tril(a, -1), np.triu(a, 1), centred[..., None] * np.eye(a.shape[-1])


def skew(elements, n):
    k = np.zeros((*elements.shape[:-1], n, n))
    k[..., *np.tril_indices(n, -1)] = elements
    return k - np.swapaxes(k, -1, -2)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_elements_fill_the_lower_triangle_row_by_row(x64, n):
    elements = draw(Variant.ORTHOGONAL_EXPM, n, 1.0, (3, 2))
    k = skew(elements, n)
    np.testing.assert_allclose(states(Variant.ORTHOGONAL_EXPM, n, elements), expm(k), atol=1e-13)
    eye = np.eye(n)
    expected = np.linalg.inv(eye - k) @ (eye + k)
    np.testing.assert_allclose(states(Variant.ORTHOGONAL_CAYLEY, n, elements), expected, atol=1e-13)


@pytest.mark.parametrize("variant", Variant)
def test_no_elements_make_the_identity_exactly(variant):
    """Masked steps rest on this: their elements are 0."""
    for n in (2, 3, 8):
        m = states(variant, n, np.zeros((2, count(variant, n)), np.float32))
        np.testing.assert_array_equal(m, np.broadcast_to(np.eye(n), m.shape))


@pytest.mark.parametrize("variant", Variant)
def test_first_order(x64, variant):
    """A Cayley map turns twice as far as the exponential; the mean of the diagonal is free."""
    n, h = 4, 1e-6
    e = draw(variant, n, 1.0, (6,))
    if variant in ORTHOGONAL:
        expected = skew(e, n) * (2 if variant is Variant.ORTHOGONAL_CAYLEY else 1)
    else:
        a = e.reshape(-1, n, n)
        lower, upper, centred = parts(a)
        turn = lower - np.swapaxes(lower, -1, -2)
        expected = {
            Variant.IDENTITY: a,
            Variant.LDU: lower + upper + centred,
            Variant.DETERMINANT: lower + upper + centred,
            Variant.QR_CAYLEY: 2 * turn + upper + centred,
            Variant.QR_EXPM: turn + upper + centred,
        }[variant]
    slope = (states(variant, n, h * e) - states(variant, n, -h * e)) / (2 * h)
    np.testing.assert_allclose(slope, expected, atol=1e-8)


@pytest.mark.parametrize("variant", FREE[1:])
def test_determinants(variant):
    """1 in float32; for `determinant` +1 or -1, and both occur."""
    free = variant is Variant.DETERMINANT
    for spread in (0.1, 0.3):
        det = np.linalg.det(states(variant, 4, draw(variant, 4, spread).astype(np.float32)).astype(float))
        np.testing.assert_allclose(np.abs(det) if free else det, 1, atol=1e-5)
    signs = np.sign(np.linalg.det(states(variant, 4, draw(variant, 4, 1.0).astype(np.float32))))
    assert set(signs) == ({-1, 1} if free else {1})


@pytest.mark.parametrize("variant", ORTHOGONAL)
@pytest.mark.parametrize("spread", [0.1, 1.0])
def test_orthogonal_variants_are_rotations(variant, spread):
    m = states(variant, 8, draw(variant, 8, spread).astype(np.float32)).astype(float)
    np.testing.assert_allclose(np.swapaxes(m, -1, -2) @ m, np.broadcast_to(np.eye(8), m.shape), atol=3e-6)
    np.testing.assert_allclose(np.linalg.det(m), 1, atol=1e-5)


def test_angles_of_order_two(x64):
    s = np.array([[-3.0], [0.1], [0.7], [51.0]])
    for variant, angle in ((Variant.ORTHOGONAL_CAYLEY, 2 * np.arctan(s[:, 0])), (Variant.ORTHOGONAL_EXPM, s[:, 0])):
        m = states(variant, 2, s)
        expected = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], -1).reshape(-1, 2, 2)
        np.testing.assert_allclose(m, expected, atol=1e-12)


@pytest.mark.parametrize("variant", [Variant.LDU, Variant.QR_CAYLEY, Variant.QR_EXPM, Variant.DETERMINANT])
def test_the_redundant_direction(x64, variant):
    """A constant on the diagonal of A changes nothing; for `determinant` it is a factor on A + I."""
    n = 3
    a = draw(variant, n, 0.3).reshape(-1, n, n)
    other = 1.7 * (a + np.eye(n)) - np.eye(n) if variant is Variant.DETERMINANT else a + 1.7 * np.eye(n)
    np.testing.assert_allclose(
        states(variant, n, a.reshape(-1, n * n)), states(variant, n, other.reshape(-1, n * n)), atol=1e-12
    )


def test_ldu_of_order_three_counts_modulo_two(x64):
    """An element of order two with all leading minors positive, in an oblique basis."""
    m = states(Variant.LDU, 3, np.array([0, -2, 2, 2, 0, -2, 2, 2, 0.0]))
    np.testing.assert_allclose(m, [[1, -2, 2], [2, -3, 2], [2, -2, 1]], atol=1e-14)
    np.testing.assert_allclose(m @ m, np.eye(3), atol=1e-14)


def test_det_eps_bounds_what_is_singular(x64):
    a = -np.eye(3).ravel() + 1e-7 * draw(Variant.DETERMINANT, 3, 1.0, ())
    assert np.abs(states(Variant.DETERMINANT, 3, a)).max() > 0.5
    eps = 1e-6
    det = np.linalg.det(a.reshape(3, 3) + np.eye(3))
    expected = (a.reshape(3, 3) + np.eye(3)) / (abs(det) + eps) ** (1 / 3)
    np.testing.assert_allclose(states(Variant.DETERMINANT, 3, a, det_eps=eps), expected, rtol=1e-9)


def test_norms_of_the_output(x64):
    s = 1e200 * np.random.default_rng(0).normal(size=(5, 4, 4))
    s[1, 2], s[2] = 0, 0
    found = {kind: np.asarray(normalised(jnp.asarray(s), kind)) for kind in OutputNorm}
    np.testing.assert_array_equal(found[OutputNorm.NONE], s)
    rows = np.linalg.norm(found[OutputNorm.ROW], axis=-1)
    np.testing.assert_allclose(rows, (np.abs(s).max(-1) > 0).astype(float), rtol=1e-13)
    sizes = np.linalg.norm(found[OutputNorm.FROBENIUS], axis=(-1, -2))
    np.testing.assert_allclose(sizes, [2, 2, 0, 2, 2], rtol=1e-13)
    for kind in (OutputNorm.FROBENIUS, OutputNorm.ROW):
        q = jnp.asarray(np.linalg.qr(np.random.default_rng(1).normal(size=(3, 4, 4)))[0])
        np.testing.assert_allclose(normalised(q, kind), q, atol=1e-14)


@pytest.mark.parametrize("kind", [OutputNorm.FROBENIUS, OutputNorm.ROW])
def test_gradients_of_the_norms(x64, kind):
    s, g = np.random.default_rng(0).normal(size=(2, 3, 4, 4))

    def plain(s):
        axes = (-1,) if kind is OutputNorm.ROW else (-2, -1)
        return g * s / jnp.sqrt((s**2).sum(axes, keepdims=True)) * (1 if kind is OutputNorm.ROW else 2)

    found = jax.grad(lambda s: (g * normalised(s, kind)).sum())(s)
    np.testing.assert_allclose(found, jax.grad(lambda s: plain(s).sum())(s), atol=1e-13)
    assert np.isfinite(jax.grad(lambda s: normalised(s, kind).sum())(jnp.zeros((4, 4)))).all()


@pytest.mark.parametrize("variant", FREE)
def test_rescaled_products_at_a_length_where_plain_ones_overflow(x64, variant):
    """n = 16, T = 2048, elements of deviation 0.3, float32: normalised state within 1e-4 and gradient within 1e-3."""
    n = 16
    # Of four seeds the one in the middle; the worst ones reach 4e-4 and 9e-4.
    e = draw(variant, n, 0.3, (1, 2048, 1), seed=2).astype(np.float32)
    if variant is Variant.DETERMINANT:
        # Where A + I is nearly singular (about ten of these tokens) its gradient has fewer digits, product or not.
        smallest = np.linalg.svd(e.reshape(1, 2048, 1, n, n) + np.eye(n), compute_uv=False)[..., -1:]
        e = np.where(smallest < 1e-3, 0, e)
    g = np.random.default_rng(1).normal(size=(2048, n, n))

    def run(e):
        (h, log), _ = scaled_matrix_scan(input_states(e, n, variant))
        return (normalised(h, OutputNorm.FROBENIUS)[0, :, 0] * g.astype(e.dtype)).sum(), (h, log)

    gradient = jit(jax.value_and_grad(run, has_aux=True))
    (_, (wide, log)), grad = gradient(e.astype(float))
    (_, (narrow, _)), grad_narrow = gradient(e)
    assert narrow.dtype == grad_narrow.dtype == jnp.float32
    assert log[0, -1, 0] > 400
    np.testing.assert_allclose(narrow, wide, rtol=0, atol=1e-4 * np.abs(wide).max())
    np.testing.assert_allclose(grad_narrow, grad, rtol=0, atol=1e-3 * np.abs(grad).max())
    plain = jit(lambda e: matrix_scan(input_states(e, n, variant))[1])
    assert not np.isfinite(plain(e)).all()


def test_every_variant_has_its_own_matrices(x64):
    found = {variant: states(variant, 4, draw(variant, 4, 0.5, (1,))) for variant in Variant}
    for one, other in itertools.combinations(Variant, 2):
        assert np.abs(found[one] - found[other]).max() > 1e-2
