"""One accelerator against the published forms, in a few minutes: correctness, layers, updates, seeds, scaling.

    python -m benchmarks.device [--minutes=8] [--out=runs/bench]

Starts with what tells most and begins nothing new when the time is up; what was not measured is named. Writes
device.json, of the form of `python -m benchmarks`. It has not been run on an accelerator so far.
"""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from benchmarks import layers, recurrences, scaling, textbook, timing, training
from benchmarks.result import HEAD, Result, faster, milliseconds
from models.build import split_model
from scripts.arguments import Parser
from training.files import write_json

ROUNDS = 11


def correctness() -> Iterator[Result]:
    """The layer on this device against the published form in float64 on the host."""
    shape = layers.Shape(2, 256, 32, 32)
    graphdef, params = split_model(layers.lru(shape))
    u, _ = layers.draw(shape.input)
    y = jax.jit(lambda params, u: nnx.merge(graphdef, params)(u)[0])(params, u)
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        exact = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), (params, u))
        expected = np.asarray(jax.jit(textbook.lru)(*exact))
    error = np.abs(np.asarray(y) - expected).max() / np.abs(expected).max()
    yield Result(f"LRU {shape}: largest error / largest output", error, "", target=1e-4, ceiling=True)


def layer() -> Iterator[Result]:
    """The LRU in float32 and with bfloat16 inputs, as a whole and in chunks; RotRNN."""
    for shape in (layers.FIRST, layers.LONG):
        published, ours = layers.compile_pair(f"LRU {shape}", layers.lru(shape), textbook.lru, shape.input)
        low = layers.compile_layer("linrec, bfloat16", layers.lru(shape), shape.input, jnp.bfloat16)
        programs = (published, ours, low)
        timing.interleave(programs, ROUNDS)
        yield from (milliseconds(f"LRU {shape}", program) for program in programs)
        yield faster(f"LRU {shape}", published, ours, 2.2)
        yield faster(f"LRU {shape}, bfloat16", published, low, 3)
    published, ours = layers.compile_pair("RotRNN", layers.rotrnn(layers.FIRST), textbook.rotrnn, layers.FIRST.input)
    timing.interleave((published, ours), ROUNDS)
    yield faster(f"RotRNN {layers.FIRST}", published, ours, 2.2)


def seeds() -> Iterator[Result]:
    """Eight seeds side by side in one program."""
    yield from training.seeds(ROUNDS)


def updates() -> Iterator[Result]:
    """Whole updates of a run."""
    yield from training.results(ROUNDS)


def products() -> Iterator[Result]:
    """The recurrence of MRU."""
    for order in (8, 16):
        yield recurrences.products(order, 1.0, ROUNDS)


def lengths() -> Iterator[Result]:
    """What a token costs in long sequences."""
    yield from scaling.results(ROUNDS)


PARTS: dict[str, Callable[[], Iterator[Result]]] = {
    "correctness": correctness,
    "layer": layer,
    "seeds": seeds,
    "updates": updates,
    "products": products,
    "lengths": lengths,
}
"""The most telling first."""


def main() -> None:
    """Measures until the time is up."""
    parser = Parser("device", __doc__, package="benchmarks.")
    parser.add_argument("--minutes", type=float, default=8, help="no part is begun after so many")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="folder of device.json")
    options = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)
    jax.config.update("jax_default_matmul_precision", "highest")
    began, found = time.monotonic(), []
    print(f"{timing.describe_machine()}\n\n{HEAD}", flush=True)
    for name, measure in PARTS.items():
        if time.monotonic() - began > 60 * options.minutes:
            print(f"not measured, the time was up: {name}")
            continue
        for result in measure():
            found.append(result)
            print(result.row(), flush=True)
            options.out.mkdir(parents=True, exist_ok=True)
            write_json(options.out / "device.json", [each.record() for each in found])
            if time.monotonic() - began > 60 * options.minutes:
                print(f"not measured, the time was up: the rest of {name}")
                break


if __name__ == "__main__":
    sys.exit(main())
