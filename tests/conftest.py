"""Fixtures shared by all tests. Shapes and types of annotated functions are checked while tests run."""

import os
import pathlib
from collections import Counter

import jax
import pytest
from jaxtyping import install_import_hook

_FAMILIES = ("rotrnn", "lru", "s5", "mru", "dense")
_LAYER_FILES = [f"{family}.{part}" for family in _FAMILIES for part in ("init", "parametrize", "layer")]
_LAYER_FILES += [f"attention.{part}" for part in ("init", "timeline", "position", "softmax", "linear", "layer")]
_LAYER_FILES += ["mlp.layer", "theory.dense_jax", "theory.monte_carlo"]
install_import_hook(["linalg", "scans", *_LAYER_FILES], "beartype.beartype")

QUICK = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)
"""A test compiles far longer than it computes. XLA's own passes stay; without LLVM's it takes a third less, and in one
piece and with plain emitters for fused operations a quarter of that."""


def pytest_configure(config):
    # Compiled programs are kept between runs; tests that bound compile time switch this off themselves.
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(pathlib.Path.home() / ".cache" / "linrec" / "compiled"))
    os.environ["JAX_COMPILATION_CACHE_DIR"] = cache
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    flags = os.environ.get("XLA_FLAGS", "")
    if not os.environ.get("LINREC_TEST_ALL") and QUICK not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {QUICK}".strip()  # read when the first array is made


def pytest_collection_modifyitems(config, items):
    """Thins what is marked, see `markers` in pyproject.toml; what is asked for by its name is left as it is."""
    if os.environ.get("LINREC_TEST_ALL") or config.option.keyword or any("::" in name for name in config.args):
        return
    seen, kept, left = Counter(), [], []
    for item in items:
        mark = item.get_closest_marker("every")
        test = item.nodeid.partition("[")[0]
        skipped = mark is not None and seen[test] % mark.args[0]
        (left if skipped or item.get_closest_marker("thorough") else kept).append(item)
        seen[test] += 1
    items[:] = kept
    config.hook.pytest_deselected(items=left)


collect_ignore = ["test_honest_determinism.py"] * (not os.environ.get("LINREC_TEST_ALL"))
"""Every layer compiled anew: `make test-all` and `make faults`."""


@pytest.fixture
def x64():
    """Float64 for one test."""
    with jax.enable_x64(True):
        yield


def oracle_dir() -> pathlib.Path:
    """Where the reference values lie."""
    return pathlib.Path(os.environ.get("ORACLE_DIR", pathlib.Path(__file__).parent / "oracles"))


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The folder of a finished run, see `smoke_run.smoke_config`; whoever changes it changes a copy."""
    from smoke_run import smoke_config, train_quietly

    return train_quietly(smoke_config(), tmp_path_factory.mktemp("trained") / "run")


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """The folder of a run of the command that was left alone; its tests leave it as it is."""
    from commands import TINY, call

    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    assert call("train.py", TINY, f"--workdir={folder}").code == 0
    return folder


@pytest.fixture(scope="module")
def compiled_once():
    """Runs of equal configs share what is compiled: for tests of what becomes of a run, not of its programs."""
    from smoke_run import ONCE

    with pytest.MonkeyPatch.context() as patch:
        for module, name, function in ONCE:
            patch.setattr(module, name, function)
        yield
