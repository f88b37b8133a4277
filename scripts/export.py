"""Writes the parameters of a trained model to one file that needs nothing of linrec to be read.

    python -m scripts.export --workdir=runs/listops --out=listops.safetensors
    python -m scripts.export --workdir=runs/listops --seed=1 --checkpoint=last --out=listops.npz

Arrays have dotted names, `blocks.0.layer.nu_log`, and the bits of the checkpoint; the running averages of batch norm
are `blocks.0.norm.mean` and `.var`. What they are stands beside them: config (JSON), schema, task, layer, seed,
checkpoint, step, commit (of the code that trained them), data_sha256. It is the metadata of a .safetensors file, and
one JSON text named `__metadata__` in a .npz file, which holds no pickle. No data are needed, no file is overwritten.

Exit code 0: done. 2: refused, one line says why.
"""

import io
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import numpy as safetensors

from scripts.arguments import Parser
from training import cli
from training.errors import ConfigError
from training.files import write_atomically
from training.weights import Saved, Weights, read_saved

METADATA = "__metadata__"

Arrays = dict[str, np.ndarray]
Metadata = dict[str, str]


def main(argv: Sequence[str]) -> None:
    """Flags -> a file, and a line about it on stdout."""
    parser = Parser("export", __doc__)
    parser.add_argument("--workdir", type=cli.folder, required=True, help="folder of the run")
    parser.add_argument("--out", type=cli.folder, required=True, metavar="FILE", help="FILE.safetensors or FILE.npz")
    parser.add_argument("--seed", type=int, metavar="N", help="which seed of the run; default: its first")
    parser.add_argument("--checkpoint", default="best", help="best (default), last, or a step")
    flags = parser.parse_args(argv[1:])
    written = _writer(flags.out)
    saved = read_saved(flags.workdir, flags.checkpoint, "--checkpoint")
    weights = saved.of_seed(flags.seed)
    arrays = {path.replace("/", "."): np.asarray(array) for path, array in sorted(weights.arrays.items())}
    write_atomically(flags.out, written(arrays, metadata_of(saved, weights)))
    size = sum(array.size for array in arrays.values())
    print(f"{flags.out}: {len(arrays)} arrays, {size:,} numbers, seed {weights.seed}, step {max(weights.step, 0)}")


def metadata_of(saved: Saved, weights: Weights) -> Metadata:
    """What the arrays are, as text."""
    record = saved.record
    return {
        "config": json.dumps(record["config"]),
        "schema": str(record["schema"]),
        "task": saved.config.data.task,
        "layer": saved.config.model.layer,
        "seed": str(weights.seed),
        "checkpoint": saved.which,
        "step": str(max(weights.step, 0)),
        "commit": record.get("git_commit") or "unknown",
        "data_sha256": record["data_sha256"],
    }


def _writer(out: Path) -> Callable[[Arrays, Metadata], bytes]:
    """What makes the bytes of such a file. Raises ConfigError for one that cannot be meant."""
    writers = {".safetensors": safetensors.save, ".npz": _npz}
    if out.suffix not in writers:
        raise ConfigError(f"--out={out}: expected a name that ends in {' or '.join(writers)}")
    if out.exists():
        raise ConfigError(f"--out={out} is there already: remove it, or choose another name")
    if not out.parent.is_dir():
        raise ConfigError(f"--out={out}: there is no folder {out.parent}")
    return writers[out.suffix]


def _npz(arrays: Arrays, metadata: Metadata) -> bytes:
    buffer = io.BytesIO()
    named: dict[str, Any] = {**arrays, METADATA: np.array(json.dumps(metadata))}
    np.savez(buffer, **named)
    return buffer.getvalue()


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv))
