"""Trains one config, all its seeds in one program; the same command goes on where a run stopped.

    python train.py --config=configs/lra.py:task=listops,layer=rotrnn --workdir=runs/listops

`--print` shows the resolved config, the parameters and the data that are needed, and stops. `--sync` uploads the runs
in and below --workdir to wandb, whether they had such a mirror or not, and stops.
"""

import sys
from collections.abc import Sequence

from absl import flags
from ml_collections import config_flags

from training import cli

FLAGS = flags.FLAGS
config_flags.DEFINE_config_file("config", None, "configs/FAMILY.py:key=value,...", lock_config=True)
flags.DEFINE_string("workdir", None, "Folder of the run.")
flags.DEFINE_string("data_dir", None, "Folder of prepared data; default $LINREC_DATA or ~/.cache/linrec.")
flags.DEFINE_bool(
    "distributed", False, "One of several processes; SLURM, a TPU pod, Open MPI or Kubernetes knows them."
)
flags.DEFINE_string("coordinator", None, "HOST:PORT of process 0, where nothing else knows of the processes.")
flags.DEFINE_integer("processes", None, "How many there are.")
flags.DEFINE_integer("process", None, "Which of them this is, from 0.")
flags.DEFINE_bool("print", False, "Show what would be run, and stop.")
flags.DEFINE_bool("sync", False, "Upload the runs in --workdir to wandb, from their metrics.jsonl, and stop.")


def main(argv: Sequence[str]) -> None:
    """Flags -> one call."""
    cli.parse(argv)
    if FLAGS.sync:
        from training.mirrors import upload

        cli.require(FLAGS, "workdir")
        for line in upload(cli.folder(FLAGS.workdir)):
            print(line)
        return
    cli.require(FLAGS, "config", *([] if FLAGS.print else ["workdir"]))
    processes = FLAGS.coordinator, FLAGS.processes, FLAGS.process
    if FLAGS.distributed or processes != (None,) * 3:
        from training.distributed import join

        join(*processes)
    from training.config import from_config_dict
    from training.describe import describe, warn_unused_gpu
    from training.loop import train

    config = from_config_dict(FLAGS.config)
    data_dir = cli.data_dir(FLAGS.data_dir)
    if FLAGS.print:
        print(describe(config, data_dir))
        return
    warn_unused_gpu()
    train(config, cli.folder(FLAGS.workdir), data_dir, cli.asked_to_stop())


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv))
