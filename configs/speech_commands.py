"""Spoken words from raw samples: Speech Commands with 35 classes or ten, and the Free Spoken Digit Dataset.

    python -m scripts.prepare_data sc35
    python train.py --config=configs/speech_commands.py:task=sc35,layer=s5,seeds=0:3 --workdir=runs/sc35_s5
    python eval.py --workdir=runs/sc35_s5 --split=test
    python eval.py --workdir=runs/sc35_s5 --split=test --every=2

The last line is the zero-shot test at 8 kHz: every second sample, read with steps twice as long (S5 by its step sizes,
RotRNN and the LRU by the rule `held`).

Keys after the colon: task (sc35 | sc10 | fsdd), and those of configs/lra.py. sc35 has the published settings: S5 96.52
%, 8 kHz 94.53 % (arXiv 2208.04933); RotRNN and the LRU of its authors 95.2 % (arXiv 2407.07239). sc10 and fsdd take
theirs. 212,080 steps of 16 clips of 16,000 samples: a job for an accelerator, not run here. fsdd is small: minutes on
two cores when it is cut (--config.data.steps); its six speakers are in training and test.
"""

from ml_collections import ConfigDict

from configs.experiment import family

TASKS = ("sc35", "sc10", "fsdd")
NORMALISATION = {"normalisation": "published"}


def get_config(argument: str | None = None) -> ConfigDict:
    """The config of one row of the table."""
    return family(argument, TASKS, {"sc35": NORMALISATION, "sc10": NORMALISATION})
