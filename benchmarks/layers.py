"""Our layers against their published form, forward and backward; prints Markdown tables.

    python -m benchmarks.layers [--rounds=21] [--allocator=tuned|default]

A program returns y and the gradients of every parameter and of the input, with the cotangent as an argument. (With a
loss inside, XLA would drop work that training needs.) Both sides get the same parameters and inputs, and are first
checked against each other. Times are float32. A ratio above 1 says how many times faster ours is.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from benchmarks import textbook, timing
from lru import LRU, LRUConfig
from models.build import split_model
from rotrnn import RotRNN, RotRNNConfig


@dataclass(frozen=True)
class Shape:
    """B sequences of T steps, width D, N complex modes (RotRNN: 2N real numbers in `heads` heads)."""

    batch: int
    length: int
    width: int
    modes: int
    heads: int

    def __str__(self) -> str:
        return f"T={self.length}, B={self.batch}, D={self.width}"


@dataclass(frozen=True)
class Case:
    """One layer of ours at one shape, and the published form of the same function."""

    title: str
    shape: Shape
    layer: nnx.Module
    published: Callable[..., jax.Array]


def cases() -> list[Case]:
    """The LRU paper's ListOps sizes with a long input, and the sizes of RotRNN's Speech Commands run."""
    found = []
    for shape in (Shape(8, 2048, 128, 256, 32), Shape(8, 1024, 96, 64, 32)):
        lru_config = LRUConfig(width=shape.width, state_size=shape.modes)
        rotrnn_config = RotRNNConfig(width=shape.width, state_size=2 * shape.modes, heads=shape.heads)
        found += [
            Case(f"LRU, {shape}, N={shape.modes} complex", shape, LRU(lru_config, rngs=nnx.Rngs(0)), textbook.lru),
            Case(
                f"RotRNN, {shape}, N={2 * shape.modes} real, {shape.heads} heads",
                shape,
                RotRNN(rotrnn_config, rngs=nnx.Rngs(0)),
                textbook.rotrnn,
            ),
        ]
    return found


def compile_pair(case: Case) -> tuple[timing.Program, timing.Program]:
    """The published program and ours, on the same values. Raises AssertionError if their results differ."""
    graphdef, params = split_model(case.layer)
    rng = np.random.default_rng(0)
    size = (case.shape.batch, case.shape.length, case.shape.width)
    u, dy = (jnp.asarray(rng.standard_normal(size), jnp.float32) for _ in range(2))

    def with_gradients(layer):
        def run(params, u, dy):
            y, vjp = jax.vjp(layer, params, u)
            return y, vjp(dy)

        return run

    ours = with_gradients(lambda params, u: nnx.merge(graphdef, params)(u)[0])
    pair = (
        timing.compile_program("published", with_gradients(case.published), params, u, dy),
        timing.compile_program("linrec", ours, params, u, dy),
    )
    results = [jax.tree.leaves(program.run()) for program in pair]
    for expected, value in zip(*results, strict=True):
        np.testing.assert_allclose(value, expected, rtol=0, atol=2e-3 * np.abs(expected).max(), err_msg=case.title)
    return pair


def rows(case: Case, pair: tuple[timing.Program, timing.Program]) -> list[str]:
    """Two rows of the table."""
    published, ours = pair
    ratios = {published.name: ("1", "1"), ours.name: (str(timing.ratio(published.wall, ours.wall)), "-")}
    if jax.default_backend() == "cpu":  # elsewhere the host only waits
        ratios[ours.name] = (ratios[ours.name][0], str(timing.ratio(published.cpu, ours.cpu)))
    return [
        f"| {case.title} | {p.name} | {1e3 * min(p.wall):.1f} | {ratios[p.name][0]} | {ratios[p.name][1]} "
        f"| {p.temp_bytes / 2**20:.0f} | {p.compile_seconds:.1f} | {p.hlo_ops} |"
        for p in pair
    ]


def print_table(found: list[Case], rounds: int) -> None:
    """The table, a case at a time as it is measured."""
    print("| forward + all gradients | form | min ms | ratio | ratio of CPU time | temp MiB | compile s | HLO ops |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for case in found:
        pair = compile_pair(case)
        timing.interleave(pair, rounds)
        print("\n".join(rows(case, pair)), flush=True)


def main() -> None:
    """Reads the options, settles what both sides share, prints."""
    parser = argparse.ArgumentParser(description="Times our layers against their published form.")
    parser.add_argument("--rounds", type=int, default=21, help="interleaved rounds of timing, at least 11")
    parser.add_argument("--allocator", choices=["tuned", "default"], default="tuned", help="malloc of large buffers")
    options = parser.parse_args()
    if options.rounds < 11:
        parser.error(f"--rounds={options.rounds}: at least 11 are needed")
    allocator = timing.tune_allocator() if options.allocator == "tuned" else "default"
    jax.config.update("jax_enable_compilation_cache", False)  # or the table would show reading times
    # Ours asks for float32 products; the published forms would get TF32 or bfloat16 on an accelerator.
    jax.config.update("jax_default_matmul_precision", "highest")
    print(
        f"{timing.describe_machine()}, float32 matmul {timing.matmul_rate() / 1e9:.0f} GF/s; allocator on both sides:"
    )
    print(f"{allocator}; {options.rounds} rounds; ratio = published / linrec, median [95 % interval].\n")
    print_table(cases(), options.rounds)


if __name__ == "__main__":
    main()
