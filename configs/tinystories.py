"""TinyStories (arXiv 2305.07759): short stories in GPT-2 byte pairs, by the models of the MRU study.

    python -m scripts.prepare_data tinystories_small
    python train.py --config=configs/tinystories.py:task=tinystories_small,model=small_mru,seeds=0:3 --workdir=runs/st
    python eval.py --workdir=runs/st --split=val

Keys after the colon: task (tinystories | tinystories_small), model (a name of configs/language.py), variant (of an
MRU), position (rope | none | xpos_512, of attention), lr, seeds, smoke. tinystories_small is made of the validation
file alone: never report it as TinyStories.

Windows of 512, batches of 80, 5,000 updates at 5e-4 (published: 312 updates of 16 such batches each): a job for an
accelerator.
"""

from ml_collections import ConfigDict

from configs.language import family

TRAINING = {
    "window": 512,
    "batch_size": 80,
    "updates": 5000,
    "lr": 5e-4,
    "final": 1.0,
    "warmup": 250,
    "dropout": 0.0,
}
CHOICES = {"vocab": "top10k", "packing": "separated"}


def get_config(argument: str | None = None) -> ConfigDict:
    """The config of one model."""
    return family(argument, "transformer_33m", ("tinystories", "tinystories_small"), TRAINING, CHOICES)
