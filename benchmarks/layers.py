"""The diagonal layers against their published form, forward and backward.

A program returns y and the gradients of every parameter and of the input, with the cotangent as an argument. (With a
loss inside, XLA would drop work that training needs.) Both sides get the same parameters and inputs, and are first
checked against each other.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from benchmarks import textbook, timing
from benchmarks.result import Result, faster, milliseconds, of_ratio, smaller
from lru import LRU, LRUConfig
from models.build import split_model
from rotrnn import RotRNN, RotRNNConfig
from scans import Direction

REFERENCE_MS, REFERENCE_RATE = 403, 209e9
"""Time of the published LRU at the first shape on the machine where the targets were set, and its matmul rate."""


@dataclass(frozen=True)
class Shape:
    """B sequences of T steps, width D, N complex modes (RotRNN: 2N real numbers in `heads` heads)."""

    batch: int
    length: int
    width: int
    modes: int
    heads: int = 32

    def __str__(self) -> str:
        return f"T={self.length} B={self.batch} D={self.width} N={self.modes}"

    @property
    def input(self) -> tuple[int, int, int]:
        """(B, T, D)."""
        return self.batch, self.length, self.width

    @property
    def flops(self) -> float:
        """Of the two projections, forward and backward: three times 8 N D a step. Nothing else is counted."""
        return 24.0 * self.batch * self.length * self.modes * self.width


FIRST = Shape(8, 2048, 128, 256)
LONG = Shape(4, 16384, 128, 256)
SHAPES = (FIRST, Shape(16, 1024, 128, 128), Shape(8, 1024, 96, 64), Shape(8, 1024, 128, 512), Shape(4, 1024, 512, 192))


def lru(shape: Shape, direction: Direction = Direction.FORWARD, chunk: int = 0) -> LRU:
    """Of the sizes of `shape`, drawn with seed 0."""
    config = LRUConfig(width=shape.width, state_size=shape.modes, direction=direction, chunk=chunk)
    return LRU(config, rngs=nnx.Rngs(0))


def rotrnn(shape: Shape) -> RotRNN:
    """Of the sizes of `shape`, drawn with seed 0."""
    return RotRNN(RotRNNConfig(width=shape.width, state_size=2 * shape.modes, heads=shape.heads), rngs=nnx.Rngs(0))


def with_gradients(layer: Callable) -> Callable:
    """(params, u, dy) -> y and the gradients of both, of layer(params, u)."""

    def run(params, u, dy):
        y, vjp = jax.vjp(layer, params, u)
        return y, vjp(dy)

    return run


def compile_layer(
    name: str, layer: nnx.Module, size: tuple[int, int, int], dtype: jnp.dtype = jnp.float32
) -> timing.Program:
    """Our layer, forward and backward, on normal inputs of `dtype`."""
    graphdef, params = split_model(layer)
    u, dy = (x.astype(dtype) for x in draw(size))
    return timing.compile_program(
        name, with_gradients(lambda params, u: nnx.merge(graphdef, params)(u)[0]), params, u, dy
    )


def compile_pair(
    title: str, layer: nnx.Module, published: Callable[..., jax.Array], size: tuple[int, int, int]
) -> tuple[timing.Program, timing.Program]:
    """The published program and ours, on the same values. Raises AssertionError if their results differ."""
    _, params = split_model(layer)
    pair = (
        timing.compile_program("published form", with_gradients(published), params, *draw(size)),
        compile_layer("linrec", layer, size),
    )
    results = [jax.tree.leaves(program.run()) for program in pair]
    for expected, value in zip(*results, strict=True):
        np.testing.assert_allclose(value, expected, rtol=0, atol=2e-3 * np.abs(expected).max(), err_msg=title)
    return pair


def draw(size: tuple[int, int, int]) -> tuple[jax.Array, jax.Array]:
    """u and dy, normal."""
    rng = np.random.default_rng(0)
    u, dy = (jnp.asarray(rng.standard_normal(size), jnp.float32) for _ in range(2))
    return u, dy


def results(rounds: int) -> Iterator[Result]:
    """All rows of this benchmark."""
    yield from against_published(FIRST, rounds, memory=7)
    yield from against_published(LONG, rounds, memory=8)
    for shape in SHAPES:
        for direction in (Direction.FORWARD, Direction.BIDIRECTIONAL):
            name = f"LRU {shape} {direction}"
            published, ours = compile_pair(name, lru(shape, direction), textbook.lru, shape.input)
            timing.interleave((published, ours), rounds)
            yield faster(f"{name}, method auto", published, ours, 2.2)
    published, ours = compile_pair("RotRNN", rotrnn(FIRST), textbook.rotrnn, FIRST.input)
    timing.interleave((published, ours), rounds)
    yield faster(f"RotRNN {FIRST}, {FIRST.heads} heads", published, ours, 3.5)


def against_published(shape: Shape, rounds: int, memory: float) -> Iterator[Result]:
    """Time, memory in chunks, share of the peak; for the first shape whether the published form is a fair one."""
    name = f"LRU {shape}"
    published, ours = compile_pair(name, lru(shape), textbook.lru, shape.input)
    chunked = compile_layer("linrec, chunk=4", lru(shape, chunk=4), shape.input)
    product = timing.matmul()
    timing.interleave((published, ours, chunked, product), rounds)
    yield from (milliseconds(name, program) for program in (published, ours, chunked))
    yield faster(name, published, ours, 3.5)
    yield smaller(f"{name}, published / chunk=4", published, chunked, memory)
    if shape is not FIRST:
        return
    # Of the same round: a virtual machine gives half as much again from one second to the next.
    flops = 2 * timing.MATMUL**3
    rate = flops / (1e9 * float(np.median(product.wall)))
    yield of_ratio(
        f"{name}, rate against that of a float32 matrix product ({rate:.0f} GF/s)",
        timing.ratio(shape.flops * np.array(product.wall), flops * np.array(ours.wall)),
        0.5,
    )
    reference = 1e-3 * REFERENCE_MS * REFERENCE_RATE / flops
    yield of_ratio(
        "published LRU: time x matmul rate, against that of the machine of the targets",
        timing.ratio(published.wall, reference * np.array(product.wall)),
        1.4,
        ceiling=True,
    )
