"""Images pixel by pixel beside the arena: CIFAR-10 in colour, MNIST in order and permuted.

    python -m scripts.prepare_data scifar
    python train.py --config=configs/pixels.py:task=scifar,layer=lru,seeds=0:3 --workdir=runs/scifar_lru
    python eval.py --workdir=runs/scifar_lru --split=test

Keys after the colon: task (scifar | smnist | psmnist), and those of configs/lra.py. scifar has the published settings
of the LRU, 89.0 (0.1) % (arXiv 2303.06349, where it stands in the column Image; 3.1 hours on one A100), S5 those of
the grey images; the MNIST tasks take the sizes of Pathfinder. None of it was run at full size here.
"""

from ml_collections import ConfigDict

from configs.experiment import family

TASKS = ("scifar", "smnist", "psmnist")


def get_config(argument: str | None = None) -> ConfigDict:
    """The config of one row of the table."""
    return family(argument, TASKS, {"psmnist": {"permutation": "bit_reversal"}})
