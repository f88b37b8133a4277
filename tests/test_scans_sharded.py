"""Scans with time split over 8 devices against the whole on one, and what may not be split."""

import json
import math

import jax.numpy as jnp
import pytest
from commands import on_devices

from scans import diagonal_layer
from tests import sharded_scans
from tests.test_scans_diagonal import BATCH, MODES, WIDTH, make_system

EXACT = {*sharded_scans.CASES, "matrix", "matrix_scaled"}


@pytest.fixture(scope="module")
def found():
    """What the script prints, one process for all cases."""
    return json.loads(on_devices(sharded_scans.SHARDS, "sharded_scans.py"))


@pytest.mark.parametrize("name", sorted(EXACT))
def test_values_and_gradients_equal_those_of_one_device(found, name):
    assert found[name] < 1e-12


def test_long_powers_keep_their_digits(found):
    """In float32 exp(k log lambda) would be wrong by 1e-3 here."""
    assert found["powers"] < 2e-6
    assert found["end_state"] < 2e-5


@pytest.mark.parametrize("name", ["backward", "bidirectional_chunked"])
def test_nothing_as_long_as_time_is_exchanged(found, name):
    """Gathered are the end states (S, B, 2N); gradients of the system and of h0 are summed."""
    sizes = {}
    for shape, operation in found["collectives"][name]:
        dims = [int(n) for n in shape[shape.index("[") + 1 : -1].split(",") if n]
        sizes.setdefault(operation, []).append(math.prod(dims))
    ways = 2 if name.startswith("bidirectional") else 1
    assert sizes["all-gather"] == [sharded_scans.SHARDS * BATCH * 2 * MODES] * ways
    assert sizes.keys() <= {"all-gather", "all-reduce", "reduce-scatter"}
    assert max(map(max, sizes.values())) < sharded_scans.STEPS * BATCH * WIDTH


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"reset": jnp.zeros((BATCH, 6), bool)}, "a reset"),
        ({"mask": jnp.ones((BATCH, 6), bool)}, "a mask of flags: parts take lengths"),
        (
            {"mask": jnp.ones(BATCH, int), "h0": jnp.zeros((BATCH, 2 * MODES)), "reverse": True},
            "a backward pass over padding that starts from a state",
        ),
        ({"method": "chunked", "chunk": 4}, "parts of 6 steps on each device are no whole chunks of 4"),
    ],
)
def test_what_parts_cannot_do_is_refused(x64, given, line):
    with pytest.raises(ValueError, match=line):
        diagonal_layer(make_system(), jnp.zeros((BATCH, 6, WIDTH)), **given, axis="sequence")
