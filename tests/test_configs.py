"""Configs are data: they load at once, name what the code knows, and their commands can be run."""

import ast
import dataclasses
import importlib
import json
import pathlib
import shlex
import sys
import textwrap

import pytest

from configs import (
    argument,
    demo,
    experiment,
    language,
    layers,
    lra,
    mru_study,
    pixels,
    probes,
    published,
    shakespeare_char,
    signal_propagation,
    speech_commands,
    stability,
    tinystories,
)
from data.registry import DATA_SETS, task_spec
from models.registry import LAYERS
from training.config import ExperimentConfig, from_config_dict
from training.state import make_program

FOLDER = pathlib.Path(layers.__file__).parent
FILES = sorted(FOLDER.glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_imports_nothing_slow(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add((node.module or "").split(".")[0])
    assert imported <= {"ml_collections", "configs", *sys.stdlib_module_names}


def checked(module, text):
    """The config of a string argument, as the code gets it."""
    return from_config_dict(module.get_config(text).to_dict())


def commands():
    """The train.py commands of all docstrings: (file, arguments)."""
    for path in FILES:
        for line in (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines():
            if line.strip().startswith("python train.py"):
                yield pytest.param(shlex.split(line)[2:], id=f"{path.stem}: {line.strip()}")


def resolve(arguments):
    """The checked config of a command line without overrides."""
    (given,) = [a.removeprefix("--config=") for a in arguments if a.startswith("--config=")]
    assert len(arguments) == 2
    assert any(a.startswith("--workdir=") for a in arguments)
    path, _, text = given.partition(":")
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    return checked(module, text)


@pytest.mark.parametrize("arguments", list(commands()))
def test_the_commands_of_docstrings_are_valid(arguments):
    config = resolve(arguments)
    assert isinstance(config, ExperimentConfig)
    task_spec(config.data.request)


def test_the_program_of_a_docstring_runs(tmp_path, capsys):
    program = ast.get_docstring(ast.parse(pathlib.Path(signal_propagation.__file__).read_text())) or ""
    program = textwrap.dedent(program.split('python -c "')[1].split('"\n')[0])
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text('{"step": 0, "seed": 4, "state_energy_t": [[1.5]]}\n')
    exec(program.replace("runs/dense_complex/metrics.jsonl", str(metrics)), {})
    assert capsys.readouterr().out == "4 [[1.5]]\n"


def test_every_family_shows_a_command():
    families = {path.stem for path in FILES if "def get_config" in path.read_text()}
    shown = {str(case.id).split(":")[0] for case in commands()}
    assert families == shown >= {"lra", "demo"}


def test_options_are_those_of_the_layers():
    assert layers.OPTIONS.keys() == LAYERS.keys()
    for name, options in layers.OPTIONS.items():
        fields = {field.name for field in dataclasses.fields(LAYERS[name].config)}
        assert options.keys() == fields - {"width"}
        LAYERS[name].make_config(32, options)


def test_unknown_layer_has_no_options():
    with pytest.raises(ValueError, match="unknown layer 'gru': expected one of rotrnn, lru"):
        layers.options_of("gru")


def test_options_of_changes_a_copy():
    assert layers.options_of("lru", state_size=3)["state_size"] == 3
    assert layers.LRU["state_size"] == 64


@pytest.mark.parametrize("cell", demo.CELLS)
def test_demo_cell_is_valid(cell):
    config = checked(demo, cell)
    assert config.seeds == (0, 1, 2)
    assert config.model.layer_config().real_state_size == 64


def test_demo_cells_are_all_layers_at_three_settings():
    configs = [checked(demo, cell) for cell in demo.CELLS]
    assert len({str(config) for config in configs}) == len(configs) == 9
    assert {(c.model.depth, c.optim.lr) for c in configs} == {(2, 3e-3), (4, 3e-3), (2, 1e-2)}
    folded = [c for c in configs if c.model.options.get("normalise") == "folded"]
    assert len(folded) == 3


@pytest.mark.parametrize(
    ("get_config", "text", "message"),
    [
        (lra.get_config, "lair=lru", "unknown key 'lair' after the colon: did you mean 'layer'"),
        (
            lra.get_config,
            "rate=large",
            "unknown key 'rate' after the colon: known: task, layer, depth, real_state_size, direction, seeds",
        ),
        (lra.get_config, "layer=gru", "layer='gru' after the colon: expected one of rotrnn, lru, s5, mru, "),
        (
            mru_study.get_config,
            "model=mlp,scaling=none",
            "scaling=none after the colon: only an MRU has it, not model=mlp",
        ),
        (mru_study.get_config, "model=mlp,share=5", "share=5 after the colon: model=mlp has no recurrence to slow"),
        (mru_study.get_config, "model=ldu", "model='ldu' after the colon: expected one of mlp, attention_rope, "),
        (lra.get_config, "task=sc35", "task='sc35' after the colon: expected one of listops, text, retrieval, "),
        (lra.get_config, "preset=quick", "preset='quick' after the colon: expected one of clean, published"),
        (signal_propagation.get_config, "layer=mru", "layer='mru' after the colon: expected one of dense_complex, "),
        (signal_propagation.get_config, "layer=lru,gain=0.9", "gain=0.9 after the colon: only a dense layer has it, "),
        (shakespeare_char.get_config, "model=gpt", "model='gpt' after the colon: expected one of small_mru, "),
        (shakespeare_char.get_config, "task=text", "task='text' after the colon: expected one of shakespeare_char"),
        (tinystories.get_config, "variant=ldu", "variant=ldu after the colon: only mru has it, model=transformer_33m"),
        (shakespeare_char.get_config, "position=rope", "position=rope after the colon: only attention has it"),
        (lra.get_config, "layer=mru,direction=bidirectional", "direction=bidirectional .*: mru reads forward only"),
        (lra.get_config, "depth=two", "depth='two' after the colon: expected an integer"),
        (lra.get_config, "depth", "depth='' after the colon: expected an integer"),
        (lra.get_config, "seeds=0-3", "seeds='0-3' after the colon: expected 3, 0:5 or 0\\+3\\+7"),
        (lra.get_config, "seeds=0:3:2", "seeds='0:3:2' after the colon: expected 3, 0:5 or 0\\+3\\+7"),
        (lra.get_config, "smoke=yes", "smoke='yes' after the colon: expected true or false"),
        (lra.get_config, "depth=1,depth=2", "depth is given twice after the colon"),
        (stability.get_config, "task=text", "task='text' after the colon: expected one of listops, fsdd"),
        (demo.get_config, "layer=s5", "layer='s5' after the colon: expected one of rotrnn, rotrnn_folded, lru"),
        (demo.get_config, "rate=huge", "rate='huge' after the colon: expected one of small, large"),
        (demo.get_config, "smoke", "unknown key 'smoke' after the colon: known: layer, depth, rate, seeds"),
    ],
)
def test_refused_after_the_colon(get_config, text, message):
    with pytest.raises(ValueError, match=message) as refusal:
        get_config(text)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", (3,)), ("0:3", (0, 1, 2)), ("0+4+7", (0, 4, 7)), ("5:7", (5, 6)), ("2:2", ())]
)
def test_forms_of_seeds(text, seeds):
    assert argument.parse_argument(f"seeds={text}", {"seeds": tuple}) == {"seeds": seeds}
    assert lra.get_config(f"seeds={text}").seeds == demo.get_config(f"seeds={text}").seeds == seeds


@pytest.mark.parametrize(
    ("text", "value"), [("smoke", True), ("smoke=true", True), ("smoke=True", True), ("smoke=false", False)]
)
def test_forms_of_a_switch(text, value):
    assert argument.parse_argument(text, {"smoke": bool}) == {"smoke": value}


def test_every_kind_of_a_key_is_refused_with_a_name():
    kinds = {kind for module in (demo, experiment, language, probes) for kind in module.KEYS.values()}
    for kind in kinds - {str}:
        with pytest.raises(ValueError, match=r"key='x' after the colon: expected (true|an|a|3)"):
            argument.parse_argument("key=x", {"key": kind})


@pytest.mark.parametrize("text", [None, ""])
def test_nothing_after_the_colon_is_the_default(text):
    assert lra.get_config(text).to_dict() == lra.get_config("task=listops,layer=rotrnn,seeds=0").to_dict()


def test_the_keys_change_what_they_name():
    config = checked(lra, "layer=lru,depth=3,direction=bidirectional,seeds=1+2")
    assert (config.model.layer, config.model.depth, config.seeds) == ("lru", 3, (1, 2))
    assert config.model.options["direction"] == "bidirectional"
    assert set(config.model.options) == layers.LRU.keys()


@pytest.mark.parametrize("layer", layers.OPTIONS)
def test_smoke_shrinks_to_seconds(layer):
    full, small = (checked(lra, f"layer={layer}{end}") for end in ("", ",smoke"))
    assert small.data.smoke
    assert not full.data.smoke
    assert task_spec(small.data.request).length <= 96 < task_spec(full.data.request).length
    assert small.train.steps <= 12
    assert small.train.batch_size <= 8
    assert small.optim.warmup_steps < small.train.steps
    assert small.model.width <= 16
    assert small.model.options.get("state_size", 16) <= 16
    assert small.model.depth <= 2
    # All that happens in a run happens in a smoke: evaluations, probes and saves, not only at the end.
    assert max(small.train.eval_every, small.train.probe_every, small.train.checkpoint_every) * 2 <= small.train.steps
    assert small.model.mixing is full.model.mixing


def test_depth_scales_the_initial_output_of_mru():
    for text, sublayers in (("layer=mru", 6), ("layer=mru,depth=3", 3), ("layer=mru,depth=1,direction=forward", 1)):
        assert checked(lra, text).model.options["sublayers"] == sublayers


def test_a_config_is_made_anew_each_time():
    lra.get_config("smoke").update({"model": {"options": {"heads": 1}}})
    assert checked(lra, "").model.options["heads"] == 32
    assert layers.ROTRNN["heads"] == 32


FAMILIES = {task: family for family in (lra, speech_commands, pixels) for task in family.TASKS}
TEXTS = {"shakespeare_char": shakespeare_char, "tinystories": tinystories, "tinystories_small": tinystories}


def abstract(module, text):
    """The sizes of a model and its optimiser fit together, and with the task; no array is made."""
    config = checked(module, text)
    make_program(config, task_spec(config.data.request))
    return config


@pytest.mark.parametrize("task", FAMILIES)
def test_every_layer_fits_every_task_in_full_size_and_in_smoke(task):
    for layer in layers.OPTIONS:
        full, small = (abstract(FAMILIES[task], f"task={task},layer={layer}{end}") for end in ("", ",smoke"))
        checked(FAMILIES[task], f"task={task},layer={layer},preset=published")
        sizes = getattr(DATA_SETS[task], "SIZES")  # noqa: B009  a module, of which the protocol says less
        assert published.TRAINING_RECORDS[task] == sizes.get(task, sizes)["train"]
        assert task_spec(full.data.request).length == published.LENGTHS[task]
        assert task_spec(small.data.request).length <= 96


@pytest.mark.parametrize("task", TEXTS)
def test_every_language_model_fits_every_text(task):
    for model in language.MODELS:
        for end in ("", ",smoke"):
            abstract(TEXTS[task], f"task={task},model={model}{end}")


@pytest.mark.parametrize("model", mru_study.MODELS)
def test_the_models_of_the_study_differ_in_their_mixing_layer_only(model):
    own = mru_study.MODELS[model][0] in ("mru", "rotrnn", "lru", "s5")
    config = checked(mru_study, f"model={model},lr=0.003" + ",share=0.3" * own)
    abstract(mru_study, f"model={model},smoke")
    assert config.model.layers[-4:] == ("mlp",) * 4
    assert len(config.model.layers) == (4 if model == "mlp" else 5)
    if own:
        assert config.model.layer_config().real_state_size == 128
        slow = config.optim.w_in_rate * config.optim.lr if config.model.layer == "mru" else config.optim.ssm_lr
        assert slow == pytest.approx(0.0009)


@pytest.mark.parametrize("layer", signal_propagation.LAYERS)
def test_layers_whose_signal_is_compared_carry_the_same_numbers(layer):
    for end in ("", ",smoke"):
        assert abstract(signal_propagation, f"layer={layer}{end}").model.layer_config().real_state_size == 64
    if layer.startswith("dense"):
        assert checked(signal_propagation, f"layer={layer},gain=0.82").model.options["gain"] == 0.82


def test_a_recipe_says_how_texts_are_trained():
    """Tokens of an update and where the rate ends, by the published setting with a gradient clipped as a whole."""
    shakespeare, stories = checked(shakespeare_char, ""), checked(tinystories, "")
    for config, tokens, end in ((shakespeare, 16_384, 1e-4), (stories, 655_360, 5e-4)):
        assert config.train.batch_size * config.data.steps == tokens
        assert (config.optim.lr_min, config.optim.clip, config.optim.weight_decay) == (pytest.approx(end), 1.0, 0.1)
    assert (shakespeare.optim.b2, stories.optim.b2) == (0.99, 0.95)
    assert stories.train.steps * 655_360 == pytest.approx(204.8e6, rel=0.01)
    assert stories.train.batch_size // stories.train.accumulate == 80


def test_the_published_preset_is_what_the_published_code_does():
    clean, quirks = (checked(lra, f"task=text,layer=s5,preset={preset}") for preset in experiment.PRESETS)
    assert (clean.model.padding, clean.optim.schedule, clean.optim.decay) == ("full", "clean", "clean")
    assert (quirks.model.padding, quirks.optim.schedule, quirks.optim.decay) == ("pool_only", "published", "published")
    assert checked(lra, "task=text,layer=lru,preset=published").model.padding == "none"
    assert clean.data.request.choices == ()
    assert quirks.data.request.choices == (("policy", "test_selected"),)
    # 35 epochs: of 450 steps on 22,500 reviews, of 500 on 25,000.
    assert (clean.train.steps, quirks.train.steps) == (35 * 450, 35 * 500)


@pytest.mark.parametrize("task", ["listops", "text", "retrieval", "image", "pathfinder", "pathx"])
def test_the_rows_of_s5_are_those_of_its_run_scripts(task):
    reference = json.loads((FOLDER / "reference_results.json").read_text())["hyperparameters"]["S5"][task]
    config = checked(lra, f"task={task},layer=s5,preset=published")
    assert config.train.steps == reference["total_steps"]
    assert config.optim.warmup_steps == reference["warmup_epochs"] * reference["steps_per_epoch"]
    assert (config.optim.lr, config.optim.ssm_lr) == (reference["lr"], reference["ssm_lr"])
    assert (config.model.width, config.model.depth) == (reference["d_model"], reference["depth"])


@pytest.mark.parametrize("task", ["listops", "text", "retrieval", "pathfinder", "pathx", "scifar"])
def test_the_rows_of_the_lru_are_those_of_its_tables(task):
    reference = json.loads((FOLDER / "reference_results.json").read_text())["hyperparameters"]["LRU"][task]
    config = checked(FAMILIES[task], f"task={task},layer=lru")
    epochs = 22_500 / 25_000 if task == "text" else 1
    assert config.train.steps == pytest.approx(reference["iterations"] * epochs, rel=0.01)
    assert (config.model.width, config.model.options["state_size"]) == (
        reference["d_model"],
        reference["state_size_complex"],
    )


@pytest.mark.parametrize(
    "family", [demo, lra, mru_study, pixels, probes, shakespeare_char, speech_commands, tinystories]
)
def test_every_family_can_be_told_how_to_use_a_machine(family):
    """A flag changes only a key that is there."""
    config = family.get_config()
    assert set(config["train"]) > set(layers.TRAIN)
    assert (config["model"]["precision"], config["compile_cache"], config["mirrors"]) == ("float32", "", "none")
