"""TinyStories (arXiv 2305.07759): short stories in GPT-2 byte pairs, by the models of the MRU study.

    python -m scripts.prepare_data tinystories_small
    python train.py --config=configs/tinystories.py:task=tinystories_small,model=small_mru,seeds=0:3 --workdir=runs/st
    python eval.py --workdir=runs/st --split=val

Keys after the colon: task (tinystories | tinystories_small), model (a name of configs/language.py), variant (of an
MRU), position (rope | none | xpos_512, of attention), real_state_size (numbers that a layer carries), lr, seeds, smoke.
tinystories_small is made of the validation file alone: never report it as TinyStories.

Windows of 512, 312 updates of 1,280 windows (655,360 tokens) at 5e-4 after a warm-up over 5 % of them, AdamW (0.9,
0.95): the published setting (mikayahlevi/mru-lm), with a gradient clipped as a whole (1.0). It is taken in 16 parts of
80 windows (train.accumulate). A job for an accelerator.
"""

from ml_collections import ConfigDict

from configs.language import family

TRAINING = {
    "window": 512,
    "batch_size": 1280,
    "accumulate": 16,
    "updates": 312,
    "lr": 5e-4,
    "final": 1.0,
    "warmup": 16,
    "b2": 0.95,
    "dropout": 0.0,
}
CHOICES = {"vocab": "top10k", "packing": "separated"}


def get_config(argument: str | None = None) -> ConfigDict:
    """The config of one model."""
    return family(argument, "transformer_33m", ("tinystories", "tinystories_small"), TRAINING, CHOICES)
