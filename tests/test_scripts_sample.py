"""scripts.sample from end to end on small runs: its text, its saved states, what it refuses."""

import dataclasses
import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from configs import shakespeare_char, tinystories
from data import prepared
from data.byte_pairs import BYTES, Tokenizer
from data.errors import DataError
from data.registry import task_spec
from data.sealed import sealed
from data.spec import DataRequest
from models.sampling import Drawing, Mode
from scripts import sample as script
from training import cli
from training.config import from_config_dict
from training.errors import ConfigError, NonFiniteError
from training.loop import train
from training.sample import Asked, Trained, open_trained, sample
from training.state import initial_params_of_all, make_program

CHARACTERS = "the quick brown fox jumps over\nthe lazy dog; " * 200
LAST, PLAIN = 2, Drawing()


class Ran(NamedTuple):
    """A run: its folder, the flags that find it, its first seed opened."""

    folder: Path
    flags: list[str]
    model: Trained


@pytest.fixture(scope="module")
def characters(tmp_path_factory):
    """A run of two seeds, trained on prepared characters."""
    folder = tmp_path_factory.mktemp("characters")
    (folder / "input.txt").write_text(CHARACTERS, encoding="utf-8")
    request = DataRequest("shakespeare_char", partial=True)
    prepared.prepare(request, folder / "data", data_source=folder, processes=1)
    config = shakespeare_char.get_config("model=small_lru,seeds=0:2,smoke").to_dict()
    config["data"].update(smoke=False, partial=True)
    config["model"].update(sublayers=("lru", "mlp"))
    config["train"].update(steps=LAST, eval_every=LAST, checkpoint_every=1, probe_every=LAST)
    with redirect_stdout(StringIO()):
        train(from_config_dict(config), folder / "run", folder / "data")
    model, _ = open_trained(folder / "run", folder / "data", "best", None)
    return Ran(folder / "run", [f"--workdir={folder / 'run'}", f"--data_dir={folder / 'data'}"], model)


def bytes_model(letters, packing="separated"):
    """Attention on the single bytes of a few letters, as it is before training: all of them are likely."""
    ends = [len(BYTES)] if packing == "separated" else []
    ids = [*map(BYTES.index, letters.encode()), *ends]
    tokens: Any = Tokenizer(tuple(bytes([byte]) for byte in BYTES), np.array(ids))
    config = tinystories.get_config("model=transformer_33m,smoke").to_dict()
    config["data"]["choices"]["packing"] = packing
    config["model"].update(depth=1)
    config["model"]["options"].update(max_length=30, sublayers=2)
    checked, size = from_config_dict(config), len(tokens.vocabulary)
    spec = task_spec(checked.data.request)
    program = make_program(checked, dataclasses.replace(spec, input_width=size, classes=size))
    params = jax.tree.map(lambda leaf: leaf[0], initial_params_of_all(program))
    return Trained(program, params, tokens, {"layer": "attention"})


@pytest.fixture(scope="module")
def stories():
    """Texts that end."""
    return bytes_model("abcdefghë")


@pytest.fixture(scope="module")
def unseparated():
    """Texts that do not."""
    return bytes_model("\në", packing="published")


def drawn(model, drawing=PLAIN, **asked):
    """The text of `sample`."""
    return "".join(sample(model, Asked(drawing, **asked)))


@pytest.fixture
def command(capsys):
    """flags -> exit code, stdout, stderr."""

    def run(*flags):
        try:
            code = cli.guarded(script.main, ["sample", *flags])
        except SystemExit as end:  # a flag that argparse refuses
            code = end.code
        return code, *capsys.readouterr()

    return run


def test_the_text_follows_the_prompt(characters, command):
    flags = [*characters.flags, "--prompt=the dog", "--length=30", "--temperature=0.9", "--top_k=9"]
    code, out, err = command(*flags)
    assert (code, err) == (0, f"lru, seed 0, best checkpoint, step {LAST}\n")
    assert out.startswith("the dog")
    assert len(out) == len("the dog") + 30
    assert set(out) <= set(CHARACTERS)
    assert out == drawn(characters.model, Drawing(0.9, 9), prompt="the dog", length=30, seed=0)
    assert out != drawn(characters.model, Drawing(0.9, 9), prompt="the dog", length=30, seed=1)


def test_seeds_and_checkpoints_of_the_run(characters):
    folder, data_dir = characters.folder, characters.folder.parent / "data"
    texts = {drawn(characters.model)}
    for which, seed, said in (
        ("1", None, "seed 0, 1 checkpoint, step 1"),
        ("last", 1, f"seed 1, last checkpoint, step {LAST}"),
    ):
        model, line = open_trained(folder, data_dir, which, seed)
        assert line == f"lru, {said}"
        texts.add(drawn(model))
    assert len(texts) == 3


def test_a_saved_state_goes_on_identically(characters, command, tmp_path):
    at_once = drawn(characters.model, prompt="the ", length=40, seed=5)
    place = tmp_path / "place.npz"
    _, first, _ = command(*characters.flags, "--prompt=the ", "--length=15", "--seed=5", f"--state_out={place}")
    _, second, _ = command(*characters.flags, "--length=10", f"--state_in={place}", f"--state_out={place}")
    third = drawn(characters.model, length=15, state_in=place)
    assert first + second + third == at_once
    with np.load(place, allow_pickle=False) as file:
        assert {"logits", "key", "length", "recent", "origin", "pending", "state/0/x"} <= file.keys()
        assert file["length"] == len("the ") + 25
    assert drawn(characters.model, length=15, state_in=place, seed=6) != third
    assert drawn(characters.model, prompt="fox", length=5, state_in=place).startswith("fox")


@pytest.mark.parametrize("mode", [Mode.CARRY, Mode.WINDOW])
@pytest.mark.parametrize("layer", ["lru", "attention"])
def test_a_saved_place_has_the_same_bits(layer, mode, characters, unseparated, tmp_path):
    """At once and in parts: state, logits and key."""
    model = characters.model if layer == "lru" else unseparated
    whole, part = tmp_path / "whole.npz", tmp_path / "part.npz"
    drawn(model, length=27, mode=mode, state_out=whole)
    drawn(model, length=11, mode=mode, state_out=part)
    drawn(model, length=16, mode=mode, state_in=part, state_out=part)
    with np.load(whole) as expected, np.load(part) as found:
        assert sorted(expected) == sorted(found)
        for array in expected:
            assert expected[array].tobytes() == found[array].tobytes(), array


def test_a_window_goes_on_beyond_the_cache(stories):
    message = r"48 tokens do not fit into the 30 that attention caches \(max_length\): take fewer, or mode=window"
    with pytest.raises(ConfigError, match=message):
        drawn(stories, prompt="abcdëfg", length=40)
    text = drawn(stories, prompt="abcdëfg", length=40, mode=Mode.WINDOW)
    assert text.startswith("abcdëfg")


def test_end_of_text_stops_or_begins_a_new_text(stories, unseparated):
    assert stories.separated_by == stories.tokens.end_of_text == stories.vocabulary_size - 1
    stopped = drawn(stories, prompt="a", length=29)
    assert 1 < len(stopped.encode()) < 29
    followed = drawn(stories, prompt="a", length=29, mode=Mode.RESET)
    assert followed.startswith(stopped + "\n<|endoftext|>\n")
    assert unseparated.separated_by is None
    published = dataclasses.replace(stories.program.config.data, choices={"packing": "published"})
    config = dataclasses.replace(stories.program.config, data=published)
    assert stories._replace(program=stories.program._replace(config=config)).separated_by is None
    with pytest.raises(ConfigError, match="mode=reset: nothing separates the texts"):
        drawn(unseparated, mode=Mode.RESET)


def test_logits_that_are_not_finite_stop_it(stories):
    broken = stories._replace(params=stories.params | {"embedding": np.nan * stories.params["embedding"]})
    with pytest.raises(NonFiniteError, match="the logits after 3 tokens are not finite; --mode=window never carries"):
        drawn(broken, prompt="abc", length=5)


def test_a_character_waits_for_its_bytes(unseparated, tmp_path):
    model, place = unseparated, tmp_path / "place.npz"
    at_once = drawn(model, length=16, seed=1)
    assert "ë" in at_once
    pending = set()
    for length in range(1, 8):
        first = drawn(model, length=length, seed=1, state_out=place)
        with np.load(place) as file:
            pending.add(file["pending"].tobytes())
        assert first + drawn(model, length=16 - length, state_in=place) == at_once
    assert pending == {b"", "ë".encode()[:1]}


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--prompt=7"], "character '7' is not among the 29 of the vocabulary"),
        (["--temperature=-1"], "--temperature=-1.0 must be a number of at least 0"),
        (["--temperature=hot"], "argument --temperature: invalid float value: 'hot'"),
        (["--top_k=-2"], "--top_k=-2 must be at least 0"),
        (["--top_k=30"], "top_k=30: the vocabulary has 29 tokens"),
        (["--length=0"], "argument --length: '0' should be a whole number of at least 1"),
        (["--seed=-1"], "argument --seed: '-1' should be a whole number in 0..2^31-1"),
        (["--train_seed=7"], "{run} has no seed 7: choose from 0, 1"),
        (["--checkpoint=best2"], "--checkpoint=best2: expected best, last or a step"),
        (["--checkpoint=3"], "checkpoint 3 in {run}/checkpoints does not exist; intact: 1, 2"),
        (["--mode=slide"], "argument --mode: invalid choice: 'slide'"),
        (["--workdir=nowhere"], "nowhere/config.json: No such file or directory: is nowhere the folder of a run?"),
        (["--data_dir=nowhere"], "no data in nowhere/shakespeare_char_partial; run: python -m scripts.prepare_data"),
    ],
)
def test_refused_commands(characters, command, flags, line):
    code, out, err = command(*characters.flags, *flags)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("error: " + line.format(run=characters.folder)), err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"prompt": "né"}, "character 'é' is not among the 29 of the vocabulary"),
        ({"mode": Mode.RESET}, "mode=reset: nothing separates the texts that this model was trained on"),
        ({"state_in": Path("nowhere.npz")}, "there is no saved state nowhere.npz"),
        ({"prompt": "\udcff"}, "--prompt is no text in UTF-8: surrogates not allowed at character 0"),
        ({"state_out": Path("tests")}, "--state_out=tests is a folder: name a file"),
        ({"state_out": Path("nowhere/a.npz")}, "--state_out=nowhere/a.npz: there is no folder nowhere"),
    ],
)
def test_what_does_not_fit_is_refused(characters, asked, line):
    with pytest.raises((ConfigError, DataError)) as refused:
        drawn(characters.model, **asked)
    assert str(refused.value) == line


def test_a_state_of_another_model_is_refused(characters, stories, tmp_path):
    place = tmp_path / "place.npz"
    drawn(characters.model, length=3, state_out=place)
    other, _ = open_trained(characters.folder, characters.folder.parent / "data", "1", 1)
    same_step = other._replace(origin=other.origin | {"step": LAST, "seed": 0})
    earlier = other._replace(origin=other.origin | {"seed": 0})
    for model, line in (
        (stories, "layer is lru there, attention here"),
        (other, "seed is 0 there, 1 here"),
        (earlier, "step is 2 there, 1 here"),
        (same_step, f"parameters is {characters.model.origin['parameters'][:16]} there, "),
    ):
        with pytest.raises(ConfigError) as refused:
            drawn(model, state_in=place)
        assert str(refused.value).startswith(f"{place} belongs to another model: {line}")


def test_a_damaged_state_is_refused(characters, tmp_path):
    place, damaged = tmp_path / "place.npz", tmp_path / "damaged.npz"
    drawn(characters.model, length=3, state_out=place)
    content = place.read_bytes()
    with np.load(place) as file:
        arrays = dict(file)

    def write(**changes):
        np.savez(damaged, **(arrays | changes))
        return damaged.read_bytes()

    origin = json.loads(str(arrays["origin"]))
    bad = {
        "cut": content[: len(content) // 2],
        "empty": b"",
        "text": b"no archive\n",
        "flipped": content.replace(arrays["logits"].tobytes(), b"\0" * arrays["logits"].nbytes),
        "shape": write(**{"state/0/x": arrays["state/0/x"][:, 1:]}),
        "dtype": write(logits=arrays["logits"].astype(np.float16)),
        "pickled": write(recent=np.array([None])),
        "format": write(origin=np.array(json.dumps(origin | {"format": 2}))),
        "list": write(origin=np.array("[]")),
    }
    for kept in bad.values():
        damaged.write_bytes(kept)
        with pytest.raises(ConfigError, match=f"^{damaged} (is no saved state, or damaged|belongs to another)"):
            drawn(characters.model, state_in=damaged)


def test_a_run_that_is_no_language_model_is_refused(characters, tmp_path):
    record = json.loads((characters.folder / "config.json").read_text())
    record["config"]["model"].update(backbone="sequence", sublayers=[])
    (tmp_path / "config.json").write_text(json.dumps(sealed(record)))
    with pytest.raises(ConfigError, match="holds a model of shakespeare_char and no language model"):
        open_trained(tmp_path, tmp_path, "best", None)
