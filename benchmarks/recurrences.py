"""The recurrences alone, and the MRU, whose recurrence is a product of matrices."""

import itertools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from benchmarks import textbook, timing
from benchmarks.layers import compile_pair, with_gradients
from benchmarks.result import Result, faster
from mru import MRU, MRUConfig, Variant
from scans import linear_scan, matrix_scan

BATCH, HEADS, STEPS = 8, 8, 1024


def results(rounds: int) -> Iterator[Result]:
    """Of states that are wanted as such: diagonal ones, and products of matrices."""
    yield diagonal(rounds)
    for order, target in ((8, 1.5), (16, 1.8)):
        yield products(order, target, rounds)


def mru_layers(rounds: int) -> Iterator[Result]:
    """Every variant, at both orders."""
    for order, variant in itertools.product((8, 16), Variant):
        yield mru_layer(variant, order, rounds)


def diagonal(rounds: int) -> Result:
    """h_t = a h_{t-1} + b_t for complex states that are wanted as such, forward and backward."""
    batch, steps, modes = 8, 4096, 256
    rng = np.random.default_rng(0)
    b, g = (jnp.asarray(rng.standard_normal((2, batch, steps, modes)), jnp.float32) for _ in range(2))
    a = jnp.asarray(rng.uniform(0.9, 0.999, modes) * np.exp(1j * rng.uniform(0, 2 * np.pi, modes)), jnp.complex64)
    arguments = (a, lax.complex(*b), lax.complex(*g))
    published = timing.compile_program("published form", with_gradients(textbook.recurrence), *arguments)
    ours = timing.compile_program("linrec", with_gradients(lambda a, b: linear_scan(a, b)[0]), *arguments)
    timing.interleave((published, ours), rounds)
    return faster(f"recurrence alone, T={steps} B={batch} N={modes} complex", published, ours, 2)


def products(order: int, target: float, rounds: int) -> Result:
    """H_t = H_{t-1} M_t, forward and backward, for orthogonal M_t."""
    rng = np.random.default_rng(0)
    shape = (BATCH, STEPS, HEADS, order, order)
    m = jnp.asarray(np.linalg.qr(rng.standard_normal(shape))[0], jnp.float32)
    g = jnp.asarray(rng.standard_normal(shape), jnp.float32)

    def run(form):
        def program(m, g):
            h, vjp = jax.vjp(form, m)
            return h, vjp(g)

        return program

    published = timing.compile_program("published form", run(textbook.products), m, g)
    ours = timing.compile_program("linrec", run(lambda m: matrix_scan(m)[0]), m, g)
    timing.interleave((published, ours), rounds)
    return faster(f"matrix products alone, T={STEPS} B={BATCH}, {HEADS} heads, n={order}", published, ours, target)


def mru_layer(variant: Variant, order: int, rounds: int) -> Result:
    """The whole layer with its matrices made from normal inputs. W_in starts at 0 and is drawn small instead."""
    width = HEADS * order
    layer = MRU(MRUConfig(width, HEADS * order**2, HEADS, variant), rngs=nnx.Rngs(0))
    small = 1e-3 * np.random.default_rng(1).standard_normal(layer.W_in.shape)
    layer.W_in[...] = jnp.asarray(small, jnp.float32)
    name = f"MRU {variant}, T={STEPS} B={BATCH}, {HEADS} heads, n={order}"
    pair = compile_pair(name, layer, textbook.mru(variant), (BATCH, STEPS, width))
    timing.interleave(pair, rounds)
    return faster(name, *pair, 1)
