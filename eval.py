"""Scores a checkpoint of a run on a split and records it in results.json.

python eval.py --workdir=runs/listops --split=test --checkpoint=best
python eval.py --workdir=runs/sc35 --split=test --every=2      zero-shot at half the sampling rate
python eval.py --workdir=runs/char --window=1024               a text in longer windows than in training
python eval.py --workdir=runs/char --carried                   the state carried through the whole text
"""

import sys
from collections.abc import Sequence

from absl import flags

from training import cli

FLAGS = flags.FLAGS
flags.DEFINE_string("workdir", None, "Folder of the run.")
flags.DEFINE_enum("split", "val", ["val", "test"], "Split to score.")
flags.DEFINE_string("checkpoint", "best", "best (each seed's own), last, or a step.")
flags.DEFINE_float("step_rescale", 1.0, "Steps of training in one: 2 reads inputs of half the sampling rate.")
flags.DEFINE_integer("every", 1, "Take every so many samples of the normalised input, and rescale the steps by it.")
flags.DEFINE_integer("window", None, "Of a text: inputs of a window; default that of training.")
flags.DEFINE_bool("carried", False, "Of a text: keep the state from window to window (attention: windows that slide).")
flags.DEFINE_string("data_dir", None, "Folder of prepared data; default $LINREC_DATA or ~/.cache/linrec.")


def main(argv: Sequence[str]) -> None:
    """Flags -> one call."""
    cli.parse(argv)
    cli.require(FLAGS, "workdir")
    from training.reading import Reading
    from training.results import score, summary_line

    folder, data_dir = cli.folder(FLAGS.workdir), cli.data_dir(FLAGS.data_dir)
    reading = Reading(FLAGS.step_rescale, FLAGS.every, FLAGS.window, FLAGS.carried)
    record = score(folder, data_dir, FLAGS.split, FLAGS.checkpoint, reading)
    for line in record.get("repairs", ()):
        print(f"warning: {line}", file=sys.stderr)
    print(summary_line(record))


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv))
