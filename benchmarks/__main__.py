"""Runs benchmarks, prints their table, and writes it as JSON.

    python -m benchmarks [NAME ...] [--rounds=11] [--out=runs/bench]

NAME: layers, recurrences, scaling, training, seeds, input, token: these without one, in less than 20 minutes on two
cores; or mru, the layers of matrix recurrent units, whose published forms take a quarter of an hour. Every ratio is
measured in this one process, both sides compiled, under one allocator setting, in turn, round by round; its interval
is that of the median of the ratios within rounds. What each one does stands in the modules of this package and in
docs/speed.md.
"""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax

from benchmarks import inputs, layers, recurrences, scaling, timing, token, training
from benchmarks.result import HEAD, Result
from scripts.arguments import Parser
from training.files import write_json

BENCHMARKS: dict[str, Callable[[int], Iterator[Result]]] = {
    "layers": layers.results,
    "recurrences": recurrences.results,
    "scaling": scaling.results,
    "training": training.results,
    "seeds": training.seeds,
    "input": inputs.results,
    "token": token.results,
    "mru": recurrences.mru_layers,
}
LONG = ("mru",)
"""Measured if they are named."""


def main() -> None:
    """Reads the options, settles what all sides share, measures."""
    parser = Parser("benchmarks", __doc__, package="")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; default all but {', '.join(LONG)}"
    )
    parser.add_argument("--rounds", type=int, default=11, help="interleaved rounds of timing, at least 11")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="folder of bench.json")
    options = parser.parse_args()
    if options.rounds < 11:
        parser.error(f"--rounds={options.rounds}: at least 11 are needed")
    for name in options.names:
        if name not in BENCHMARKS:
            parser.error(f"unknown benchmark {name!r}: expected one of {', '.join(BENCHMARKS)}")
    allocator = timing.tune_allocator()
    jax.config.update("jax_enable_compilation_cache", False)  # or compile times would be reading times
    # Ours asks for float32 products; the published forms would get TF32 or bfloat16 on an accelerator.
    jax.config.update("jax_default_matmul_precision", "highest")
    machine, began = timing.describe_machine(), time.monotonic()
    print(f"{machine}, float32 matmul {timing.matmul_rate() / 1e9:.0f} GF/s; allocator: {allocator};")
    print(f"{options.rounds} rounds; a ratio is published form / linrec, or as its row says.\n\n{HEAD}", flush=True)
    found: list[Result] = []
    for name in options.names or [name for name in BENCHMARKS if name not in LONG]:
        for result in BENCHMARKS[name](options.rounds):
            found.append(result)
            print(result.row(), flush=True)
            options.out.mkdir(parents=True, exist_ok=True)
            write_json(options.out / "bench.json", [each.record() for each in found])
        jax.clear_caches()
    missed = [result.name for result in found if result.met is False]
    print(f"\n{time.monotonic() - began:.0f} s; {len(missed)} targets missed; {options.out / 'bench.json'}")


if __name__ == "__main__":
    sys.exit(main())
