"""Where compiled programs are kept from one run to the next."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

from training.errors import ConfigError

OPTIONS = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


@contextlib.contextmanager
def compile_cache(path: str) -> Iterator[None]:
    """Inside of it every program that is compiled is kept in the folder `path`, and taken from there if it is known.

    "": nothing changes; JAX keeps programs where $JAX_COMPILATION_CACHE_DIR says, if at all. Raises ConfigError for a
    folder that cannot be written.
    """
    if not path:
        yield
        return
    try:
        folder = Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"config.compile_cache={path}: {error}") from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise ConfigError(f"config.compile_cache: cannot write to {folder}: {error.strerror}") from error
    before = [getattr(jax.config, option) for option in OPTIONS]
    # Even what compiles at once: many small programs make the start of a run.
    _use(str(folder), 0.0)
    try:
        yield
    finally:
        _use(*before)


def _use(path: str | None, least_seconds: float) -> None:
    for option, value in zip(OPTIONS, (path, least_seconds), strict=True):
        jax.config.update(option, value)
    compilation_cache.reset_cache()  # JAX opens its folder only once
