"""Scores of language models: by position, by byte, in other windows, with what came before; how smoothly they train."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import assert_refused, call
from flax import nnx
from tiny import tiny_config, tiny_dict

from configs.layers import options_of
from configs.tinystories import get_config
from data import tinystories
from data.prepared import smoke_data
from data.spec import NO_LABEL, InputKind, TaskKind, TaskSpec
from data.windows import Packing, Windows, evaluation_windows
from training import checkpoint
from training.config import from_config_dict
from training.evaluate import evaluate, evaluate_carried, listed
from training.language import bits_by_unit, bytes_per_label, metrics_of, smoothness
from training.loss import Sums, score_labels
from training.mesh import make_mesh
from training.reading import Reading
from training.results import _means, read_results
from training.state import initial_params_of_all, initial_state, make_program
from training.step import make_carried_steps
from training.workdir import CHECKPOINTS, claim

TOKENS, STEPS, SEEDS = 11, 6, (0, 1)
TASK = TaskSpec("text", TaskKind.LANGUAGE, InputKind.TOKENS, TOKENS, STEPS, TOKENS)
STREAM = np.random.default_rng(0).integers(0, TOKENS, 27).astype(np.uint8)
RECURRENT = {
    "mru": {"heads": 2, "state_size": 8},
    "linear_attention": {"heads": 2},
    "rotrnn": {"heads": 2, "state_size": 8, "direction": "forward"},
    "lru": {"state_size": 6, "direction": "forward"},
    "s5": {"state_size": 8, "blocks": 2, "direction": "forward"},
}


def windows(*offsets: int, length: int = STEPS) -> Windows:
    return evaluation_windows(
        lambda start, stop: STREAM[start:stop], np.array(offsets or (0, len(STREAM))), length, Packing.SEPARATED
    )


@functools.cache
def program_of(layer):
    """A language model of two seeds, and parameters that are far from their initial values."""
    options = options_of(layer, **RECURRENT.get(layer, {"heads": 2}))
    options |= {name: value for name, value in (("sublayers", 2), ("max_length", STEPS)) if name in options}
    sizes = {"model.layer": layer, "model.options": options, "model.width": 8, "model.depth": 1, "seeds": SEEDS}
    backbone = {"model.backbone": "language", "model.sublayers": (layer, "mlp"), "train.eval_batch_size": 4}
    program = make_program(tiny_config("lru", sizes | backbone), TASK)
    draw = np.random.default_rng(1)
    params = jax.tree.map(lambda p: np.asarray(0.6 * draw.normal(size=(2, *p.shape)), p.dtype), program.abstract_params)
    return program, params


def nats(layer, stretches, length):
    """-log p of every token but the first of some stretches of the stream, (seeds, stretches, length), 0 behind their
    ends: each one forward pass from the state before any text."""
    inputs, labels = np.zeros((2, len(stretches), length), np.int64)
    for row, (start, stop) in enumerate(stretches):
        inputs[row, : stop - start - 1] = STREAM[start : stop - 1]
        labels[row, : stop - start - 1] = STREAM[start + 1 : stop]
    lengths = np.array([stop - start - 1 for start, stop in stretches])
    program, params = program_of(layer)

    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def run(params):
        return jax.nn.log_softmax(nnx.merge(program.graphdef, params)(inputs, lengths).logits)

    found = np.stack([run(jax.tree.map(lambda leaf, i=i: leaf[i], params)) for i in range(len(SEEDS))])
    chosen = np.take_along_axis(found, labels[None, ..., None], -1)[..., 0]
    return -chosen.astype(np.float64) * (np.arange(length) < lengths[:, None])


# Means over a split.


def table_step(tables):
    """An evaluation step whose models are tables: logits of what follows each token, one table a seed."""

    def step(params, stats, batch):
        sums = [score_labels(jnp.asarray(table)[batch["inputs"]], batch["labels"], batch["weight"]) for table in tables]
        return Sums(*map(jnp.stack, zip(*sums, strict=True)))

    return step


def test_loss_by_position_is_that_of_a_loop():
    """27 tokens in windows of 6: four full ones and one of two labels, in batches of two."""
    tables = np.random.default_rng(2).normal(size=(2, TOKENS, TOKENS)).astype(np.float32)
    found = evaluate(table_step(tables), None, None, windows(), 2, make_mesh(2, "batch"))
    sums, counts = np.zeros((2, STEPS)), np.zeros(STEPS)
    for target in range(1, len(STREAM)):
        position = (target - 1) % STEPS
        counts[position] += 1
        for seed, table in enumerate(tables):
            logits = table[STREAM[target - 1]].astype(np.float64)
            sums[seed, position] += np.log(np.exp(logits).sum()) - logits[STREAM[target]]
    assert counts.tolist() == [5, 5, 4, 4, 4, 4]
    np.testing.assert_allclose(found["loss_by_step"], sums / counts, rtol=1e-6)
    np.testing.assert_allclose(found["loss"], sums.sum(1) / 26, rtol=1e-6)
    np.testing.assert_allclose((found["loss_by_step"] * counts).sum(1) / counts.sum(), found["loss"], rtol=1e-12)


def test_a_position_without_a_label_is_listed_as_none():
    short = evaluate(table_step(np.ones((1, 11, 11))), None, None, windows(0, 7, 9), 2, make_mesh(2, "batch"))
    assert listed(short["loss_by_step"][0]) == pytest.approx([math.log(11)] * 6)
    assert listed(np.array([1.0, np.nan, np.inf])) == [1.0, None, None]


# What came before a window.


@pytest.mark.parametrize("layer", RECURRENT)
def test_a_carried_state_gives_what_one_pass_over_the_whole_text_gives(layer):
    """And over each segment of it, where the state begins anew; one compiled program for all windows."""
    program, params = program_of(layer)
    start, step = make_carried_steps(program)
    expected = nats(layer, [(0, 27), (0, 13), (13, 27), (6, 27)], 26)
    whole = evaluate_carried(start, step, params, windows().consecutive())
    np.testing.assert_allclose(whole["loss"], expected[:, 0].sum(1) / 26, rtol=1e-4)
    in_parts = evaluate_carried(start, step, params, windows(0, 13, 27).consecutive())
    np.testing.assert_allclose(in_parts["loss"], expected[:, 1:3].sum((1, 2)) / 25, rtol=1e-4)
    assert whole.keys() == {"loss", "accuracy"}
    assert step._cache_size() == 1  # pyright: ignore[reportFunctionMemberAccess]
    # Nothing would be tested if what came before did not matter.
    assert (np.abs(expected[:, 3, :12] - expected[:, 0, 6:18]).max(1) > 0.01).all()


def test_attention_slides_over_the_text():
    """Windows of 6 every 3 tokens, the first three inputs of all but the first read only."""
    program, params = program_of("attention")
    reading = Reading(carried=True)
    split = reading.scored_split(windows(), program.config.model)
    best = type("Source", (), {"params": params, "stats": (None, None)})
    found = _means(program, reading, best, split)  # pyright: ignore[reportArgumentType]
    stretches = [(start, min(start + 7, 27)) for start in range(0, 24, 3)]
    total, scored = np.zeros(2), []
    for (start, stop), values in zip(stretches, nats("attention", stretches, 6).swapaxes(0, 1), strict=True):
        first = 0 if start == 0 else 3
        total += values[:, first:].sum(1)
        scored += range(start + first + 1, stop)
    assert scored == list(range(1, 27))
    np.testing.assert_allclose(found["loss"], total / 26, rtol=1e-5)
    assert found.keys() == {"loss", "accuracy"}


# Bits.


def test_bits_of_a_byte_count_separators_as_no_bytes():
    """Ids 0 ... 10 of 0 ... 10 bytes."""
    found = bytes_per_label(windows(), np.arange(11, dtype=np.int32))
    assert found == STREAM[1:].sum() / 26
    bits = bits_by_unit(2.0, found)
    assert bits["bits_per_token"] == pytest.approx(2 / math.log(2))
    assert bits["bits_per_byte"] == pytest.approx(2 * 26 / (math.log(2) * STREAM[1:].sum()))
    assert bits_by_unit(2.0, None) == {"bits_per_character": pytest.approx(2 / math.log(2))}
    assert bits_by_unit(math.nan, found) == {"bits_per_token": None, "bits_per_byte": None}


# How smoothly a model trained.


def row(step, loss=2.0, norm=1.0, lr=0.1, seed=0, split="train"):
    return {"step": step, "seed": seed, "split": split, "loss": loss, "grad_norm": norm, "lr": lr}


def resting(step):
    return row(step, math.nan, math.nan, math.nan)


QUIET = {"spikes_per_1000": 0.0, "nonfinite_step": None, "grad_norm_peak": 1.0}
UNKNOWN = {"spikes_per_1000": None, "nonfinite_step": None, "grad_norm_peak": None}


def test_smoothness_is_that_of_one_seed_up_to_the_checkpoint():
    rows = [row(step, 9.0 if step == 150 else 2.0, 4.0 if step == 120 else 1.0) for step in range(1, 201)]
    first = {"step": 0, "seed": 0, "split": "train", "loss": None}
    others = [row(step, seed=1) for step in range(1, 201)]
    evaluated = [{"step": 100, "seed": 0, "split": "val", "loss": 3.0}]
    everything = [first, *rows, *others, *evaluated]
    found = smoothness(everything, 0, 200, alive=True)
    assert found == {"spikes_per_1000": 5.0, "nonfinite_step": None, "grad_norm_peak": 4.0}
    assert smoothness(everything, 0, 149, alive=True) == QUIET | {"grad_norm_peak": 4.0}
    assert smoothness(everything, 1, 200, alive=True) == QUIET


def test_smoothness_needs_every_update():
    rows = [row(step) for step in range(1, 201)]
    assert smoothness(rows[:50] + rows[51:], 0, 200, alive=True) == UNKNOWN
    assert smoothness(rows[9::10], 0, 200, alive=True) == UNKNOWN
    assert smoothness([], 0, 200, alive=True) == UNKNOWN
    assert smoothness(rows[:100], 0, 100, alive=True) == UNKNOWN  # none of them is judged


@pytest.mark.parametrize("bad", [row(151, math.nan, math.nan), row(151, 2.5, math.inf), row(151)])
def test_the_update_that_was_not_finite_is_found(bad):
    """Whatever was not finite there: the loss, the gradient, or only what the update made of the parameters."""
    rows = [*(row(step) for step in range(1, 151)), bad, *(resting(step) for step in range(152, 161))]
    assert smoothness(rows, 0, 160, alive=False) == QUIET | {"nonfinite_step": 151}
    assert smoothness(rows[:151], 0, 151, alive=False) == QUIET | {"nonfinite_step": 151}
    sparse = [*rows[9:150:10], bad, *rows[159:]]
    assert smoothness(sparse, 0, 160, alive=False) == UNKNOWN | {"nonfinite_step": 151}


def test_a_gradient_norm_that_overflowed_has_no_peak():
    rows = [row(step, norm=math.inf if step == 150 else 1.0) for step in range(1, 201)]
    assert smoothness(rows, 0, 200, alive=True) == QUIET | {"grad_norm_peak": None}


def test_a_run_without_metrics_has_no_rows(tmp_path):
    assert metrics_of(tmp_path / "metrics.jsonl") == []


# The command.


@pytest.fixture
def stories(tmp_path, monkeypatch):
    """A run that has not been trained, and the data of its smoke sample: every id is a byte or a separator."""
    monkeypatch.setattr(tinystories, "SMOKE_STORIES", {"train": 10, "val": 10})
    plain = get_config("task=tinystories_small,model=small_linear_attention,smoke").to_dict()
    plain["model"].update(sublayers=["linear_attention"])
    plain["model"]["options"].update(sublayers=1)
    config = from_config_dict(plain)
    data = smoke_data(config.data.request)
    program = make_program(config, data.spec)
    params = jax.tree.map(lambda leaf: 10 * leaf, initial_params_of_all(program))
    claim(tmp_path, config, {"data_sha256": data.content_sha256})
    state = initial_state(program, params, (None,))
    checkpoint.save(tmp_path / CHECKPOINTS, 0, state, {"repairs": [], "stopped": []})
    return tmp_path, data


def test_stories_are_scored_in_three_ways(stories):
    folder, data = stories
    for arguments in ((), ("--window=48",), ("--carried",), ()):
        ended = call("eval.py", f"--workdir={folder}", "--checkpoint=last", *arguments)
        assert ended.code == 0, ended.err
        if arguments == ("--window=48",):
            assert ", last checkpoint, windows of 48, smoke; " in ended.out
    longer, carried, plain = read_results(folder / "results.json")
    assert ended.out.startswith(f"val loss {plain['mean']:.3f} nats (")
    assert ", last checkpoint, smoke; " in ended.out
    records = {record["policy"]: (record["window"], record["carried"]) for record in (plain, longer, carried)}
    assert records == {
        "no selection": (None, False),
        "no selection, scored in windows of 48": (48, False),
        "no selection, scored in consecutive windows of 24 with the state carried": (None, True),
    }
    assert len({record["mean"] for record in (plain, longer, carried)}) == 3
    labels = data.splits["val"].gather(range(len(data.splits["val"])))["labels"]
    labels = labels[labels != NO_LABEL]
    assert (labels == 0).sum() == 10  # end-of-text
    for record, length in ((plain, 24), (longer, 48)):
        scores = record["seeds"]["0"]
        counts = (len(labels) - 1 - np.arange(length)) // length + 1
        assert np.dot(scores["loss_by_position"], counts) / len(labels) == pytest.approx(scores["loss"])
        assert record["count"] == -(-len(labels) // length)
    for record in (plain, longer, carried):
        scores = record["seeds"]["0"]
        assert scores["bits_per_token"] == pytest.approx(scores["loss"] / math.log(2))
        total = scores["loss"] * len(labels) / math.log(2)
        assert scores["bits_per_byte"] == pytest.approx(total / (labels != 0).sum())
        assert UNKNOWN.items() <= scores.items()
    assert "loss_by_position" not in carried["seeds"]["0"]


@pytest.mark.parametrize(
    ("model", "arguments", "line"),
    [
        (
            "small_attention",
            ["--window=2049"],
            "--window=2049: layer attention was built for 2048 tokens (model.options.max",
        ),
        ("small_attention", ["--window=2049", "--carried"], "--window=2049: layer attention was built for 2048 tokens"),
        ("small_mlp", ["--carried"], "--carried: layer mlp carries no state: the plain evaluation is the same"),
        ("small_mlp", ["--window=0"], "--window=0: expected at least 1"),
        ("small_mlp", ["--window=99999"], "windows of 99999 + 1 tokens in a text of"),
        (None, ["--window=9"], "--window=9: listops_24_96 is no text that could be cut into windows"),
        (None, ["--carried"], "--carried: backbone=sequence hands on no state, only backbone=language does"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path, model, arguments, line):
    plain = tiny_dict("lru") if model is None else get_config(f"task=tinystories_small,model={model},smoke").to_dict()
    claim(tmp_path, from_config_dict(plain), {"data_sha256": ""})
    assert_refused(call("eval.py", f"--workdir={tmp_path}", *arguments), line)
