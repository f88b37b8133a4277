"""Files of `models.sampling.Place`: npz, nothing pickled. They go on identically, on the machine that wrote them."""

import io
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from data import strict_json
from data.arrays import parse_npz
from data.errors import DataError
from models.language_model import States
from models.sampling import Place
from training.errors import ConfigError
from training.files import write_atomically

FORMAT = 1


def save_place(path: Path, origin: dict[str, Any], place: Place, pending: bytes) -> None:
    """Writes a place and the bytes of a character begun there.

    origin: what the place belongs to, in plain values, compared by `load_place`. Raises OSError if the disk refuses.
    """
    buffer = io.BytesIO()
    np.savez(
        buffer,
        origin=np.array(json.dumps({"format": FORMAT} | origin)),
        logits=place.logits,
        key=jax.random.key_data(place.key),
        length=np.array(place.length),
        recent=place.recent,
        pending=np.frombuffer(pending, np.uint8),
        **_named(place.state),
    )
    write_atomically(path, buffer.getvalue())


def load_place(path: Path, origin: dict[str, Any], like: States, vocabulary: int) -> tuple[Place, bytes]:
    """A saved place, and the bytes of a character begun there.

    origin: what it must belong to. like: a state of the same form. vocabulary: V. Raises ConfigError, which names the
    first difference, for a place of another origin, and for a file that is damaged or none of a place.
    """
    try:
        arrays = parse_npz(path.read_bytes(), path.name)
        found = strict_json.parse(str(arrays["origin"]))
        _refuse_other(path, found, {"format": FORMAT} | origin)
        state = jax.tree.map(jnp.asarray, jax.tree.unflatten(jax.tree.structure(like), _leaves(arrays, like)))
        logits = _expected("logits", arrays["logits"], (1, vocabulary), np.float32)
        key = jax.random.wrap_key_data(jnp.asarray(arrays["key"]))
        place = Place(state, jnp.asarray(logits), key, int(arrays["length"]), arrays["recent"].astype(np.int32))
        return place, arrays["pending"].astype(np.uint8).tobytes()
    except FileNotFoundError as error:
        raise ConfigError(f"there is no saved state {path}") from error
    except (DataError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ConfigError(f"{path} is no saved state, or damaged ({type(error).__name__}: {error})") from error


def _named(state: States) -> dict[str, Any]:
    leaves = jax.tree.leaves_with_path(state)
    return {f"state/{jax.tree_util.keystr(path, simple=True, separator='/')}": leaf for path, leaf in leaves}


def _leaves(arrays: dict[str, np.ndarray], like: States) -> list[np.ndarray]:
    return [_expected(name, arrays[name], leaf.shape, leaf.dtype) for name, leaf in _named(like).items()]


def _expected(name: str, array: np.ndarray, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(f"{name} is {array.dtype}{array.shape}, expected {np.dtype(dtype)}{shape}")
    return array


def _refuse_other(path: Path, found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        if found.get(name) != value:
            there, here = (f"{x[:16]}" if isinstance(x, str) else x for x in (found.get(name), value))
            raise ConfigError(f"{path} belongs to another model: {name} is {there} there, {here} here")
