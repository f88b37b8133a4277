"""Who may import whom, how large files and functions may be: the whole repository is walked."""

import ast
import functools
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent

ANYTHING = {"scripts", "benchmarks", "tests"}
"""They import anything; nothing else imports them."""

LAYER_FOLDER = {"linalg", "scans"}
"""What a folder with a layer.py may import; never another one of its kind."""

ALLOWED = {
    "linalg": set(),
    "scans": set(),
    "theory": {"linalg", "scans"},
    "models": {"scans", "data.spec"},
    "models.registry": {"every layer folder"},
    "data": set(),
    "training": {"scans", "models", "data"},
    "configs": {"ml_collections"},
    "train": {"training"},
    "eval": {"training"},
}
"""What each package, or one module of it, may import of this repository, besides itself."""

ONE_HOME = {
    "orbax": {"training.checkpoint"},
    "tensorflow_datasets": {"data.store"},
    "array_record": {"data.store"},
    "matplotlib": {"scripts.figures"},
    "safetensors": {"scripts.export"},
    "wandb": {"training.mirroring"},
    "tensorboardX": {"training.mirroring"},
}
"""Libraries with one home outside of tests."""

NO_FLAX, NO_JAX = {"linalg", "scans", "data"}, {"configs"}
LONGEST_FILE, LONGEST_FUNCTION = 400, 80


@functools.cache
def sources():
    """Module name -> text, of every Python file of the repository."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if not any(part.startswith(".") for part in parts) and parts[0] != "runs":
            found[".".join(parts).removesuffix(".__init__")] = path.read_text(encoding="utf-8")
    return found


@functools.cache
def imports_of(text):
    """Names that a module imports; "a.b" for both `import a.b` and `from a import b`."""
    names = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names]
    return names


@functools.cache
def lengths_of(text):
    """name:line -> number of lines, of every function."""
    functions = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return {f"{f.name}:{f.lineno}": (f.end_lineno or 0) - f.lineno + 1 for f in functions}


def within(name, prefixes):
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def violations(modules):
    """One line for each thing that is not as it should be."""
    own = {module.split(".")[0] for module in modules}
    layers = {module.split(".")[0] for module in modules if module.endswith(".layer")}
    for module, text in modules.items():
        package = module.split(".")[0]
        for name in imports_of(text):
            if not _may(module, package, name, own, layers):
                yield f"{module} imports {name}"
        yield from _too_long(module, text)
        if module.split(".")[-1] in {"utils", "util", "helpers"}:
            yield f"{module} is named for nothing"


def _may(module, package, name, own, layers):
    top = name.split(".")[0]
    if package == "tests":
        return True
    if name.startswith("."):
        return False
    if top in ONE_HOME:
        return module in ONE_HOME[top]
    if package in ANYTHING or top == package:
        return True
    if top == "flax":
        return package not in NO_FLAX | NO_JAX and (package not in layers or module == f"{package}.layer")
    if top == "jax":
        return package not in NO_JAX
    if top not in own:
        return True
    allowed = LAYER_FOLDER if package in layers else ALLOWED.get(package, set()) | ALLOWED.get(module, set())
    return within(name, layers if "every layer folder" in allowed and top in layers else allowed)


def _too_long(module, text):
    if (lines := text.count("\n")) > LONGEST_FILE:
        yield f"{module} has {lines} lines"
    for name, length in lengths_of(text).items():
        if length > LONGEST_FUNCTION:
            yield f"{module}.{name} has {length} lines"


def test_the_repository_keeps_to_it():
    assert list(violations(sources())) == []


def test_every_package_has_a_rule():
    modules = sources()
    packages = {module.split(".")[0] for module in modules}
    layers = {module.split(".")[0] for module in modules if module.endswith(".layer")}
    assert layers >= {"rotrnn", "lru"}
    assert packages - layers - ANYTHING <= ALLOWED.keys()
    # Every library that has a home is imported there: a rule about nothing would guard nothing.
    for library, homes in ONE_HOME.items():
        for home in homes:
            assert any(within(name, {library}) for name in imports_of(modules[home])), f"{home} imports no {library}"


@pytest.mark.parametrize(
    ("module", "text", "line"),
    [
        ("lru.layer", "from rotrnn.parametrize import xi", "lru.layer imports rotrnn.parametrize.xi"),
        ("rotrnn.init", "def f():\n    import lru", "rotrnn.init imports lru"),
        ("rotrnn.init", "from flax import nnx", "rotrnn.init imports flax.nnx"),
        ("lru.config", "import models.contract", "lru.config imports models.contract"),
        ("scans.fast", "from linalg import skew", "scans.fast imports linalg.skew"),
        ("scans.fast", "import flax.nnx as nnx", "scans.fast imports flax.nnx"),
        ("models.block", "from data.batching import Split", "models.block imports data.batching.Split"),
        ("models.block", "from rotrnn import RotRNN", "models.block imports rotrnn.RotRNN"),
        ("models.build", "import training.config", "models.build imports training.config"),
        ("training.loop", "from rotrnn.config import Init", "training.loop imports rotrnn.config.Init"),
        ("training.loop", "import orbax.checkpoint as ocp", "training.loop imports orbax.checkpoint"),
        ("training.loop", "from scripts import demo", "training.loop imports scripts.demo"),
        ("training.writers", "import wandb", "training.writers imports wandb"),
        ("data.listops", "import tensorflow_datasets as tfds", "data.listops imports tensorflow_datasets"),
        ("data.listops", "from models import build", "data.listops imports models.build"),
        ("configs.lra", "import jax", "configs.lra imports jax"),
        ("configs.lra", "from models.registry import LAYERS", "configs.lra imports models.registry.LAYERS"),
        ("theory.gain", "from training import probe", "theory.gain imports training.probe"),
        ("scripts.report", "from matplotlib import pyplot", "scripts.report imports matplotlib.pyplot"),
        ("train", "from models.build import build_model", "train imports models.build.build_model"),
        ("models.block", "from .build import build_model", "models.block imports .build.build_model"),
        ("models.utils", "", "models.utils is named for nothing"),
        ("models.block", "x = 1\n" * 401, "models.block has 401 lines"),
        ("models.block", "def f():\n" + "    x = 1\n" * 80, "models.block.f:1 has 81 lines"),
    ],
)
def test_a_planted_violation_is_found(module, text, line):
    modules = sources()
    assert list(violations({**modules, module: text})) == [line]


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("lru.layer", "from flax import nnx\nfrom scans import linear_scan\nfrom linalg import skew"),
        ("models.block", "from data.spec import TaskSpec\nfrom models.roles import Role\nimport flax, jax"),
        ("models.registry", "from rotrnn import RotRNN\nimport lru"),
        ("tests.test_new", "import training.loop, matplotlib, orbax.checkpoint"),
        ("s5.layer", "from scans import linear_scan\nfrom s5.config import S5Config\nfrom flax import nnx"),
        ("models.block", "def f():\n" + "    x = 1\n" * 79 + "y = 1\n" * 320),
    ],
)
def test_what_is_allowed_is_not_found(module, text):
    assert list(violations({**sources(), module: text})) == []
