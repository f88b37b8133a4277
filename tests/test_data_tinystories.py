"""TinyStories: the ids are the stories, in every vocabulary and packing, whatever the number of processes."""

import math
import os
import random
from pathlib import Path

import numpy as np
import pytest
from language import sources_in, take, write_byte_pairs

from data import prepared, story_files, tinystories
from data.byte_pairs import Tokenizer, Vocab, choose, read_tokens
from data.errors import DataError
from data.examples import Example
from data.parallel import silent
from data.spec import NO_LABEL, DataRequest, TaskKind
from data.windows import Packing, evaluation_windows, read_records, training_windows
from tests.fake_sources import Stored

VOCABS, PACKINGS = ("top10k", "gpt2", "used"), ("separated", "published")


def request(task="tinystories", limit=None, steps=None, **choices):
    return DataRequest(task, limit=limit, choices=tuple(choices.items()), partial=True, steps=steps)


def grammar(seed, count):
    """Small stories of several lines, with quotes and accents that are not ASCII."""
    rng = random.Random(seed)
    names, things = ("Lily", "Tom", "Zoë"), ("ball", "thing", "ring", "crêpe")
    return [
        f"One day, {(name := rng.choice(names))} saw the {(thing := rng.choice(things))}.\n\n"
        f"“Is this the {thing}?” said {name}.{'  Yes!' * rng.randrange(3)}"
        for _ in range(count)
    ]


def write_file(path, stories, newline="\n"):
    """The published form: every story ends with a separator on a line of its own; an empty one here and there."""
    empty = "\n\n<|endoftext|>\n"
    text = "".join(f"{story}\n<|endoftext|>\n{empty * (index % 7 == 0)}" for index, story in enumerate(stories))
    path.write_bytes(text.replace("\n", newline).encode())


TRAIN = grammar(0, 45)
VALID = [*grammar(1, 22), "A quiz!"]  # the last one has letters that the training split lacks


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tinystories, "GROUP", 10)
    write_byte_pairs(tmp_path)
    write_file(tmp_path / "TinyStories-train.txt", TRAIN)
    write_file(tmp_path / "TinyStories-valid.txt", VALID)
    return sources_in(tmp_path)


def generate(asked, folder, processes=1):
    """Splits, facts, and the tokenizer that comes with them."""
    generated = tinystories.generate(asked, folder, processes, silent)
    splits, facts = take(generated)
    return splits, facts, Tokenizer.from_arrays(generated.arrays())


def texts(ids, tokenizer):
    ends = np.flatnonzero(ids == tokenizer.end_of_text)
    return [tokenizer.decode(piece) for piece in np.split(ids, ends + 1)[:-1]]


@pytest.mark.parametrize("vocab", VOCABS)
def test_separated_stories_come_back(folder, vocab):
    splits, facts, tokenizer = generate(request(vocab=vocab), folder)
    assert list(splits) == ["train", "val"]
    for split, stories in (("train", TRAIN), ("val", VALID)):
        records = [example.values for example in splits[split].examples()]
        assert [len(values) for values in records[:-1]] == [4096] * (len(records) - 1)
        assert texts(np.concatenate(records), tokenizer) == stories
        assert all(values.dtype == np.uint16 for values in records)
        assert facts["tokens"][split] == sum(map(len, records))
        assert facts["text_bytes"][split] == sum(len(story.encode()) for story in stories)
        assert facts["stories"][split] == len(stories)
    assert facts["end_of_text"] == tokenizer.end_of_text == {"top10k": 0}.get(vocab, facts["vocabulary_size"] - 1)
    assert facts["vocabulary_size"] == len(tokenizer.vocabulary)
    assert {entry["file"] for entry in facts["sources"]} == {
        "TinyStories-train.txt",
        "TinyStories-valid.txt",
        "vocab.bpe",
        "encoder.json",
    }


@pytest.mark.parametrize("vocab", VOCABS)
def test_published_stories_follow_each_other_in_groups(folder, vocab):
    splits, facts, tokenizer = generate(request(vocab=vocab, packing="published"), folder)
    for split, stories in (("train", TRAIN), ("val", VALID)):
        groups = [tokenizer.decode(example.values) for example in splits[split].examples()]
        assert groups == ["".join(stories[start : start + 10]) for start in range(0, len(stories), 10)]
    assert (facts["end_of_text"] is None) == (vocab == "used")


def test_used_ids_are_all_used(folder):
    splits, facts, _ = generate(request(vocab="used"), folder)
    found = np.unique(np.concatenate([example.values for split in splits.values() for example in split.examples()]))
    assert found.tolist() == list(range(facts["vocabulary_size"]))


def test_small_is_the_first_nine_tenths_of_the_validation_file(folder):
    splits, facts, tokenizer = generate(request("tinystories_small"), folder)
    for split, stories in (("train", VALID[:20]), ("val", VALID[20:])):
        assert texts(np.concatenate([example.values for example in splits[split].examples()]), tokenizer) == stories
    assert "TinyStories-train.txt" not in folder.asked
    sources = tinystories.sources(request("tinystories_small"))
    assert {source.name for source in sources} == set(folder.asked)
    assert facts["stories"] == {"train": 20, "val": 3}


def test_a_limit_reads_no_further(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(story_files, "PIECE", 64)
    monkeypatch.setattr(story_files, "LONGEST_STORY", 300)
    with (tmp_path / "TinyStories-train.txt").open("a") as file:
        file.write("x" * 1000)
    assert generate(request(limit=45), folder)[1]["stories"] == {"train": 45, "val": 23}
    with pytest.raises(DataError, match=r"no <\|endoftext\|> in"):
        generate(request(), folder)


@pytest.mark.parametrize(("task", "stories"), [("tinystories", VALID), ("tinystories_small", VALID[20:])])
def test_a_limit_takes_the_first_stories(folder, task, stories):
    splits, facts, tokenizer = generate(request(task, limit=2), folder)
    assert facts["stories"] == {"train": 2, "val": 2}
    assert texts(np.concatenate([example.values for example in splits["val"].examples()]), tokenizer) == stories[:2]


def test_the_number_of_processes_changes_nothing(folder):
    asked = request(limit=25)
    (one, facts_one, _), (two, facts_two, _) = (generate(asked, folder, processes) for processes in (1, 2))
    assert facts_one["tokens"] == facts_two["tokens"]
    for split in one:
        for a, b in zip(one[split].examples(), two[split].examples(), strict=True):
            np.testing.assert_array_equal(a.values, b.values)


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("vocab", VOCABS)
def test_check_passes_and_counts(folder, vocab, packing):
    asked = request(vocab=vocab, packing=packing)
    splits, facts, _ = generate(asked, folder)
    statistics = tinystories.check(asked, splits, facts, 1, silent)
    assert statistics["train_stories"] == 45
    assert statistics["val_text_bytes"] == sum(len(story.encode()) for story in VALID)
    assert statistics["val_uniform_loss"] == math.log(facts["vocabulary_size"])
    assert 0 < statistics["val_unigram_loss"] < statistics["val_uniform_loss"]


def test_the_unigram_loss_has_counts_plus_one():
    splits = {
        "train": Stored([Example(np.array([1, 1, 0], np.uint16), None)]),
        "val": Stored([Example(np.array([2, 0], np.uint16), None)]),
    }
    facts = {"vocabulary_size": 3, "end_of_text": 0}
    facts |= {"tokens": {"train": 3, "val": 2}, "stories": {"train": 1, "val": 1}, "text_bytes": {"train": 9, "val": 9}}
    found = tinystories.check(request(), splits, facts, 1, silent)["val_unigram_loss"]
    assert found == pytest.approx(-(math.log(1 / 6) + math.log(2 / 6)) / 2)


def spoil(values, place, value):
    values = np.array(values)
    values[place] = value
    return Example(values, None)


@pytest.mark.parametrize(
    ("packing", "change", "line"),
    [
        ("separated", lambda r: [*r[:-1], Example(r[-1].values[1:], None)], r"val: \d+ stored tokens, expected"),
        ("separated", lambda r: [spoil(r[0].values, 5, 0), *r[1:]], "val: 24 ends of text for 23 stories"),
        ("separated", lambda r: [*r[:-1], spoil(r[-1].values, [5, -1], [0, 5])], "the last story has no end"),
        ("separated", lambda r: [spoil(r[0].values, 5, 9_999), *r[1:]], "val record 0 has id 9999, expected less than"),
        ("published", lambda r: [spoil(r[0].values, 5, 0), *r[1:]], "val: 1 ends of text for 23 stories"),
        (
            "published",
            lambda r: [Example(np.concatenate([e.values for e in r[:2]]), None), *r[2:]],
            "val: 2 groups, expected 3 of 23 stories",
        ),
    ],
)
def test_a_wrong_record_is_found(folder, packing, change, line):
    asked = request(packing=packing)
    splits, facts, _ = generate(asked, folder)
    splits["val"] = Stored(change(splits["val"].records))
    with pytest.raises(DataError, match=line):
        tinystories.check(asked, splits, facts, 1, silent)


def test_official_files_have_the_published_number_of_stories(folder):
    splits, facts, _ = generate(request(), folder)
    official = DataRequest("tinystories")
    with pytest.raises(DataError, match="tinystories: 45 stories in train, expected 2119719"):
        tinystories.check(official, splits, facts, 1, silent)
    facts["stories"] = dict(tinystories.STORIES)
    tinystories._check_stories(facts["stories"])


def test_windows_of_the_stored_records(folder):
    """Separated: one stream. Published: no window crosses a group."""
    for packing in PACKINGS:
        asked = request(packing=packing)
        splits, facts, _ = generate(asked, folder)
        ids = [example.values for example in splits["train"].examples()]
        offsets = np.cumsum([0, *map(len, ids)])
        read = read_records(ids.__getitem__, offsets)
        arguments = read, tinystories.segments(asked, offsets), 16, Packing(packing)
        if packing == "separated":
            assert len(training_windows(*arguments)) == (facts["tokens"]["train"] - 1) // 16
            assert evaluation_windows(*arguments).targets == facts["tokens"]["train"] - 1
        else:
            assert len(training_windows(*arguments)) == sum(len(group) // 17 for group in ids)


def test_the_task():
    for vocab, size in (("top10k", 10_000), ("gpt2", 50_257), ("used", 50_257)):
        spec = tinystories.task_spec(request(vocab=vocab))
        assert (spec.kind, spec.input_width, spec.classes, spec.length, spec.dtype) == (
            TaskKind.LANGUAGE,
            size,
            size,
            512,
            "uint16",
        )
    assert tinystories.task_spec(request()).input_width == 10_000
    for bad, line in (
        (request(vocab="bytes"), r"unknown vocab 'bytes' \(known: top10k, gpt2, used\)"),
        (request(packing="dense"), "unknown packing 'dense'"),
        (DataRequest("tinystories", (3, 9)), "tinystories has no length window"),
    ):
        with pytest.raises(DataError, match=line):
            tinystories.task_spec(bad)
    assert tinystories.about(request()).download == 1_924_281_556 + 19_447_282 + 456_318 + 1_042_301


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("vocab", VOCABS)
def test_the_sample_has_the_ids_of_the_vocabulary(vocab, packing):
    asked = request(vocab=vocab, packing=packing)
    splits = tinystories.smoke(asked)
    first, end = (1, 0) if vocab == "top10k" else (0, 50_256)
    for examples in splits.values():
        ids = np.concatenate([example.values for example in examples])
        assert ids.dtype == np.uint16
        assert ((ids >= first) & (ids < first + 256) | (ids == end)).all()
        assert (end in ids) == (packing == "separated")
        assert len(ids) > 16 * 513
        assert len(examples) <= 64


@pytest.mark.parametrize("vocab", VOCABS)
def test_opened_data_know_the_bytes_of_their_tokens(folder, vocab, tmp_path):
    """The bytes of all labels are those of the text without its first token; the sample has a byte an id."""
    asked = request("tinystories_small", vocab=vocab, steps=7)
    manifest = prepared.prepare(asked, tmp_path / "data", data_source=folder.folder, processes=1)
    opened = prepared.open_data(asked, tmp_path / "data")
    tokenizer = Tokenizer.from_arrays(
        {name: np.load(tmp_path / "data" / manifest["name"] / f"{name}.npy") for name in manifest["arrays"]}
    )
    for data, text_bytes in ((opened, len("".join(VALID[20:]).encode())), (prepared.smoke_data(asked), None)):
        val, sizes = data.splits["val"], data.token_bytes
        assert sizes is not None
        assert sizes.shape == (data.spec.classes,)
        batch = val.gather(range(len(val)))
        labels = batch["labels"][batch["labels"] != NO_LABEL]
        if text_bytes is None:
            ends = (labels == (0 if vocab == "top10k" else 50_256)).sum()
            assert sizes[labels].sum() == len(labels) - ends
            assert ends == 100
        else:
            first = tokenizer.decode(batch["inputs"][0, :1])
            assert sizes[labels].sum() == text_bytes - len(first.encode())
    other = DataRequest("listops", length_window=(24, 96))
    assert prepared.smoke_data(other).token_bytes is None


def test_too_few_stories_are_refused(folder, tmp_path):
    write_file(tmp_path / "TinyStories-valid.txt", VALID[:1])
    with pytest.raises(DataError, match="holds 1 stories: too few"):
        generate(request("tinystories_small"), folder)


if os.environ.get("LINREC_DATA_SOURCE"):

    def test_the_sample_reads_as_gpt2_reads_it(tmp_path):
        """The bytes of the sample are those of the real vocabulary."""
        folder = Path(os.environ["LINREC_DATA_SOURCE"]) / "gpt2_bpe"
        tokens = read_tokens(folder / "vocab.bpe", folder / "encoder.json")
        counts = np.zeros(len(tokens) + 1, np.int64)
        for vocab in (Vocab.TOP10K, Vocab.GPT2):
            tokenizer = Tokenizer(tokens, choose(vocab, counts, counts))
            examples = tinystories.smoke(request(vocab=vocab.value))["val"]
            stories = texts(np.concatenate([example.values for example in examples]), tokenizer)
            assert len(stories) == 100
            assert all(story.startswith("One day, ") and story.endswith(".") for story in stories)
