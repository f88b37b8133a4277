"""Stories of a small grammar, in the published file format, from the file to a sample."""

import math
from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pytest
from language import write_byte_pairs

from configs import tinystories
from data import prepared
from models.sampling import Drawing
from tests.test_data_tinystories import grammar, write_file
from training.config import from_config_dict
from training.loop import train
from training.results import score
from training.sample import Asked, open_trained, sample
from training.writers import read_metrics

STEPS, WINDOW = 200, 24


@pytest.fixture(scope="module", params=["separated", "published"])
def run(request, tmp_path_factory):
    """(config, folder of the run, folder of the data): an MRU after 200 updates, each of two parts."""
    folder = tmp_path_factory.mktemp("stories")
    write_byte_pairs(folder)
    write_file(folder / "TinyStories-valid.txt", grammar(0, 400))
    plain = tinystories.get_config("task=tinystories_small,model=mru_same_depth,smoke,lr=0.01").to_dict()
    plain["data"].update(smoke=False, partial=True, choices={"vocab": "top10k", "packing": request.param})
    plain["model"].update(sublayers=("mru", "mlp"), depth=1)
    plain["model"]["options"].update(sublayers=2)
    plain["train"].update(
        steps=STEPS, accumulate=2, eval_every=STEPS, checkpoint_every=STEPS, probe_every=STEPS, eval_batch_size=16
    )
    config = from_config_dict(plain)
    prepared.prepare(config.data.request, folder / "data", data_source=folder, processes=1)
    with redirect_stdout(StringIO()):
        train(config, folder / "run", folder / "data")
    return config, folder / "run", folder / "data"


def test_it_learns_more_than_the_frequencies(run):
    config, folder, data_dir = run
    record = score(folder, data_dir, "val", "last")
    assert record["partial"]
    assert record["choices"]["packing"] == config.data.choices["packing"]
    assert record["mean"] < 0.5 * record["baselines"]["unigram_loss"]
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if row["split"] == "train"]
    assert rows[-1]["tokens"] == STEPS * config.train.batch_size * WINDOW


def test_bits_are_counted_over_the_bytes_of_the_targets(run):
    """All nats over ln 2 and the bytes of all tokens but the first of each segment."""
    config, folder, data_dir = run
    record = score(folder, data_dir, "val", "last")
    split = prepared.open_data(config.data.request, data_dir).splits["val"]
    labels = np.concatenate([found[found >= 0] for found in split.gather(range(len(split)))["labels"]])
    tokens = prepared.open_tokenizer(config.data.request, data_dir)
    length = len(tokens.bytes_of(labels[labels != (-1 if tokens.end_of_text is None else tokens.end_of_text)]))
    seed = record["seeds"]["0"]
    assert seed["bits_per_byte"] == pytest.approx(seed["loss"] * len(labels) / math.log(2) / length, rel=1e-6)
    assert 0.3 < seed["bits_per_byte"] < seed["bits_per_token"]


def test_it_tells_stories(run):
    """The most likely text has what all stories have."""
    _, folder, data_dir = run
    trained, _ = open_trained(folder, data_dir, "last", None)
    text = "".join(sample(trained, Asked(Drawing(temperature=0.0), prompt="One day, ", length=60)))
    assert text.startswith("One day, ")
    assert any(part in text for part in ("saw the ", "“Is this the "))
