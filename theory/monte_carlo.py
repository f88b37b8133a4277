"""Energies of drawn dense weights: what single draws of W do, where the exact values speak of their mean.

Per draw, log(||W^k E||_F^2 / p) for E the first p columns of the identity: an unbiased estimate of Q_{n,k}, because
the law of W does not change under rotations; p = n is the exact trace of the draw. Matrices are float32, the columns
are rescaled at every step and only logarithms are summed (in float64): nothing overflows, no draw is discarded.

A draw is a function of (seed, n, number): it does not depend on the chunk that it was computed in, and more can be
added later.
"""

import dataclasses
import functools
import json
import os
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Inexact, Key

from theory.checks import lags, whole, widths
from theory.laws import Ensemble

NUMBERS_AT_ONCE = 2**22
"""Entries of W in one chunk: 32 MiB of complex ones, which leaves room for a scan's copies on any device."""

Progress = Callable[[str, int, int], None]
"""progress(stage, done, total)"""


@dataclass(frozen=True)
class Plan:
    """What is drawn. tied: one W for all steps, as in a recurrence; else a fresh one each step, as in a deep network.

    Raises:
      ValueError: n < 1, longest < 0 or above 1e6, draws < 1, probes outside 1..n, seed outside 0..2^32 - 1, fields of
        another type.
    """

    n: int
    longest: int
    draws: int
    ensemble: Ensemble = Ensemble.COMPLEX
    tied: bool = True
    probes: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        # Plans are keys of compiled programs, where a string equals the member that it names.
        object.__setattr__(self, "ensemble", Ensemble(self.ensemble))
        for name in ("n", "longest", "draws", "probes", "seed"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        if not isinstance(self.tied, bool):
            raise ValueError(f"tied = {self.tied!r}: expected True or False")
        widths(self.n)
        lags("longest", self.longest)
        if self.draws < 1 or not 1 <= self.probes <= self.n:
            raise ValueError(
                f"{self.draws} draws with {self.probes} probes: expected at least 1, and 1 to n = {self.n}"
            )
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed = {self.seed}: expected 0 to 2^32 - 1")

    @property
    def chunk(self) -> int:
        """Draws computed at once."""
        return max(1, min(self.draws, NUMBERS_AT_ONCE // self.n**2))

    @property
    def law(self) -> dict:
        """What two runs must share for their draws to be the same."""
        return {key: value for key, value in dataclasses.asdict(self).items() if key != "draws"}


def silent(stage: str, done: int, total: int) -> None:
    """The progress callback that shows nothing."""


def sample(plan: Plan, path: Path | None = None, progress: Progress = silent) -> np.ndarray:
    """log energies of shape (draws, longest + 1): entry k of a draw estimates its Q_k. Sums over k give its S.

    With a path (.npz) every chunk is kept there, and draws that are there already are not computed again.

    Raises:
      ValueError: the file holds draws of another law, or is damaged.
      OSError: the disk refuses.
    """
    steps = _kept(plan, path) if path else np.empty((0, plan.longest), np.float32)
    stage = f"draws, n = {plan.n} {plan.ensemble}{'' if plan.tied else ' untied'}"
    while len(steps) < plan.draws:
        progress(stage, len(steps), plan.draws)
        numbers = jnp.arange(len(steps), len(steps) + plan.chunk)
        steps = np.concatenate([steps, np.asarray(_chunk(dataclasses.replace(plan, draws=1), numbers))])
        if path:
            _keep(plan, path, steps)
    progress(stage, plan.draws, plan.draws)
    found = np.zeros((plan.draws, plan.longest + 1))
    found[:, 1:] = np.cumsum(steps[: plan.draws], axis=1, dtype=np.float64)
    return found


@functools.partial(jax.jit, static_argnums=0)
def _chunk(plan: Plan, numbers: Array) -> Float[Array, "draws steps"]:
    # One key for all widths would give small matrices the first numbers of large ones: their errors would agree.
    key = jax.random.fold_in(jax.random.key(plan.seed), plan.n)
    return jax.vmap(lambda number: _log_steps(plan, jax.random.fold_in(key, number)))(numbers)


def _log_steps(plan: Plan, key: Key[Array, ""]) -> Float[Array, " steps"]:
    """log(||W V_k||^2 / ||V_k||^2) at each step, V_0 = E."""
    tied = _weights(plan, key)

    def step(columns, number):
        w = tied if plan.tied else _weights(plan, jax.random.fold_in(key, number))
        grown = jnp.matmul(w, columns, precision=lax.Precision.HIGHEST)
        energy = (grown.real**2 + grown.imag**2).sum()
        return grown * lax.rsqrt(energy), jnp.log(energy)

    start = jnp.eye(plan.n, plan.probes, dtype=tied.dtype) / plan.probes**0.5
    return lax.scan(step, start, jnp.arange(plan.longest))[1]


def _weights(plan: Plan, key: Key[Array, ""]) -> Inexact[Array, "n n"]:
    """Entries of variance 1/n."""
    dtype = jnp.complex64 if plan.ensemble is Ensemble.COMPLEX else jnp.float32
    return jax.random.normal(key, (plan.n, plan.n), dtype) / plan.n**0.5


def _kept(plan: Plan, path: Path) -> np.ndarray:
    """The steps in the file, if there is one."""
    if not path.exists():
        return np.empty((0, plan.longest), np.float32)
    try:
        # Opened here: numpy leaves a damaged file open.
        with path.open("rb") as file, np.load(file) as kept:
            law, steps = dict(json.loads(str(kept["law"]))), kept["steps"]
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged ({error}): remove it") from error
    if law != plan.law:
        different = [key for key in plan.law if law.get(key) != plan.law[key]]
        raise ValueError(f"{path} holds draws with another {', '.join(different)}: choose another file")
    return steps


def _keep(plan: Plan, path: Path, steps: np.ndarray) -> None:
    beside = path.with_name(path.name + ".tmp")
    with beside.open("wb") as file:
        np.savez(file, law=json.dumps(plan.law), steps=steps)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
