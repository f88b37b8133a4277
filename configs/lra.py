"""Long Range Arena (arXiv 2011.04006), every layer on every task, in the settings of the published tables.

Prepare the data once, then train all seeds of a row in one program and score it:

    python -m scripts.prepare_data listops
    python train.py --config=configs/lra.py:task=listops,layer=rotrnn,seeds=0:3 --workdir=runs/listops_rotrnn
    python eval.py --workdir=runs/listops_rotrnn --split=test

A look at the same program in seconds, on a sample made in memory:

    python train.py --config=configs/lra.py:task=listops,layer=rotrnn,smoke --workdir=runs/smoke

Keys after the colon: task (listops | text | retrieval | image | pathfinder | pathx | path256), layer (rotrnn | lru | s5
| mru | dense | attention | linear_attention | mlp), preset (clean | published), depth, real_state_size, direction
(forward | bidirectional), seeds (3, 0:3 or 0+4+7), smoke. Every other key by --config.group.key=value. `--print` shows
what they resolve to, and the published number. real_state_size is how many real numbers a layer carries in each
direction: by it layers are compared, as `state_size` counts complex modes in some.

preset=clean is a sound schedule and masks that leave padding out of everything; Text is selected on 2,500 of the
training reviews. preset=published is what the published code does (configs/experiment.py): only its numbers may stand
beside the published ones.

Full size is a job for an accelerator. Published for the LRU on one A100, hours of training: ListOps 10.6, Text 0.9,
Retrieval 4.9, Image in colour 3.1, Pathfinder 9.0, Path-X 29 (arXiv 2303.06349). None of it was run here.
"""

from ml_collections import ConfigDict

from configs.experiment import family

TASKS = ("listops", "text", "retrieval", "image", "pathfinder", "pathx", "path256")
PATHFINDER = {"law": "upstream", "origin": "generated"}
CHOICES = {
    "text": {"policy": "val_from_train"},
    "retrieval": {"quoting": "plain"},
    **dict.fromkeys(("pathfinder", "pathx", "path256"), PATHFINDER),
}


def get_config(argument: str | None = None) -> ConfigDict:
    """The config of one row of the table."""
    return family(argument, TASKS, CHOICES)
