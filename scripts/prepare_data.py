"""Makes a data set ready, once: what is ready is left as it is.

    python -m scripts.prepare_data listops                                     the full set: 96,000 / 2,000 / 2,000
    python -m scripts.prepare_data listops --length_window=24:96 --limit=6000  short expressions, a small part
    python -m scripts.prepare_data listops --verify                            look at prepared data again
    python -m scripts.prepare_data list                                        the names, and what is ready

Exit code 0: ready. 2: refused or damaged, one line says why. 130: interrupted, nothing left behind.
"""

import argparse
import sys
import time
from pathlib import Path

from data import registry
from data.errors import DataError
from data.spec import DataRequest
from scripts.arguments import Parser
from scripts.progress import Progress
from training import cli


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    flags = _parser().parse_args(arguments)
    try:
        if flags.name == "list":
            _list(_data_dir(flags))
        else:
            _prepare(flags)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error.filename or flags.data_dir}: {error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: nothing was left behind", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser("prepare_data", __doc__)
    parser.add_argument("name", help=f"a data set ({', '.join(registry.DATA_SETS)}), or list")
    parser.add_argument("--data_dir", type=cli.folder, help="default: $LINREC_DATA or ~/.cache/linrec")
    parser.add_argument("--length_window", type=_window, metavar="LOW:HIGH", help="keep lengths strictly between")
    parser.add_argument("--limit", type=_positive, metavar="N", help="at most N records in each split")
    parser.add_argument("--processes", type=_positive, metavar="N", help="default: all cores; changes no byte")
    parser.add_argument("--verify", action="store_true", help="check hashes and content of prepared data again")
    return parser


def _window(text: str) -> tuple[int, int]:
    try:
        low, high = map(int, text.split(":"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} should be LOW:HIGH, such as 24:96") from None
    return low, high


def _positive(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} should be a whole number of at least 1")
    return int(text)


def _data_dir(flags: argparse.Namespace) -> Path:
    from data import store  # imports TFDS; --help need not wait for it

    return flags.data_dir or store.default_data_dir()


def _prepare(flags: argparse.Namespace) -> None:
    request = DataRequest(flags.name, flags.length_window, flags.limit)
    registry.task_spec(request)  # refuse nonsense before anything is touched
    data_dir, started = _data_dir(flags), time.monotonic()
    action = registry.verify if flags.verify else registry.prepare
    with Progress() as progress:
        manifest = action(request, data_dir, processes=flags.processes, progress=progress)
    counts = " / ".join(f"{count:,} {split}" for split, count in manifest["counts"].items())
    megabytes = sum(entry["bytes"] for entry in manifest["files"].values()) / 1e6
    done = "verified" if flags.verify else "ready"
    print(f"{done}: {data_dir / request.folder}")
    print(f"{counts}, {megabytes:.1f} MB, content sha256 {manifest['content_sha256'][:16]}")
    print(f"{time.monotonic() - started:.1f} s")


def _list(data_dir: Path) -> None:
    """Every data set with its shape, and below it what is prepared of it."""
    from data import store

    folders = sorted(path.parent for path in data_dir.glob(f"*/{store.MANIFEST}"))
    for name in registry.DATA_SETS:
        spec = registry.task_spec(DataRequest(name))
        print(f"{name}: {spec.kind.value}, {spec.classes} classes, {spec.length} {spec.input_kind.value}")
        for folder in folders:
            try:
                manifest = store.read_manifest(folder, folder.name, "prepare it again")
            except DataError as error:
                print(f"  damaged: {error}")
                continue
            if manifest["request"]["task"] == name:
                print(f"  ready: {folder} ({' / '.join(f'{count:,}' for count in manifest['counts'].values())})")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
