"""Where compiled programs are kept from one run to the next."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

OPTIONS = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


@contextlib.contextmanager
def compile_cache(path: str) -> Iterator[None]:
    """Inside of it every program that is compiled is kept in the folder `path`, and taken from there if it is known.

    "": nothing changes; JAX keeps programs where $JAX_COMPILATION_CACHE_DIR says, if at all.
    """
    if not path:
        yield
        return
    before = [getattr(jax.config, option) for option in OPTIONS]
    # Even what compiles at once: many small programs make the start of a run.
    _use(str(Path(path).expanduser()), 0.0)
    try:
        yield
    finally:
        _use(*before)


def _use(path: str | None, least_seconds: float) -> None:
    for option, value in zip(OPTIONS, (path, least_seconds), strict=True):
        jax.config.update(option, value)
    compilation_cache.reset_cache()  # JAX opens its folder only once
