"""Exported parameters: the bits of the checkpoint, read without linrec."""

import json

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from scripts import export
from training import checkpoint, cli


@pytest.fixture
def command(trained, capsys):
    """flags -> exit code, stdout, stderr."""

    def run(*flags):
        try:
            code = cli.guarded(export.main, ["export", f"--workdir={trained}", *flags])
        except SystemExit as end:  # a flag that argparse refuses
            code = end.code
        return code, *capsys.readouterr()

    return run


def read(path):
    """Arrays and metadata of a file, with the libraries of its format alone."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        return arrays, json.loads(str(arrays.pop("__metadata__")))
    with safe_open(path, "numpy") as file:
        return load_file(path), file.metadata()


@pytest.mark.parametrize("ending", ["safetensors", "npz"])
@pytest.mark.parametrize(("seed", "which"), [(0, "best"), (1, "last"), (1, "8")])
def test_a_file_has_the_bits_of_the_checkpoint_and_says_what_they_are(trained, command, tmp_path, ending, seed, which):
    out = tmp_path / f"model.{ending}"
    code, said, err = command(f"--out={out}", f"--seed={seed}", f"--checkpoint={which}")
    assert (code, err) == (0, "")
    arrays, about = read(out)
    restored = checkpoint.restore(trained / "checkpoints", None, int(which) if which.isdigit() else None)
    assert restored is not None
    group, step = ("best/", restored.tree["best/step"][seed]) if which == "best" else ("", restored.step)
    wanted = {}
    for path, leaf in restored.tree.items():
        if path.startswith(f"{group}params/"):
            wanted[path.removeprefix(f"{group}params/").replace("/", ".")] = np.asarray(leaf[seed])
    for name in ("mean", "var"):
        wanted[f"blocks.0.norm.{name}"] = np.asarray(restored.tree[f"{group}stats/0/{name}"][seed])
    assert arrays.keys() == wanted.keys()
    for name, array in wanted.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        assert arrays[name].tobytes() == array.tobytes(), name
    record = json.loads((trained / "config.json").read_text())
    assert json.loads(about.pop("config")) == record["config"]
    assert about == {
        "schema": str(record["schema"]),
        "task": "listops",
        "layer": "lru",
        "seed": str(seed),
        "checkpoint": which,
        "step": str(step),
        "commit": record["git_commit"] or "unknown",
        "data_sha256": record["data_sha256"],
    }
    size = sum(array.size for array in wanted.values())
    assert said == f"{out}: {len(wanted)} arrays, {size:,} numbers, seed {seed}, step {step}\n"


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--out={tmp}/model.pt"], "--out={tmp}/model.pt: expected a name that ends in .safetensors or .npz"),
        (["--out={tmp}/model"], "--out={tmp}/model: expected a name that ends in .safetensors or .npz"),
        (["--out={tmp}/there.npz"], "--out={tmp}/there.npz is there already: remove it, or choose another name"),
        (["--out={tmp}/no/a.npz"], "--out={tmp}/no/a.npz: there is no folder {tmp}/no"),
        (["--out={tmp}/a.npz", "--seed=7"], "{run} has no seed 7: choose from 0, 1"),
        (["--out={tmp}/a.npz", "--seed=x"], "argument --seed: invalid int value: 'x'"),
        (["--out={tmp}/a.npz", "--checkpoint=top"], "--checkpoint=top: expected best, last or a step"),
        (["--out={tmp}/a.npz", "--checkpoint=04"], "--checkpoint=04: expected best, last or a step"),
        (
            ["--out={tmp}/a.npz", f"--checkpoint={'9' * 20}"],
            f"--checkpoint={'9' * 20}: expected best, last or a step",
        ),
        (["--out={tmp}/a.npz", "--checkpoint=3"], "checkpoint 3 in {run}/checkpoints does not exist; intact: 8, 12"),
        (["--out={tmp}/a.npz", "--workdir={tmp}"], "{tmp}/config.json: No such file or directory"),
        ([], "the following arguments are required: --out"),
    ],
)
def test_refused_with_one_line_and_nothing_written(trained, command, tmp_path, flags, line):
    (tmp_path / "there.npz").write_text("mine")
    code, out, err = command(*(flag.format(tmp=tmp_path) for flag in flags))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: " + line.format(tmp=tmp_path, run=trained))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("there.npz", "mine")]
