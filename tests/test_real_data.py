"""Real files from end to end: prepared, trained on for some steps, scored; collected with $LINREC_DATA_SOURCE only."""

import os
import pathlib

import numpy as np
import pytest

from configs import lra, pixels, shakespeare_char, speech_commands
from data import prepared
from data.registry import resolved_choices
from training.config import from_config_dict
from training.loop import train
from training.results import score, summary_line

ROWS = {
    "text": (lra, "layer=lru", {"limit": 40, "steps": 200}),
    "image": (lra, "layer=mlp", {"limit": 40, "steps": 100}),
    "scifar": (pixels, "layer=mlp", {"limit": 40, "steps": 100}),
    "sc35": (speech_commands, "layer=s5", {"steps": 400}),
    "sc10": (speech_commands, "layer=mlp", {"steps": 400}),
    "fsdd": (speech_commands, "layer=mlp", {"limit": 40, "steps": 400}),
    "shakespeare_char": (shakespeare_char, "model=small_mlp", {"steps": 64}),
}
OFFICIAL = ("fsdd", "shakespeare_char")

if "LINREC_DATA_SOURCE" in os.environ:

    @pytest.mark.parametrize("task", ROWS)
    def test_real_files_are_prepared_trained_on_and_scored(task, tmp_path):
        family, row, changes = ROWS[task]
        plain = family.get_config(f"task={task},{row},smoke").to_dict()
        plain["data"] |= {"smoke": False, "partial": task not in OFFICIAL, **changes}
        plain["train"] |= {"steps": 4, "eval_every": 4, "checkpoint_every": 4, "probe_every": 4}
        config = from_config_dict(plain)
        source = pathlib.Path(os.environ["LINREC_DATA_SOURCE"])
        manifest = prepared.prepare(config.data.request, tmp_path / "data", data_source=source, processes=1)
        assert {found["official"] for found in manifest["sources"]} <= {task in OFFICIAL, None}
        train(config, tmp_path / "run", tmp_path / "data")
        record = score(tmp_path / "run", tmp_path / "data", "test", "last")
        assert record["partial"] == (task != "shakespeare_char")
        assert record["data_sha256"] == manifest["content_sha256"]
        assert record["data"].startswith(task)
        assert len(record["manifest_sha256"]) == 64
        assert record["choices"] == resolved_choices(config.data.request)
        assert np.isfinite(record["seeds"]["0"]["loss"])
        assert ("(partial data)" in summary_line(record)) == record["partial"]
        prepared.verify(config.data.request, tmp_path / "data", processes=1)
