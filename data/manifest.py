"""What must be in a prepared folder: counts, sources, hashes of files and content, versions; written last of all."""

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from data import strict_json
from data.errors import DataError, first_line
from data.folders import Shard
from data.parallel import Progress
from data.sealed import sealed, unsealed
from data.splits import combined

MANIFEST = "manifest.json"
FORMAT = 2
LIBRARIES = ("numpy", "tensorflow-datasets", "array_record")


def code_sha256() -> dict[str, str]:
    """File -> sha256, of the package that makes the data."""
    return {path.name: sha256_of(path) for path in sorted(Path(__file__).parent.glob("*.py"))}


def manifest_of(folder: Path, name: str, shards: Mapping[str, Sequence[Shard]], facts: dict) -> dict:
    """The manifest of a written folder: counts and content of its splits, `facts` of the data set, size and sha256 of
    each file, versions of the libraries and of the code. No time and no path: equal data have equal manifests."""
    files = {path.name: {"bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in sorted(folder.iterdir())}
    versions = {library: importlib.metadata.version(library) for library in LIBRARIES}
    return {
        "format": FORMAT,
        "name": name,
        "counts": {split: sum(shard.records for shard in found) for split, found in shards.items()},
        "record_bytes": {split: sum(shard.bytes for shard in found) for split, found in shards.items()},
        **facts,
        "content_sha256": combined({split: [shard.sha256 for shard in found] for split, found in shards.items()}),
        "files": files,
        "versions": {"python": platform.python_version(), **versions},
        "code_sha256": code_sha256(),
    }


def save_manifest(folder: Path, manifest: dict) -> None:
    """Written last of all files, with a hash of itself."""
    (folder / MANIFEST).write_text(json.dumps(sealed(manifest), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_manifest(folder: Path, name: str, splits: Collection[str], remedy: str) -> dict:
    """The manifest of an intact folder: every file is there and has its size; `check_hashes` looks inside.

    Raises DataError, ending with `remedy`, if the folder is missing, damaged, of another version, or not the data set
    `name` with those `splits`.
    """
    if not folder.exists():
        raise DataError(f"no data in {folder}; {remedy}")
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(f"{folder} has no {MANIFEST}, so it is no prepared data set; move it away, then {remedy}")
    redo = f"delete {folder}, then {remedy}"
    try:
        manifest = unsealed(strict_json.parse(path.read_bytes()))
        found_name, written = manifest["name"], manifest.get("format", 1)
        sizes = {file: entry["bytes"] for file, entry in manifest["files"].items()}
        _require_shape(manifest, splits)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is damaged ({type(error).__name__}: {first_line(error)}); {redo}") from error
    if found_name != name:
        raise DataError(f"{folder} holds {found_name!r} and not {name!r}; move it away, then {remedy}")
    if written != FORMAT:
        raise DataError(f"{folder} was prepared by another version (format {written}, here {FORMAT}); {redo}")
    for file, size in sizes.items():
        if not (folder / file).is_file():
            raise DataError(f"{folder / file} is missing; {redo}")
        if (found := (folder / file).stat().st_size) != size:
            raise DataError(f"{folder / file} has {found} bytes instead of {size}; {redo}")
    return manifest


def _require_shape(manifest: dict, splits: Collection[str]) -> None:
    """Raises KeyError or TypeError unless all is there that others read."""
    texts = [manifest["request"]["task"], manifest["content_sha256"]]
    texts += [entry["sha256"] for entry in manifest["files"].values()]
    counts = [manifest[key][split] for key in ("counts", "record_bytes") for split in {*manifest["counts"], *splits}]
    if any(count < 0 for count in counts):
        raise TypeError("a negative count")
    guesses = [value for split in ("val", "test") for value in manifest["baselines"][split].values()]
    arrays = [f"{name}.npy" for name in manifest["arrays"]]
    if elsewhere := [name for name in manifest["files"] if not 1 <= len(name.encode()) < 256 or {*"/\0"} & {*name}]:
        raise TypeError(f"{elsewhere[0]!r} is no name of a file in the folder")
    typed = [(counts, int), (texts, str), (guesses, float), ([manifest["partial"]], bool)]
    typed.append((list(manifest["statistics"].values()), float))
    if not all(type(value) is kind for values, kind in typed for value in values):
        raise TypeError("an entry of a wrong type")
    if missing := {*arrays} - manifest["files"].keys():
        raise KeyError(f"files: {min(missing)}")


def check_hashes(folder: Path, manifest: dict, progress: Progress) -> None:
    """Compares the sha256 of every file with the manifest. Raises DataError for the first that differs."""
    for done, (file, entry) in enumerate(manifest["files"].items(), 1):
        if (found := sha256_of(folder / file)) != entry["sha256"]:
            raise DataError(f"{folder / file} has sha256 {found} instead of {entry['sha256']}: it is damaged")
        progress("hash", done, len(manifest["files"]))


def sha256_of(path: Path) -> str:
    """Of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
