"""scripts.sample from end to end on small runs: its text, its saved states, what it refuses."""

import json
import shutil
from contextlib import redirect_stdout
from io import StringIO

import jax.numpy as jnp
import numpy as np
import pytest

from configs import shakespeare_char, tinystories
from data import prepared
from data.spec import DataRequest
from models.sampling import Drawing, Mode
from scripts import sample as script
from training import cli
from training.config import from_config_dict
from training.loop import train
from training.sample import Asked, open_trained, sample

CHARACTERS = "the quick brown fox jumps over\nthe lazy dog; " * 200
UPDATES = {"steps": 4, "eval_every": 2, "checkpoint_every": 2, "probe_every": 4}


def trained(folder, config, data_dir, changes):
    made = config.to_dict()
    for group, values in changes.items():
        made[group].update(values)
    with redirect_stdout(StringIO()):
        train(from_config_dict(made), folder, data_dir)


@pytest.fixture(scope="module")
def characters(tmp_path_factory):
    """A run of two seeds on prepared characters; the flags that find it."""
    folder = tmp_path_factory.mktemp("characters")
    (folder / "input.txt").write_text(CHARACTERS, encoding="utf-8")
    request = DataRequest("shakespeare_char", partial=True)
    prepared.prepare(request, folder / "data", data_source=folder, processes=1)
    config = shakespeare_char.get_config("model=small_lru,seeds=0:2,smoke")
    data = {"smoke": False, "partial": True}
    trained(folder / "run", config, folder / "data", {"data": data, "train": UPDATES})
    return [f"--workdir={folder / 'run'}", f"--data_dir={folder / 'data'}"]


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    """A smoke run of attention on byte pairs."""
    folder = tmp_path_factory.mktemp("stories") / "run"
    config = tinystories.get_config("model=transformer_33m,smoke")
    model = config.model.to_dict()
    options = model["options"] | {"max_length": 30, "sublayers": 2}
    trained(folder, config, folder, {"model": {"depth": 1, "options": options}, "train": UPDATES})
    return [f"--workdir={folder}"]


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


@pytest.fixture
def text(command):
    """flags -> what is written to stdout by a command that succeeds."""

    def run(*flags):
        code, out, err = command(*flags)
        assert code == 0, err
        return out

    return run


def test_the_text_follows_the_prompt(characters, command):
    code, out, err = command(*characters, "--prompt=the dog", "--length=30")
    assert code == 0
    assert err == "lru, seed 0, best checkpoint, step 4\n"
    assert out.startswith("the dog")
    assert len(out) == len("the dog") + 30
    assert set(out) <= set(CHARACTERS)
    assert command(*characters, "--prompt=the dog", "--length=30", "--seed=0")[1] == out
    assert command(*characters, "--prompt=the dog", "--length=30", "--seed=1")[1] != out


def test_seeds_and_checkpoints_of_the_run(characters, command):
    flags = ("--prompt=a", "--length=40")
    texts = set()
    for which, said in {
        "--checkpoint=2": "seed 0, 2 checkpoint, step 2",
        "--checkpoint=last": "seed 0, last checkpoint, step 4",
        "--train_seed=1": "seed 1, best checkpoint, step 4",
    }.items():
        code, out, err = command(*characters, *flags, which)
        assert (code, err) == (0, f"lru, {said}\n")
        texts.add(out)
    assert len(texts) == 3


def test_a_saved_state_goes_on_identically(characters, text, tmp_path):
    at_once = text(*characters, "--prompt=the ", "--length=40", "--seed=5")
    place = tmp_path / "place.npz"
    first = text(*characters, "--prompt=the ", "--length=15", "--seed=5", f"--state_out={place}")
    second = text(*characters, "--length=10", f"--state_in={place}", f"--state_out={place}")
    third = text(*characters, "--length=15", f"--state_in={place}")
    assert first + second + third == at_once
    with np.load(place, allow_pickle=False) as file:
        assert {"logits", "key", "length", "recent", "origin", "pending", "state/0/x"} <= file.keys()
        assert file["length"] == len("the ") + 25
    other_seed = text(*characters, "--length=15", f"--state_in={place}", "--seed=6")
    assert other_seed != third
    more = text(*characters, "--prompt=fox", "--length=5", f"--state_in={place}")
    assert more.startswith("fox")


def test_a_saved_place_has_the_same_bits(characters, text, tmp_path):
    """At once and in parts: state, logits and key."""
    whole, part = tmp_path / "whole.npz", tmp_path / "part.npz"
    text(*characters, "--length=12", f"--state_out={whole}")
    text(*characters, "--length=5", f"--state_out={part}")
    text(*characters, "--length=7", f"--state_in={part}", f"--state_out={part}")
    with np.load(whole) as expected, np.load(part) as found:
        assert sorted(expected) == sorted(found)
        for name in expected:
            assert expected[name].tobytes() == found[name].tobytes(), name


def test_a_window_goes_on_beyond_the_cache(stories, command):
    flags = (*stories, "--prompt=One day, Zoë", "--length=40", "--temperature=0")
    code, out, err = command(*flags)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == (
        "error: 53 tokens do not fit into the 30 that attention caches (max_length): take fewer, or mode=window"
    )
    code, out, _ = command(*flags, "--mode=window")
    assert code == 0
    assert out.startswith("One day, Zoë")


class Ending:
    """A vocabulary with another end-of-text."""

    def __init__(self, tokens, end_of_text):
        self._tokens, self.end_of_text = tokens, end_of_text

    def __getattr__(self, name):
        return getattr(self._tokens, name)


def test_end_of_text_stops_or_begins_a_new_text(stories, tmp_path):
    run = open_trained(tmp_path.joinpath(stories[0].split("=")[1]), tmp_path, "last", None)[0]
    assert run.separated_by == 0
    # Bytes only, and often the same.
    ids = np.arange(run.vocabulary_size)
    usual = np.isin(ids, [0, *run.tokens.encode("abcdefgh")])
    run.params["embedding"] = jnp.where(usual[:, None], 20 * run.params["embedding"], 0)
    end = int(run.tokens.encode("d")[0])
    ending = run._replace(tokens=Ending(run.tokens, end))
    endless = "".join(sample(run, Asked(Drawing(top_k=9), "a", 25)))
    stopped = "".join(sample(ending, Asked(Drawing(top_k=9), "a", 25)))
    assert "d" in endless[1:-1]
    assert stopped == endless[: endless.index("d") + 1]
    shown = "".join(sample(ending, Asked(Drawing(top_k=9), "a", 25, Mode.RESET)))
    assert shown.startswith(endless[: endless.index("d")] + "\n<|endoftext|>\n")


def test_a_character_is_kept_until_its_bytes_are_there(stories, tmp_path):
    run = open_trained(tmp_path.joinpath(stories[0].split("=")[1]), tmp_path, "last", None)[0]
    ids = np.arange(run.vocabulary_size)
    bytes_of_e = run.tokens.encode("ë")
    run.params["embedding"] = jnp.where(np.isin(ids, bytes_of_e)[:, None], 20 * run.params["embedding"], 0)
    place = tmp_path / "place.npz"
    asked = Asked(Drawing(top_k=2), "a", 20, seed=1)
    at_once = "".join(sample(run, asked))
    for length in range(1, 6):
        first = "".join(sample(run, Asked(Drawing(top_k=2), "a", length, seed=1, state_out=place)))
        second = "".join(sample(run, Asked(Drawing(top_k=2), "", 20 - length, state_in=place)))
        assert first + second == at_once
    assert "ë" in at_once


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--prompt=né"], "character 'é' is not among the 29 of the vocabulary"),
        (["--prompt=7"], "character '7' is not among the 29 of the vocabulary"),
        (["--temperature=-1"], "--temperature=-1.0 must be a number of at least 0"),
        (["--temperature=nan"], "--temperature=nan must be a number of at least 0"),
        (["--temperature=hot"], "argument --temperature: invalid float value: 'hot'"),
        (["--top_k=-2"], "--top_k=-2 must be at least 0"),
        (["--top_k=30"], "top_k=30: the vocabulary has 29 tokens"),
        (["--length=0"], "argument --length: '0' should be a whole number of at least 1"),
        (["--seed=-1"], "argument --seed: '-1' should be a whole number in 0..2^31-1"),
        (["--train_seed=7"], "--train_seed=7: {run} has 0, 1"),
        (["--checkpoint=best2"], "--checkpoint=best2: expected best, last or a step"),
        (["--checkpoint=3"], "checkpoint 3 in {run}/checkpoints does not exist; intact: 2, 4"),
        (["--mode=reset"], "mode=reset: nothing separates the texts that this model was trained on"),
        (["--mode=slide"], "argument --mode: invalid choice: 'slide'"),
        (["--state_in=nowhere.npz"], "there is no saved state nowhere.npz"),
        (["--state_out=nowhere/place.npz"], "--state_out=nowhere/place.npz: there is no folder nowhere"),
        (["--workdir=nowhere"], "nowhere/config.json: No such file or directory: is nowhere the folder of a run?"),
        (["--data_dir=nowhere"], "no data in nowhere/shakespeare_char_partial; run: python -m scripts.prepare_data"),
    ],
)
def test_refusals(characters, command, flags, line):
    code, out, err = command(*characters, *flags)
    assert (code, out) == (2, "")
    (*_, last) = err.splitlines()
    assert last.startswith("error: " + line.format(run=characters[0].split("=")[1])), err
    assert "Traceback" not in err


def test_a_state_of_another_model_is_refused(characters, stories, command, tmp_path):
    place = tmp_path / "place.npz"
    command(*characters, "--length=3", f"--state_out={place}")
    for flags, line in (
        (stories, "layer is lru there, attention here"),
        ([*characters, "--train_seed=1"], "seed is 0 there, 1 here"),
        ([*characters, "--checkpoint=2"], "step is 4 there, 2 here"),
    ):
        code, out, err = command(*flags, f"--state_in={place}")
        assert (code, out) == (2, "")
        assert err.splitlines()[-1] == f"error: {place} belongs to another model: {line}"


def test_a_damaged_state_is_refused(characters, command, tmp_path):
    place, damaged = tmp_path / "place.npz", tmp_path / "damaged.npz"
    command(*characters, "--length=3", f"--state_out={place}")
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
    for name, kept in bad.items():
        damaged.write_bytes(kept)
        code, out, err = command(*characters, f"--state_in={damaged}")
        assert (code, out) == (2, ""), name
        assert err.splitlines()[-1].startswith(f"error: {damaged} "), (name, err)
        assert "Traceback" not in err


def test_a_run_that_is_no_language_model_is_refused(characters, command, tmp_path):
    folder = shutil.copytree(characters[0].split("=")[1], tmp_path / "run")
    record = json.loads((folder / "config.json").read_text())
    record["config"]["model"].update(backbone="sequence", sublayers=[])
    (folder / "config.json").write_text(json.dumps(record))
    code, _, err = command(f"--workdir={folder}", *characters[1:])
    assert code == 2
    assert err == f"error: {folder} holds a model of shakespeare_char and no language model: nothing to sample\n"
