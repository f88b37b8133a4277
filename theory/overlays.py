"""Energies of any family on one axis: what t = 0 means and what an energy is the energy of are always asked for.

python -c "from theory.signal_propagation import *; print(overlay(LRU(0.9, 0.999), [0, 10, 100],
    origin=Origin.FIRST_INPUT, unit=Unit.REAL).energy)"
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from theory import diagonal
from theory.checks import finite, gains, lags, one, widths, within
from theory.dense import log_s
from theory.laws import Ensemble, Gamma, Origin, Start, Unit

WHITE = (1.0,)
"""The autocovariance of white unit inputs."""


@dataclass(frozen=True)
class Dense:
    """A dense Glorot recurrence, unit inputs in every coordinate."""

    n: int
    ensemble: Ensemble = Ensemble.COMPLEX
    gain: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "ensemble", Ensemble(self.ensemble))
        one("n", widths(self.n))
        one("gain", gains(self.gain))


@dataclass(frozen=True)
class Orthogonal:
    """A dense recurrence with a Haar-random orthogonal W, or with fresh Glorot weights at each step."""


@dataclass(frozen=True)
class LRU:
    """An LRU at init, E|(Bu)_i|^2 = 1 per mode."""

    r_min: float
    r_max: float
    gamma: Gamma = Gamma.LEARNED
    max_phase: float = 2 * np.pi

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", Gamma(self.gamma))


@dataclass(frozen=True)
class RotRNN:
    """A RotRNN at init, gamma^2 uniform on the ring, theta uniform on (0, max_phase)."""

    gamma_min: float
    gamma_max: float
    state_per_head: int
    start: Start = Start.ZERO
    max_phase: float = 2 * np.pi

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", Start(self.start))
        one("state_per_head", lags("state_per_head", self.state_per_head, 1, "expected at least 1"))


@dataclass(frozen=True)
class Modes:
    """Given modes, such as S5's Lambda_bar with powers |b_bar_k|^2, or a trained LRU's; the mean over modes."""

    eigenvalues: tuple[complex, ...]
    powers: tuple[float, ...]

    def __post_init__(self) -> None:
        powers = within("powers", self.powers, 0, np.finfo(np.float64).max, "powers of the input of each mode")
        if len(self.eigenvalues) != powers.size or not powers.any():
            raise ValueError(
                f"{len(self.eigenvalues)} modes with {powers.size} powers: expected one for each, not all of them 0"
            )


Model = Dense | Orthogonal | LRU | RotRNN | Modes


class Overlay(NamedTuple):
    """A curve: mean energies at t, and what a caption must say of them."""

    t: np.ndarray
    log_energy: np.ndarray
    notes: tuple[str, ...]

    @property
    def energy(self) -> np.ndarray:
        """The energies themselves, inf where they leave float64."""
        with np.errstate(over="ignore"):
            return np.exp(self.log_energy)


def overlay(model: Model, t: ArrayLike, *, origin: Origin, unit: Unit, autocovariance: ArrayLike = WHITE) -> Overlay:
    """The mean energy of a model at times t.

    Args:
      autocovariance: r(tau) of each input channel, r(0) = 1, 0 beyond its end; channels independent of each other.

    Raises:
      ValueError: t < 0 (< 1 where it counts updates), r(0) != 1, correlated inputs to real dense weights, unknown
        origin or unit.
    """
    origin, unit, r = Origin(origin), Unit(unit), finite("autocovariance", autocovariance)
    if r.ndim != 1 or not r.size or abs(r[0] - 1) > 1e-9:
        raise ValueError(
            "autocovariance: expected a sequence r(tau) with r(0) = 1; scale the energies for other powers"
        )
    updates = lags("t", t) + (1 if origin is Origin.FIRST_INPUT else 0)
    if updates.size and updates.min() < 1:
        raise ValueError("t = 0: before the first update every energy is 0, expected t >= 1 from the zero state")
    notes = [f"t = 0: {origin}", f"per {_unit(model, unit)}", "white inputs" if r.size == 1 else "coloured inputs"]
    log_energy = _native(model, updates, r) - np.log(_real_numbers(model) if unit is Unit.REAL else 1)
    return Overlay(np.asarray(t), log_energy, (*notes, *_caveats(model, updates)))


def _native(model: Model, updates: np.ndarray, r: np.ndarray) -> np.ndarray:
    """Log energies per coordinate, mode or head."""
    last = int(updates.max(initial=1))
    match model:
        case Dense(n, ensemble, gain):
            if ensemble is Ensemble.REAL and r.size > 1:
                raise ValueError(
                    "real dense weights under correlated inputs: no closed form; theory.measured estimates"
                )
            return log_s(n, updates - 1, gain)
        case Orthogonal():
            return np.log(updates)
        case LRU(r_min, r_max, gamma, max_phase):
            if r.size == 1:
                return np.log(diagonal.lru_energy(r_min, r_max, updates - 1, gamma))
            curve = diagonal.ring_energy(r_min, r_max, r, last, max_phase=max_phase, gamma=gamma)
            return _log(curve[updates - 1])
        case RotRNN(low, high, _, start, max_phase):
            curve = diagonal.ring_energy(low, high, r, last, max_phase=max_phase, start=start)
            return _log(curve[updates - 1])
        case Modes(eigenvalues, powers):
            curves = diagonal.coloured_energy(eigenvalues, r, last)
            return _log((np.asarray(powers)[:, None] * curves).mean(0)[updates - 1])


def _log(energy: np.ndarray) -> np.ndarray:
    """Logarithms of energies under coloured inputs."""
    if energy.min(initial=0) < -1e-9:
        raise ValueError("autocovariance: it gives energies below 0, so that it belongs to no inputs")
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(energy, 0))


def _real_numbers(model: Model) -> int:
    """In one native unit."""
    match model:
        case Dense(_, ensemble):
            return 2 if ensemble is Ensemble.COMPLEX else 1
        case Orthogonal():
            return 1
        case LRU() | Modes():
            return 2
        case RotRNN():
            return model.state_per_head


def _unit(model: Model, unit: Unit) -> str:
    if unit is Unit.REAL:
        return "real number of the state"
    match model:
        case Dense() | Orthogonal():
            return "coordinate"
        case LRU() | Modes():
            return "mode"
        case RotRNN():
            return "head"


def _caveats(model: Model, updates: np.ndarray) -> tuple[str, ...]:
    if not isinstance(model, Dense):
        return ()
    found = ()
    if model.ensemble is Ensemble.REAL:
        found += ("lower bound: real weights are above the complex formula",)
    if updates.size and updates.max() - 1 > 2 * np.sqrt(model.n):
        found += ("beyond t = 2 sqrt n rare draws carry the mean",)
    return found
