"""Run on 8 forced devices by test_training_mesh.py: training on meshes against training on one of the devices.

Prints JSON. "split": layer -> the largest difference of losses and of parameters after a few steps, relative to the
largest entry, and the number of elements of the largest array that the compiled step gathers; "seeds": that difference
for seeds on two devices, and how often the compiled step exchanges anything; "resumed": rows and log of runs.
"""

import dataclasses
import json
import math
import os
import pathlib
import re
import sys

import jax
import numpy as np

from configs import shakespeare_char
from data.spec import NO_LABEL, InputKind, TaskKind, TaskSpec
from models.build import Backbone
from tests.tiny import TASK, fresh_of, stacked_batch, tiny_config, tiny_split
from training.config import ExperimentConfig, MeshConfig, from_config_dict
from training.errors import PreemptedError
from training.loop import train
from training.mesh import fetch, make_mesh, place, place_batch, share_of, split_seeds, using
from training.step import make_train_step
from training.writers import read_metrics

SPLIT, STEPS, BATCH, SEEDS = tiny_split(40), 3, 8, (0, 1, 2, 3)
ONE = MeshConfig(batch=1)

LAYERS = {
    "rotrnn": {"model.options.direction": "backward", "model.options.chunk": 2},
    "lru": {"model.options.direction": "bidirectional", "model.norm": "batch", "model.precision": "bfloat16"},
    "s5": {"model.dropout": 0.2},
    "mru": {},
}
MODELS = (*LAYERS, "language")
ALL = bool(os.environ.get("LINREC_TEST_ALL"))
if not ALL:
    MODELS = ("lru",)


TEXT = TaskSpec("text", TaskKind.LANGUAGE, InputKind.TOKENS, input_width=11, length=12, classes=11)


def text_batch(step: int):
    """Random tokens, of one seed; one text is shorter."""
    tokens = np.random.default_rng(step).integers(0, 11, (1, BATCH, TEXT.length + 1), np.int32)
    lengths = np.full((1, BATCH), TEXT.length, np.int32)
    lengths[0, 0] = 5
    labels = np.where(np.arange(TEXT.length) < lengths[..., None], tokens[..., 1:], NO_LABEL)
    return {"inputs": tokens[..., :-1], "lengths": lengths, "labels": labels}


def stepped(config: ExperimentConfig, shape: MeshConfig):
    """Losses of all steps and the parameters after them; the text of the compiled step."""
    config = dataclasses.replace(config, mesh=shape)
    text_model = config.model.backbone is Backbone.LANGUAGE
    program, state = fresh_of(config, TEXT if text_model else TASK)
    mesh = make_mesh(BATCH, "batch", shape)
    share = share_of(mesh, len(config.seeds), BATCH)
    step, losses = make_train_step(program), []
    state = place(state, split_seeds(mesh))
    drawn = [text_batch(i) if text_model else stacked_batch(SPLIT, config.seeds, i, BATCH) for i in range(STEPS)]
    batches = [place_batch(mesh, batch, share, seeds=True) for batch in drawn]
    with jax.set_mesh(mesh):
        compiled = step.lower(state, batches[0], np.int32(0)).compile()
    for i, batch in enumerate(batches):
        state, metrics = using(mesh, compiled)(state, batch, np.int32(i))
        losses.append(metrics.loss)
    return fetch(mesh, (losses, state.params)), compiled.as_text() or ""


def difference(found, expected):
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return max(float(np.abs(x - y).max() / (np.abs(y).max() + 1e-6)) for x, y in pairs)


def gathered(text):
    """Elements of the largest array that any all-gather or all-to-all makes."""
    found = re.findall(r"= \(?\w+\[([\d,]*)\][^=]*? (?:all-gather|all-to-all)\(", text)
    return max((math.prod(int(n) for n in dims.split(",") if n) for dims in found), default=0)


def config_of(layer: str) -> ExperimentConfig:
    """Of one of LAYERS, or of a language model of an MRU and an MLP."""
    if layer == "language":
        return from_config_dict(shakespeare_char.get_config("model=small_mru,seeds=0,smoke").to_dict())
    return tiny_config(layer, {"seeds": (0,), "train.batch_size": BATCH, **LAYERS[layer]})


def split_time():
    """Time split in three, records in two."""
    result = {}
    for layer in MODELS:
        config = config_of(layer)
        (found, text), (expected, _) = stepped(config, MeshConfig(batch=2, sequence=3)), stepped(config, ONE)
        result[layer] = [difference(found, expected), gathered(text)]
    return result


def seeds_on_two():
    """The largest difference when two devices share four seeds, as above."""
    config = tiny_config("lru", {"seeds": SEEDS, "train.batch_size": BATCH})
    (found, text), (expected, _) = stepped(config, MeshConfig(batch=1, seeds=2)), stepped(config, ONE)
    return [difference(found, expected), len(re.findall("all-reduce|all-gather|all-to-all|collective-permute", text))]


def resumed(folder: pathlib.Path):
    """The losses of a run that changes its mesh twice, and of one that stays on one device."""
    config = tiny_config("lru", {"seeds": (0, 1), "model.depth": 1})
    shapes = (MeshConfig(seeds=2, sequence=2), ONE, MeshConfig(seeds=2, sequence=2))

    def part(shape: MeshConfig, workdir: pathlib.Path, steps: int):
        calls = iter(range(100))  # before the first step, and after each
        try:
            train(dataclasses.replace(config, mesh=shape), workdir, folder, lambda: next(calls) == steps)
        except PreemptedError:
            return

    for shape in shapes:
        part(shape, folder / "changing", 4)
    part(ONE, folder / "still", 99)
    rows = [
        [[row["step"], row["seed"], row["split"], row["loss"]] for row in read_metrics(folder / name / "metrics.jsonl")]
        for name in ("changing", "still")
    ]
    return {"rows": rows, "log": (folder / "changing" / "train.log").read_text()}


if __name__ == "__main__":
    assert TASK.length % 3 == 0
    result = {"split": split_time(), "resumed": resumed(pathlib.Path(sys.argv[1]))}
    print(json.dumps(result | ({"seeds": seeds_on_two()} if ALL else {})))
