"""Writes text with a trained language model, token by token, from the state that its layers carry.

    python -m scripts.sample --workdir=runs/char_mru --prompt="ROMEO:" --length=300 --temperature=0.8 --top_k=20
    python -m scripts.sample --workdir=runs/char_mru --length=100 --state_out=place.npz
    python -m scripts.sample --workdir=runs/char_mru --length=100 --state_in=place.npz      goes on there

The prompt is read in one call; then a token costs the same however many came before. stdout is the text and nothing
else; a text in two parts is, joined, the text drawn at once. Without a prompt a document begins, or a line.

--mode=carry    the state holds all of the text (attention: up to its max_length, more is refused); stops at end-of-text
--mode=window   never more than the last T tokens, T the training window: read anew for every token beyond T
--mode=reset    a new document with a new state at end-of-text, up to --length

Exit code 0: done. 2: refused, one line says why. 3: stopped, the state has outgrown its numbers.
"""

import argparse
import sys
from collections.abc import Sequence

from models.sampling import Drawing, Mode, SamplingError
from scripts.arguments import Parser, positive
from training import cli
from training.errors import ConfigError
from training.sample import Asked, open_trained, sample


def main(argv: Sequence[str]) -> None:
    """Flags -> text on stdout, a line about the model on stderr."""
    flags = _parser().parse_args(argv[1:])
    try:
        drawing = Drawing(flags.temperature, flags.top_k)
    except SamplingError as error:
        raise ConfigError(f"--{error}") from error
    asked = Asked(drawing, flags.prompt, flags.length, Mode(flags.mode), flags.seed, flags.state_in, flags.state_out)
    trained, line = open_trained(flags.workdir, cli.data_dir(flags.data_dir), flags.checkpoint, flags.train_seed)
    print(line, file=sys.stderr, flush=True)
    for part in sample(trained, asked):
        print(part, end="", flush=True)
    if sys.stdout.isatty():
        print()


def _parser() -> Parser:
    parser = Parser("sample", __doc__)
    parser.add_argument("--workdir", type=cli.folder, required=True, help="folder of the run")
    parser.add_argument("--prompt", default="", metavar="TEXT")
    parser.add_argument("--length", type=positive, default=500, metavar="N", help="tokens to draw; default 500")
    parser.add_argument("--temperature", type=float, default=1.0, help="default 1; 0 takes the likeliest token")
    parser.add_argument("--top_k", type=int, default=0, metavar="K", help="draw from the K likeliest; default 0: all")
    parser.add_argument("--seed", type=_seed, metavar="N", help="of the draws; default 0, or as --state_in goes on")
    parser.add_argument("--train_seed", type=int, metavar="N", help="which seed of the run; default: its first")
    parser.add_argument("--checkpoint", default="best", help="best (default), last, or a step")
    parser.add_argument("--data_dir", help="folder of prepared data; default $LINREC_DATA or ~/.cache/linrec")
    parser.add_argument("--mode", choices=[mode.value for mode in Mode], default=Mode.CARRY.value)
    parser.add_argument("--state_in", type=cli.folder, metavar="FILE", help="go on from a saved state")
    parser.add_argument("--state_out", type=cli.folder, metavar="FILE", help="save the state at the end (npz)")
    return parser


def _seed(text: str) -> int:
    if not (text.isdecimal() and int(text) < 2**31):
        raise argparse.ArgumentTypeError(f"{text!r} should be a whole number in 0..2^31-1")
    return int(text)


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv))
