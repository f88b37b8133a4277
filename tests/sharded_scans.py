"""Run on 8 forced devices by test_scans_sharded.py: scans with time split over them, against the whole on one device.

Prints JSON: case -> the largest error of values and gradients, relative to the largest entry of each array; and under
"collectives" what a compiled case exchanges, as [operation, shape].
"""

import functools
import json
import os
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from scans import diagonal_layer, matrix_scan, scaled_matrix_scan
from scans.sharded import end_state, long_powers
from tests.test_scans_diagonal import BATCH, MODES, WIDTH, make_system

SHARDS, STEPS = 8, 128  # a part is long enough to be cut into segments, if it were whole


# Nearly all the time is compilation; without optimisation it takes a seventh.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


class Case(NamedTuple):
    """A call of `diagonal_layer`. lengths: of the sequences, or None."""

    way: str
    h0: bool = False
    lengths: tuple[int, ...] | None = None
    method: str = "sequential"
    chunk: int | None = None
    start_gain: bool = False


CASES = {
    "forward": Case("forward", h0=True),
    "backward": Case("backward", h0=True),
    "bidirectional": Case("bidirectional", h0=True),
    "forward_chunked": Case("forward", h0=True, method="chunked", chunk=2),
    "backward_chunked": Case("backward", h0=True, method="chunked", chunk=3),
    "bidirectional_chunked": Case("bidirectional", method="chunked", chunk=2),
    "forward_associative": Case("forward", method="associative"),
    "forward_padded": Case("forward", h0=True, lengths=(STEPS, 0, 13)),
    "forward_padded_chunked": Case("forward", h0=True, lengths=(12, 17, 47), method="chunked", chunk=2),
    "bidirectional_padded": Case("bidirectional", lengths=(STEPS, 5, 18), start_gain=True),
    "bidirectional_padded_chunked": Case("bidirectional", lengths=(STEPS, 5, 18), method="chunked", chunk=2),
    "backward_stationary_chunked": Case("backward", method="chunked", chunk=3, start_gain=True),
    "forward_stationary": Case("forward", start_gain=True),
}
if not os.environ.get("LINREC_TEST_ALL"):
    few = ("backward", "forward_padded_chunked", "bidirectional_chunked", "bidirectional_padded")
    CASES = {name: CASES[name] for name in few}


def mesh():
    return jax.make_mesh((SHARDS,), ("sequence",), axis_types=(AxisType.Auto,))


def error(found, expected):
    """The largest difference of any leaf, relative to its largest entry."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return max(float(np.abs(x - y).max() / max(np.abs(y).max(), 1e-300)) for x, y in pairs)


def drawn(*shape, seed):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def programs(case):
    """Value and gradients with time split, and whole; the arguments of both."""
    both = case.way == "bidirectional"
    system = make_system(bidirectional=both)
    h0 = drawn(*((2,) if both else ()), BATCH, 2 * MODES, seed=1) if case.h0 else None
    lengths = None if case.lengths is None else jnp.asarray(case.lengths)
    g = drawn(BATCH, STEPS, WIDTH, seed=2)

    def layer(system, u, h0, lengths, **options):
        if case.start_gain:
            system = system._replace(start_gain=(-jnp.expm1(2 * system.log_mag)) ** -0.5)
        return diagonal_layer(system, u, h0, mask=lengths, reverse=case.way == "backward", **options)

    def part(system, u, h0, lengths):
        here = jax.lax.axis_index("sequence")
        own = None if lengths is None else jnp.clip(lengths - here * u.shape[1], 0, u.shape[1])
        return layer(system, u, h0, own, method=case.method, chunk=case.chunk, axis="sequence")

    over_time = P(None, "sequence")
    split = jax.shard_map(
        part, mesh=mesh(), in_specs=(P(), over_time, P(), P()), out_specs=(over_time, P()), check_vma=False
    )

    def loss(run, system, u, h0):
        y, last = run(system, u, h0, lengths)
        return (g * y).sum() + jnp.sin(last).sum(), (y, last)

    gradient = jax.value_and_grad(loss, (1, 2) if h0 is None else (1, 2, 3), has_aux=True)
    arguments = (system, drawn(BATCH, STEPS, WIDTH, seed=3), h0)
    return jit(functools.partial(gradient, split)), jit(functools.partial(gradient, layer)), arguments


def diagonal_cases():
    """The errors of all cases, and what the backward one and the bidirectional one in chunks exchange."""
    errors, exchanged = {}, {}
    for name, case in CASES.items():
        split, whole, arguments = programs(case)
        compiled = split.lower(*arguments).compile()
        errors[name] = error(compiled(*arguments), whole(*arguments))
        if name in ("backward", "bidirectional_chunked"):
            exchanged[name] = collectives(compiled.as_text())
    return errors | {"collectives": exchanged}


def matrix_errors():
    """Products of matrices, plain with a start and resets, and rescaled."""
    rng = np.random.default_rng(0)
    m = jnp.asarray(np.eye(3) + 0.4 * rng.normal(size=(2, STEPS, 2, 3, 3)))
    h0, reset = jnp.asarray(rng.normal(size=(2, 2, 3, 3))), jnp.asarray(rng.random((2, STEPS)) < 0.1)
    reset = reset.at[0].set(False)
    g = jnp.asarray(rng.normal(size=m.shape))

    def plain(m, h0, reset, **options):
        return matrix_scan(m, h0, reset=reset, **options)

    def scaled(m, h0, reset, **options):
        h, last = scaled_matrix_scan(m, None, reset=reset, **options)
        # Directions and whole log norms, whose gradients are exact.
        size = jnp.linalg.norm(h.matrix, axis=(-1, -2), keepdims=True)
        return h.matrix / size + jnp.log(size) + h.log_scale[..., None, None], last.matrix

    found = {}
    for name, scan, method in (
        ("matrix", plain, "associative"),
        ("matrix_scaled", scaled, "sequential"),
    ):
        over_time = P(None, "sequence")
        split = jax.shard_map(
            functools.partial(scan, method=method, axis="sequence"), mesh=mesh(), in_specs=(over_time, P(), over_time),
            out_specs=(over_time, P()), check_vma=False,
        )  # fmt: skip

        def loss(run, m, h0):
            h, last = run(m, h0, reset)
            return (g * h).sum() + last.sum(), (h, last)

        gradient = jax.value_and_grad(loss, (1, 2), has_aux=True)
        found[name] = error(*(jit(functools.partial(gradient, run))(m, h0) for run in (split, scan)))
    return found


def powers_error():
    """In float32, of lambda^k and of an end state at k up to 12345, |lambda| = 0.9999, against complex128."""
    system = make_system()
    system = system._replace(log_mag=jnp.full(MODES, np.log(0.9999)), phase=jnp.linspace(0.1, 6.0, MODES))
    single = jax.tree.map(lambda x: x.astype(jnp.float32), system)
    exact = jax.tree.map(lambda x: np.asarray(x, np.float64), single)
    exponents, v = np.array([12345, 12346]), drawn(5000, 1, 2 * MODES, seed=4).astype(jnp.float32)
    powers = np.exp(exponents[:, None] * (exact.log_mag + 1j * exact.phase))
    as_complex = lambda x: np.asarray(x[..., :MODES], np.float64) + 1j * np.asarray(x[..., MODES:])  # noqa: E731
    weights = np.exp(np.arange(4999, -1, -1)[:, None] * (exact.log_mag + 1j * exact.phase))
    end = (weights[:, None] * as_complex(v)).sum(0)
    return {
        "powers": error(as_complex(long_powers(single, exponents)), powers),
        "end_state": error(as_complex(end_state(single, v, 1, backward=False)), end),
    }


def collectives(text):
    """[operation, shape] of every exchange in a compiled value and gradient."""
    return re.findall(
        r"= (?:\()?(\w+\[[\d,]*\]).*? (all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)\(", text
    )


if __name__ == "__main__":
    with jax.enable_x64(True):
        print(json.dumps(diagonal_cases() | matrix_errors() | powers_error()))
