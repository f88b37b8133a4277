"""What no file of the program does: run what it reads, unpack an archive, build a command for a shell, fetch what
nothing pins."""

import ast
import functools

import pytest
from test_imports import sources

from data import registry
from data.download import _NoAnswer, _require_safe
from data.spec import DataRequest

FORBIDDEN_MODULES = (
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "joblib",
    "marshal",
    "shelve",
    "yaml",
    "imp",
    "ftplib",
    "telnetlib",
)
"""They run what they load, or fetch without a check."""

NETWORK = (
    "urllib.request",
    "http.client",
    "socket",
    "ssl",
    "requests",
    "urllib3",
    "httpx",
    "aiohttp",
    "huggingface_hub",
)
FETCHES = "data.download"
"""The one module that may open a connection to fetch something."""

RUN = {"eval", "exec", "compile", "__import__", "input"}
SHELLS = {"system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell", "spawnlp"}
OF_SHELLS = {"os", "subprocess", "asyncio", "commands"}
UNPACK = {"extract", "extractall", "unpack_archive"}


@functools.cache
def program():
    """Module -> tree, of everything but the tests."""
    return {name: ast.parse(text) for name, text in sources().items() if not name.startswith("tests")}


def violations(modules):
    """One line for each thing that is not as it should be."""
    for module, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom | ast.Call):
                for what in (*_imported(module, node), *_called(node)):
                    yield f"{module}:{node.lineno} {what}"


def _imported(module, node):
    names = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    for name in names:
        if any(name == known or name.startswith(f"{known}.") for known in FORBIDDEN_MODULES):
            yield f"imports {name}"
        if module != FETCHES and any(name == known or name.startswith(f"{known}.") for known in NETWORK):
            yield f"imports {name}"


def _called(node):
    if not isinstance(node, ast.Call):
        return
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    if isinstance(node.func, ast.Name) and node.func.id in RUN:
        yield f"calls {node.func.id}"
    attribute = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    of = node.func.value if isinstance(node.func, ast.Attribute) else None
    if attribute in UNPACK or (attribute in SHELLS and (of is None or getattr(of, "id", "") in OF_SHELLS)):
        yield f"calls {attribute}"
    for name in ("shell", "allow_pickle"):
        value = keywords.get(name)
        if value is not None and not (isinstance(value, ast.Constant) and value.value is False):
            yield f"calls {attribute} with {name}"


def test_the_program_keeps_to_it():
    assert list(violations(program())) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import pickle", "imports pickle"),
        ("from marshal import loads", "imports marshal"),
        ("import yaml", "imports yaml"),
        ("def f():\n    import joblib.numpy_pickle", "imports joblib.numpy_pickle"),
        ("import urllib.request", "imports urllib.request"),
        ("from urllib import request", "imports urllib.request"),
        ("eval(text)", "calls eval"),
        ("exec(compile(text, '', 'exec'))", "calls compile"),
        ("subprocess.run(command, shell=True)", "calls run with shell"),
        ("subprocess.run(command, shell=chosen)", "calls run with shell"),
        ("os.system(command)", "calls system"),
        ("from os import popen\npopen(command)", "calls popen"),
        ("numpy.load(path, allow_pickle=True)", "calls load with allow_pickle"),
        ("np.load(path, allow_pickle=given)", "calls load with allow_pickle"),
        ("archive.extractall(folder)", "calls extractall"),
        ("shutil.unpack_archive(path)", "calls unpack_archive"),
    ],
)
def test_a_planted_violation_is_found(text, line):
    assert any(found.endswith(line) for found in violations({"scripts.planted": ast.parse(text)}))


@pytest.mark.parametrize(
    "text", ["re.compile(text)", "model.eval()", "np.load(path, allow_pickle=False)", "run(a, shell=False)"]
)
def test_what_is_allowed_is_not_found(text):
    assert list(violations({"scripts.planted": ast.parse(text)})) == []


def _source_files():
    return {source for task in registry.DATA_SETS for source in registry.sources(_request(task))}


def _request(task):
    """One that has sources, where there is a choice."""
    origin = registry.choices(task).get("origin")
    return DataRequest(task, choices=(("origin", "release"),) if origin else ())


def test_every_address_of_a_data_set_is_https_or_its_file_is_pinned():
    found = _source_files()
    assert len(found) > 10
    for source in found:
        for url in source.urls:
            _require_safe(source, url)
            if not source.sha256 and not source.md5:
                assert url.startswith("https://")
                with pytest.raises(_NoAnswer):
                    _require_safe(source, url.replace("https:", "http:"))


def test_no_other_address_is_http():
    known = {url for source in _source_files() for url in source.urls}
    for module, tree in program().items():
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            assert not text.startswith("http://") or text in known, f"{module}: {text}"
