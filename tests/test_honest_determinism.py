"""The same config, seed and machine give the same bits: every layer trained, every data set made, twice.

Not here: a seed alone and among others (test_training_step), a run that was killed, compiled anew or read from the
compilation cache (test_training_resume), any number of processes that prepare data (test_data_store,
test_data_pathfinder, test_data_tinystories), data prepared of files twice (test_honest_leaks).
"""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from commands import ROOT
from tiny import assert_same_bits, fresh, stacked_batch, tiny_config, tiny_split

from data.prepared import smoke_data
from data.registry import DATA_SETS
from data.spec import DataRequest
from models.registry import LAYERS
from training.step import make_train_step

BATCH, UPDATES = 8, 2


@pytest.mark.parametrize("layer", LAYERS)
def test_a_program_made_twice_gives_the_same_bits(layer):
    """Initial parameters; the program to the last letter; parameters, moments of the optimiser and metrics after two
    updates with dropout. Compiled once: test_training_resume compares what is compiled of equal programs."""
    config = tiny_config(layer, {"model.depth": 1, "model.dropout": 0.1, "train.batch_size": BATCH})
    (program, state), (again, other) = fresh(config), fresh(config)
    assert_same_bits(state, other)
    split = tiny_split()
    first = stacked_batch(split, config.seeds, 0, BATCH)
    lowered, twin = (make_train_step(each).lower(state, first, np.int32(0)) for each in (program, again))
    assert lowered.as_text() == twin.as_text()
    step, ended = lowered.compile(), []
    for begun in (state, other):
        metrics = []
        for update in range(UPDATES):
            begun, found = step(begun, stacked_batch(split, config.seeds, update, BATCH), np.int32(update))
            metrics.append(jax.device_get(found))
        ended.append((begun, metrics))
    assert_same_bits(*ended)
    assert np.isfinite(ended[0][1][-1].loss).all()


SAMPLES = """
import json, sys
from data.prepared import smoke_data
from data.spec import DataRequest
print(json.dumps({task: smoke_data(DataRequest(task)).content_sha256 for task in sys.argv[1:]}))
"""


def test_a_sample_of_every_data_set_is_the_same_in_another_process():
    """With other hashes of strings, by which sets are ordered."""
    environment = os.environ | {"PYTHONHASHSEED": "12345"}
    command = [sys.executable, "-c", SAMPLES, *DATA_SETS]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    found = {task: smoke_data(DataRequest(task)).content_sha256 for task in DATA_SETS}
    assert json.loads(done.stdout) == found
    assert len({*found.values()}) > len(found) // 2, "they are different samples"
