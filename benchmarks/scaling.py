"""What grows with the length of a sequence and what does not: time per token, compile time, size of the program."""

from collections.abc import Iterator
from typing import Any, cast

from flax import nnx

from benchmarks import layers, timing
from benchmarks.result import Result, of_ratio
from models.registry import layer_spec

TOKENS, SHORT, LONG, WIDTH = 65536, 1024, 65536, 64
LAYERS: dict[str, dict[str, Any]] = {
    "rotrnn": {"state_size": 128, "heads": 16},
    "lru": {"state_size": 64},
    "s5": {"state_size": 128, "blocks": 4},
    "mru": {"state_size": 128, "heads": 2},
    "linear_attention": {"heads": 4},
    "mlp": {},
}
"""Of 128 real numbers where a layer has a state to choose."""


def results(rounds: int) -> Iterator[Result]:
    """All rows of this benchmark."""
    for name in LAYERS:
        long, short = (_compile(name, TOKENS // steps, steps) for steps in (LONG, SHORT))
        timing.interleave((long, short), rounds)
        what = f"{name} D={WIDTH}: time per token, T={LONG} / T={SHORT}, B T = {TOKENS}"
        yield of_ratio(what, timing.ratio(long.wall, short.wall), 1.2, ceiling=True)
    for name, layer, limit in (("LRU", layers.lru, 1.5), ("RotRNN", layers.rotrnn, 2.5)):
        batch, steps, width = layers.FIRST.input
        sizes = (batch, steps, width), (batch, 4 * steps, width)
        one, other = (layers.compile_layer(name, layer(layers.FIRST), size) for size in sizes)
        yield Result(f"{name} {layers.FIRST}: compile time", one.compile_seconds, "s", target=limit, ceiling=True)
        yield Result(f"{name}: HLO operations", one.hlo_ops, "")
        more = other.hlo_ops - one.hlo_ops
        yield Result(f"{name}: HLO operations more at T={4 * steps}", more, "", target=0, ceiling=True)


def _compile(name: str, batch: int, steps: int) -> timing.Program:
    layer = layer_spec(name).build(WIDTH, LAYERS[name], nnx.Rngs(0))
    return layers.compile_layer(name, cast(nnx.Module, layer), (batch, steps, WIDTH))
