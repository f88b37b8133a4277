"""Small intact files of the formats that are read, from which fuzzers begin."""

import io
import json
import re
import struct
import tarfile

import numpy as np

from data import arrays, mnist
from data.archives import Limits, Names
from data.spec import DataRequest

IDX = struct.pack(">II", mnist.LABELS_MAGIC, 20) + bytes(range(10)) * 2

REQUEST = DataRequest("listops", length_window=(2, 2_000), partial=True)
TREE = "( ( ( ( [MED 1 ) 4 ) ( ( ( [MAX 3 ) 9 ) ] ) ) ] )\t4"
PAIRS = b'1.0\t"a\t1"\tb\t"x ""y""\nz"\tt\r\n0.0\ta\tb\tu\tv\n'

LISTED = np.array([["imgs/0", "a.png", "0", "1"]])


def npy(array, **changes):
    """A file of one array, or one whose header says something else."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    if not changes:
        return buffer.getvalue()
    said = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape} | changes
    head = repr(said).encode() + b"\n"
    return arrays.MAGIC + b"\1\0" + struct.pack("<H", len(head)) + head + array.tobytes()


def npz():
    """A file of two arrays."""
    buffer = io.BytesIO()
    np.savez(buffer, origin=np.array("{}"), logits=np.zeros((1, 3), np.float32))
    return buffer.getvalue()


NAMES = Names(re.compile(r"top/[^/]+/[^/]+\.txt"), "top")
LIMITS = Limits(member_bytes=10_000, count=10, total_bytes=200_000)


def _tar(format):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format) as archive:
        for name in ("top/a/1.txt", "top/a/" + "n" * 120 + ".txt", "README"):
            info = tarfile.TarInfo(name)
            info.size = 4
            info.pax_headers = {"path": f"top/b/{'x' * 110}.txt"} if name == "README" else {}
            archive.addfile(info, io.BytesIO(b"data"))
    return file.getvalue().rstrip(b"\0") + bytes(1_024 + 512)


TARS = (_tar(tarfile.PAX_FORMAT), _tar(tarfile.GNU_FORMAT))
"""Members of NAMES, within LIMITS."""

ROWS = (
    {"step": 0, "seed": 0, "split": "train", "loss": None, "state_energy": [1.0, None], "state_energy_t": [[1.0, 2.0]]},
    {"step": 1, "seed": 0, "split": "train", "loss": 3.0, "lr": 0.1, "grad_norm": 1.0, "seconds": 1.5},
    {"step": 1, "seed": 0, "split": "val", "loss": None, "accuracy": 0.5, "nonfinite": ["loss"], "seconds": 2.0},
)
LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
"""Of a metrics.jsonl."""
