"""shakespeare-char: the next character of one million, 65 of them, by the models of the MRU study.

    python -m scripts.prepare_data shakespeare_char
    python train.py --config=configs/shakespeare_char.py:model=small_mru,variant=ldu,seeds=0:3 --workdir=runs/char_mru
    python eval.py --workdir=runs/char_mru --split=val

Keys after the colon: model (a name of configs/language.py), variant (of an MRU), position (rope | none | xpos_512, of
attention), real_state_size (numbers that a layer carries), lr, seeds, smoke. There is no test split: val is what is
reported, at the lowest validation loss or last.

Windows of 256, batches of 64, 5,000 updates, AdamW (0.9, 0.99), dropout 0.2: the published setting
(mikayahlevi/mru-lm), with a gradient clipped as a whole (1.0), and warm-up over 100 updates and a cosine from 1e-3 to
1e-4 that end with the run. A job for an accelerator.
"""

from ml_collections import ConfigDict

from configs.language import family

TRAINING = {
    "window": 256,
    "batch_size": 64,
    "accumulate": 1,
    "updates": 5000,
    "lr": 1e-3,
    "final": 0.1,
    "warmup": 100,
    "b2": 0.99,
    "dropout": 0.2,
}


def get_config(argument: str | None = None) -> ConfigDict:
    """The config of one model."""
    return family(argument, "small_mru", ("shakespeare_char",), TRAINING, {"packing": "separated"})
