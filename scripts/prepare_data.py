"""Makes a data set ready, once: what is ready is left as it is.

    python -m scripts.prepare_data list                                        the names, and what is ready
    python -m scripts.prepare_data listops                                     generated: 96,000 / 2,000 / 2,000
    python -m scripts.prepare_data listops --length_window=24:96 --limit=6000  short expressions, a small part
    python -m scripts.prepare_data text --data_source=~/downloads              from files that you have
    python -m scripts.prepare_data pathfinder --law=words                      in another of its named ways
    python -m scripts.prepare_data listops --verify                            look at prepared data again

Official files are looked for below --data_source by name and sha256, and downloaded otherwise. A file that is not the
official one is taken only with --partial or --limit; then everything that is made of it says so.

Exit code 0: ready. 2: refused or damaged, one line says why. 130: interrupted; the same command makes it anew, or goes
on where it stopped.
"""

import argparse
import sys
import time
from pathlib import Path

from data import prepared, registry
from data.errors import DataError
from data.examples import Choice
from data.folders import default_data_dir
from data.manifest import MANIFEST, read_manifest
from data.spec import DataRequest
from scripts.arguments import Parser, positive
from scripts.progress import Progress
from training import cli
from training.files import size_text


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    flags = _parser().parse_args(arguments)
    try:
        if flags.name == "list":
            _list(flags.data_dir or default_data_dir())
        else:
            _prepare(flags)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error.filename or flags.data_dir}: {error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: the same command makes the data ready", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser("prepare_data", __doc__)
    parser.add_argument("name", help=f"a data set ({', '.join(registry.DATA_SETS)}), or list")
    parser.add_argument("--data_dir", type=cli.folder, help="default: $LINREC_DATA or ~/.cache/linrec")
    parser.add_argument("--data_source", type=cli.folder, metavar="FOLDER", help="files that need not be downloaded")
    parser.add_argument("--partial", action="store_true", help="accept files that are not official (as --limit does)")
    parser.add_argument("--length_window", type=_window, metavar="LOW:HIGH", help="keep lengths strictly between")
    parser.add_argument("--limit", type=positive, metavar="N", help="at most N records in each split")
    parser.add_argument("--processes", type=positive, metavar="N", help="default: all cores; changes no byte")
    parser.add_argument("--verify", action="store_true", help="check hashes and content of prepared data again")
    for name, (tasks, values) in sorted(_stored_choices().items()):
        parser.add_argument(f"--{name}", choices=values, help=f"{', '.join(tasks)}; default: {values[0]}")
    return parser


def _stored_choices() -> dict[str, tuple[list[str], tuple[str, ...]]]:
    """Choice -> the data sets that have it, and its values."""
    found: dict[str, tuple[list[str], tuple[str, ...]]] = {}
    for task in registry.DATA_SETS:
        for name, choice in registry.choices(task).items():
            if choice.stored:
                found.setdefault(name, ([], choice.values))[0].append(task)
    return found


def _window(text: str) -> tuple[int, int]:
    try:
        low, high = map(int, text.split(":"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} should be LOW:HIGH, such as 24:96") from None
    return low, high


def _request(flags: argparse.Namespace) -> DataRequest:
    chosen = tuple((name, value) for name in sorted(_stored_choices()) if (value := getattr(flags, name)) is not None)
    return DataRequest(flags.name, flags.length_window, flags.limit, chosen, flags.partial)


def _prepare(flags: argparse.Namespace) -> None:
    request, data_dir, started = _request(flags), flags.data_dir or default_data_dir(), time.monotonic()
    registry.task_spec(request)  # refuse nonsense before anything is touched
    with Progress() as progress:
        if flags.verify:
            manifest = prepared.verify(request, data_dir, processes=flags.processes, progress=progress)
        else:
            manifest = prepared.prepare(
                request, data_dir, data_source=flags.data_source, processes=flags.processes, progress=progress
            )
    done, partial = "verified" if flags.verify else "ready", " (partial)" if manifest["partial"] else ""
    print(f"{done}{partial}: {data_dir / registry.folder_of(request)}")
    print(f"{_counts(manifest)} records, {_bytes(manifest)}, content sha256 {manifest['content_sha256'][:16]}")
    print(f"{time.monotonic() - started:.1f} s")


def _counts(manifest: dict) -> str:
    return " / ".join(f"{count:,} {split}" for split, count in manifest["counts"].items())


def _bytes(manifest: dict) -> str:
    return size_text(sum(entry["bytes"] for entry in manifest["files"].values()))


def _list(data_dir: Path) -> None:
    """Every data set with its shape, source and licence, and below it what is prepared of it, or that nothing is."""
    if data_dir.exists() and not data_dir.is_dir():
        raise DataError(f"{data_dir} is no folder")
    folders = sorted(path.parent for path in data_dir.glob(f"*/{MANIFEST}"))
    states = [(folder, *_state(folder)) for folder in folders]
    for name in registry.DATA_SETS:
        request = DataRequest(name)
        spec, about = registry.task_spec(request), registry.about(request)
        print(f"{name}: {spec.kind.value}, {spec.classes} classes, {spec.length} {spec.input_kind.value}")
        download = f"download {size_text(about.download)}, " if about.download else ""
        print(f"  {about.source}; licence: {about.licence}; {download}prepared about {size_text(about.prepared)}")
        for source in registry.sources(request):
            print(f"  {source.name}: {source.urls[0]}")
        for choice_name, choice in registry.choices(name).items():
            print(f"  {_choice(choice_name, choice)}")
        mine = [(folder, state) for folder, task, state in states if task == name]
        for folder, state in mine:
            print(f"  {state}: {folder}" if state.startswith("ready") else f"  {state}")
        if not mine:
            print("  missing")
    for _, task, state in states:
        if task not in registry.DATA_SETS:
            print(state)


def _choice(name: str, choice: Choice) -> str:
    first, *others = choice.values
    where = f"--{name}=" if choice.stored else f"when it is read, config.data.choices.{name}="
    return f"{where}{first} (default) | {' | '.join(others)}"


def _state(folder: Path) -> tuple[str, str]:
    """The data set in a folder ("" if unknown), and how it is."""
    try:
        manifest = read_manifest(folder, folder.name, (), "prepare it again")
    except DataError as error:
        mine = [name for name in registry.DATA_SETS if f"{folder.name}_".startswith(f"{name}_")]
        return max(mine, key=len, default=""), f"damaged: {error}"
    partial = "partial, " if manifest["partial"] else ""
    return manifest["request"]["task"], f"ready ({partial}{_counts(manifest)})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
