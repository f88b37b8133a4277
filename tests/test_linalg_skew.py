"""The exponential and the Cayley map of skew matrices: values, gradients, orthogonality at any norm met in training."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from linalg import cayley, expm_skew, skew

MAPS = {"expm_skew": expm_skew, "cayley": cayley}


def draw(n, scale=1.0, batch=(3,), dtype: type = np.float32, seed=0):
    m = scale * np.random.default_rng(seed).standard_normal((*batch, n, n))
    return (m - np.swapaxes(m, -1, -2)).astype(dtype)


def skew_part(m):
    return (m - np.swapaxes(m, -1, -2)) / 2


def spectral_norm(k):
    return np.linalg.norm(np.asarray(k, np.float64), 2, axis=(-2, -1)).max()


def reference(name, k):
    """Float64 values by another route: the eigenvectors of the Hermitian -iK."""
    angles, v = np.linalg.eigh(-1j * np.asarray(k, np.float64))
    eigenvalues = np.exp(1j * angles) if name == "expm_skew" else (1 + 1j * angles) / (1 - 1j * angles)
    return np.real((v * eigenvalues[..., None, :]) @ np.conj(np.swapaxes(v, -1, -2)))


@functools.partial(jax.jit, static_argnums=0)
def value_and_pullback(name, k, g):
    q, vjp = jax.vjp(MAPS[name], k)
    return q, vjp(g)[0]


def test_skew_is_m_minus_its_transpose():
    m = np.arange(12.0, dtype=np.float32).reshape(3, 2, 2)
    np.testing.assert_array_equal(skew(jnp.asarray(m)), m - m.transpose(0, 2, 1))


@pytest.mark.every(5)
@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("n", [1, 2, 8, 128])
@pytest.mark.parametrize("scale", [0.01, 1.0, 10.0])
def test_float32_is_orthogonal_with_determinant_one_and_matches_float64(name, n, scale):
    k = draw(n, scale)
    g = np.random.default_rng(1).standard_normal(k.shape).astype(np.float32)
    q, dk = (np.asarray(x) for x in value_and_pullback(name, k, g))
    assert q.dtype == dk.dtype == np.float32
    q = q.astype(np.float64)
    assert np.abs(np.swapaxes(q, -1, -2) @ q - np.eye(n)).max() < 2e-6
    np.testing.assert_allclose(np.linalg.det(q), 1, rtol=0, atol=1e-5)
    rounding = 2e-6 + 1e-7 * spectral_norm(k)
    np.testing.assert_allclose(q, reference(name, k), rtol=0, atol=rounding)
    with jax.enable_x64(True):
        expected = np.asarray(value_and_pullback(name, k.astype(np.float64), g.astype(np.float64))[1])
    np.testing.assert_allclose(dk, expected, rtol=0, atol=rounding * np.abs(expected).max())


@pytest.mark.parametrize("n", [2, 8, 128])
def test_float32_exponential_stays_orthogonal_at_norms_far_beyond_training(n):
    k = draw(n)
    k = k * np.float32(1e4 / spectral_norm(k))
    q = np.asarray(value_and_pullback("expm_skew", k, k)[0], np.float64)
    assert np.abs(np.swapaxes(q, -1, -2) @ q - np.eye(n)).max() < 1e-5


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("n", [2, 3, 8, 17])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 10.0])
def test_float64_value_and_gradient_match_scipy(name, n, scale):
    k = draw(n, scale, dtype=np.float64)
    g = np.random.default_rng(1).standard_normal(k.shape)
    if name == "expm_skew":
        value = np.stack([scipy.linalg.expm(a) for a in k])
        pairs = zip(k, g, strict=True)
        gradient = np.stack([scipy.linalg.expm_frechet(a.T, b, compute_expm=False) for a, b in pairs])
    else:
        inverse = np.linalg.inv(np.eye(n) - k)
        value = inverse @ (np.eye(n) + k)
        gradient = 2 * np.swapaxes(inverse, -1, -2) @ g @ np.swapaxes(inverse, -1, -2)
    with jax.enable_x64(True):
        q, dk = (np.asarray(x) for x in value_and_pullback(name, k, g))
    assert q.dtype == dk.dtype == np.float64
    # scipy's own error grows with the norm; at norm 200 the eigenvectors are the better reference.
    np.testing.assert_allclose(q, value if scale < 10 else reference(name, k), rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        dk, skew_part(gradient), rtol=0, atol=1e-12 * max(1, np.abs(gradient).max()) * max(1, scale)
    )


def test_float64_taylor_sums_are_long_enough_where_the_bound_on_the_norm_is_tight():
    # Planes that turn by +-0.499: the row sums equal the spectral norm, just below the radius 1/2 of the Taylor sums.
    k = np.kron(np.diag([0.499, -0.499]), np.array([[0.0, -1.0], [1.0, 0.0]]))[None]
    g = np.random.default_rng(1).standard_normal(k.shape)
    with jax.enable_x64(True):
        q, dk = (np.asarray(x) for x in value_and_pullback("expm_skew", k, g))
    gradient = scipy.linalg.expm_frechet(k[0].T, g[0], compute_expm=False)
    np.testing.assert_allclose(q[0], scipy.linalg.expm(k[0]), rtol=0, atol=1e-15)
    np.testing.assert_allclose(dk[0], skew_part(gradient), rtol=0, atol=2e-15)


@pytest.mark.parametrize("name", MAPS)
def test_gradient_of_the_free_parameter_matches_finite_differences(name):
    n, step = 5, 1e-5
    rng = np.random.default_rng(2)
    m, g, direction = rng.standard_normal((3, 2, n, n))

    @jax.jit
    def loss(m):
        return jnp.sum(MAPS[name](skew(m)) * g)

    with jax.enable_x64(True):
        slope = np.sum(np.asarray(jax.grad(loss)(jnp.asarray(m))) * direction)
        difference = (loss(jnp.asarray(m + step * direction)) - loss(jnp.asarray(m - step * direction))) / (2 * step)
    np.testing.assert_allclose(slope, difference, rtol=1e-8, atol=0)


@pytest.mark.parametrize(("name", "factor"), [("expm_skew", 1.0), ("cayley", 2.0)])
def test_zero_gives_the_identity_and_the_first_order_of_the_paper(name, factor):
    zero = np.zeros((2, 6, 6), np.float32)
    g = np.random.default_rng(3).standard_normal(zero.shape).astype(np.float32)
    q, dk = value_and_pullback(name, zero, g)
    np.testing.assert_array_equal(q, np.broadcast_to(np.eye(6), zero.shape))
    np.testing.assert_allclose(dk, factor * skew_part(g), rtol=0, atol=1e-6)


@pytest.mark.parametrize("angle", [0.0, 1e-4, 0.3, np.pi, -2.0, 40.0])
def test_order_two_is_a_rotation_by_the_lower_element(angle):
    k = jnp.asarray([[0.0, -angle], [angle, 0.0]], jnp.float32)
    for name, turn in (("expm_skew", angle), ("cayley", 2 * np.arctan(angle))):
        q, _ = value_and_pullback(name, k, k)
        expected = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
        np.testing.assert_allclose(q, expected, rtol=0, atol=5e-6)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("n", [4, 8])
def test_batch_axes_vmap_and_map_agree_with_single_matrices(name, n):
    both = functools.partial(value_and_pullback, name)
    sizes = np.array([0.0, 0.1, 1.0, 30.0], np.float32)[:, None, None, None]
    k = sizes * draw(n, batch=(4, 2))  # norms from 0 to 200: each its own number of halvings under vmap
    g = np.random.default_rng(1).standard_normal(k.shape).astype(np.float32)

    single = [[both(jnp.asarray(k[i, j]), jnp.asarray(g[i, j])) for j in range(2)] for i in range(4)]
    expected = [np.array([[np.asarray(pair[which]) for pair in row] for row in single]) for which in (0, 1)]
    for transformed in (both, jax.vmap(both), lambda k, g: jax.lax.map(lambda x: both(*x), (k, g))):
        for got, want in zip(transformed(jnp.asarray(k), jnp.asarray(g)), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)


def test_a_matrix_with_nan_gives_nan_and_leaves_its_neighbours_right():
    k = draw(8)
    k[1, 0, 1] = np.nan
    q = np.asarray(value_and_pullback("expm_skew", k, k)[0])
    assert np.isnan(q[1]).all()
    np.testing.assert_allclose(q[[0, 2]], reference("expm_skew", k[[0, 2]]), rtol=0, atol=2e-6)


def test_program_of_value_and_gradient_stays_small():
    # Every layer of a model compiles one; the products are in loops so that the program does not grow with the degree.
    k = jnp.asarray(draw(8))
    assert value_and_pullback.lower("expm_skew", k, k).as_text().count("stablehlo.dot_general") <= 12


@pytest.mark.parametrize("function", [skew, expm_skew, cayley])
@pytest.mark.parametrize(
    ("shape", "dtype", "words"),
    [
        ((3, 4), jnp.float32, "square.*(3, 4)"),
        ((2, 0, 0), jnp.float32, "n >= 1"),
        ((5,), jnp.float32, "square"),
        ((4, 4), jnp.bfloat16, "float32 or float64, got bfloat16"),
        ((4, 4), jnp.int32, "float32 or float64, got int32"),
    ],
)
def test_bad_input_is_refused_in_one_line(function, shape, dtype, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(").replace(")", r"\)")) as error:
        function(jnp.zeros(shape, dtype))
    assert function.__name__ in str(error.value)
    assert "\n" not in str(error.value)
