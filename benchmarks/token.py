"""One token after another: what a step of a language model costs, and whether its place in the text matters."""

import dataclasses
from collections.abc import Iterator

import jax
import jax.numpy as jnp
from flax import nnx

from benchmarks import timing
from benchmarks.result import Result, of_ratio
from configs.language import language_config
from configs.mru_study import TRAINING
from data.prepared import smoke_data
from training.config import from_config_dict
from training.state import initial_params_of_all, make_program

DEPTH, WIDTH, EARLY, LATE, TOKENS = 6, 128, 8, 8192, 50
LAYERS = {
    "rotrnn": {"state_size": 128, "heads": 16, "direction": "forward"},
    "lru": {"state_size": 64, "direction": "forward"},
    "s5": {"state_size": 128, "blocks": 4, "direction": "forward"},
    "mru": {"state_size": 128, "heads": 2},
    "linear_attention": {"heads": 4},
}


def results(rounds: int) -> Iterator[Result]:
    """All rows of this benchmark."""
    for layer, options in LAYERS.items():
        early, late = _places(layer, options)
        timing.interleave((early, late), rounds)
        name = f"one token, {layer}, width {WIDTH}, depth {DEPTH}, batch 1"
        each = timing.ratio(early.wall, [1e-3 * TOKENS] * rounds)  # milliseconds
        yield Result(name, each.median, "ms", (each.low, each.high), 1, ceiling=True)
        what = f"{name}: after {LATE} tokens / after {EARLY}"
        yield of_ratio(what, timing.ratio(late.wall, early.wall), 1.05, ceiling=True)


def _places(layer: str, options: dict) -> tuple[timing.Program, timing.Program]:
    """The same compiled step, `TOKENS` times from two places of a text; the state is read from a call over whole
    sequences."""
    model = (layer, WIDTH, DEPTH, (layer, "mlp"), options)
    config = from_config_dict(language_config("shakespeare_char", model, TRAINING, {"packing": "separated"}))
    program = make_program(config, smoke_data(config.data.request).spec)
    params = jax.tree.map(lambda leaf: leaf[0], initial_params_of_all(program))
    token = jnp.ones(1, jnp.int32)

    def step(params, systems, state):
        return nnx.merge(program.graphdef, params).step(token, state, systems)

    def after(length):
        text = jnp.arange(length)[None] % program.task.input_width
        return jax.jit(lambda p: nnx.merge(program.graphdef, p)(text, jnp.full(1, length)).state)(params)

    states = after(EARLY), after(LATE)
    systems = jax.jit(lambda p: nnx.merge(program.graphdef, p).systems())(params)  # once, as a sampler does
    compiled = timing.compile_program("step", step, params, systems, states[0])

    def runner(start):
        def run():
            state = start
            for _ in range(TOKENS):
                logits, state = compiled.compiled(params, systems, state)
                jax.block_until_ready(logits)  # as a sampler does, which draws the next token from them

        return run

    early, late = (dataclasses.replace(compiled, run=runner(state), wall=[], cpu=[]) for state in states)
    return early, late
