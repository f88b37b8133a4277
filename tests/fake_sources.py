"""Files in a published format, made for a test, and what `data.store` would give back of the records made of them."""

import io
import tarfile

from data.parallel import silent
from data.sources import Sources


def sources_at(folder):
    """The sources of a preparation that finds its files in a folder, whatever their hashes."""
    return Sources(folder, folder / "downloads", partial=True, progress=silent)


class Stored:
    """A split as it is read back."""

    def __init__(self, examples):
        self.records = list(examples)

    def __len__(self):
        return len(self.records)

    def example(self, index):
        return self.records[index]

    def examples(self):
        return iter(self.records)


def stored(generated):
    """The splits of `Generated`, taken in order and kept."""
    return {name: Stored(examples) for name, examples in generated.splits.items()}


def pack(path, members):
    """Writes (name, bytes) as a gzipped tar archive, in the given order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def unpack(folder, members):
    """Writes (name, bytes) as files."""
    for name, data in members:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
