"""Energies of diagonal and rotation models: no width in them, and under white inputs no growth.

    x_t = lambda x_{t-1} + w_t from the zero state,  E|w_t|^2 = p,  m updates (m = t + 1 for curves with h_0 = w_0)

    white inputs    E|x|^2 = p (1 - |lambda|^{2m}) / (1 - |lambda|^2)
    coloured ones   E|x|^2 -> [r(0) + 2 Re sum_{tau>=1} conj(lambda)^tau r(tau)] / (1 - |lambda|^2),
                    r(tau) = E w_s conj(w_{s-tau})

White unit inputs keep the energy of an LRU mode (gain sqrt(1-|lambda|^2)) and of a RotRNN head at 1; coloured ones do
not. The functions of a ring or of a range are means over the law of init (arXiv 2303.06349, 2407.07239): width sets
only how far a draw strays from them. The names t (lags) and `updates` say what is counted. Derived here.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import exp1

from theory.checks import finite, lags, one, within
from theory.laws import Gamma, Start

NODES = 96
"""Gauss-Legendre nodes over the ring; the energies agree with those of 400 nodes to 1e-9 up to r_max = 0.9999."""


def mode_energy(log_modulus: ArrayLike, updates: ArrayLike, power: ArrayLike = 1.0) -> np.ndarray:
    """E|x|^2 = p (1 - |lambda|^{2m}) / (1 - |lambda|^2) after m >= 0 updates under white inputs; arguments broadcast.

    Takes log|lambda| <= 0, which keeps its digits near |lambda| = 1 (there E = p m). A mode of a trained LRU with a
    learned gain g has p = g^2 |b|^2; with gamma recomputed p = (1 - |lambda|^2) |b|^2; an S5 mode has p = |b_bar|^2.

    Raises:
      ValueError: log|lambda| > 0, updates < 0, a power that is not finite.
    """
    log_modulus = within("log|lambda|", log_modulus, -np.inf, 0, "a mode does not grow")
    m = lags("updates", updates)
    decaying = np.where(log_modulus < 0, log_modulus, -1.0)
    with np.errstate(invalid="ignore"):  # lambda = 0 and no update: -inf * 0
        total = np.where(m > 0, -np.expm1(2 * m * decaying), 0.0) / -np.expm1(2 * decaying)
    return (finite("power", power) * np.where(log_modulus < 0, total, m))[()]


def lru_energy(r_min: float, r_max: float, t: ArrayLike, gamma: Gamma = Gamma.LEARNED) -> np.ndarray:
    """Mean energy of an LRU mode at init, |lambda|^2 uniform on [a, b] = [r_min^2, r_max^2], E|(Bu)_i|^2 = 1, white:

        gamma learned or recomputed (one at init):  e_t = 1 - (b^{t+2} - a^{t+2}) / ((b-a)(t+2))
        gamma off:                                  e_t = 1/(b-a) sum_{k=1}^{t+1} (b^k - a^k)/k

    t counts lags, h_0 = gain B u_0. A learned gain is free after init: then see `mode_energy`.

    Raises:
      ValueError: not 0 <= r_min < r_max <= 1, t < 0.
    """
    low, high = _ring(r_min, r_max)
    t, gamma = lags("t", t), Gamma(gamma)
    if gamma is Gamma.OFF:
        k = np.arange(1, int(t.max(initial=0)) + 2)
        return (np.cumsum(_difference(low, high, k) / k)[t] / (high - low))[()]
    return (1 - _difference(low, high, t + 2) / ((high - low) * (t + 2)))[()]


def lru_limit(r_min: float, r_max: float) -> float:
    """log((1-a)/(1-b)) / (b-a): where the energy without gamma goes; inf for r_max = 1, where it grows as log t.

    Raises:
      ValueError: not 0 <= r_min < r_max <= 1.
    """
    low, high = _ring(r_min, r_max)
    return float((np.log1p(-low) - np.log1p(-high)) / (high - low)) if high < 1 else float("inf")


def rotrnn_energy(gamma: ArrayLike, updates: ArrayLike, start_energy: ArrayLike = 0.0) -> np.ndarray:
    """E|x|^2 = 1 - gamma^{2m} (1 - E|x_0|^2) of one head after m updates, white unit inputs.

    Exact for any B and any orthogonal A, trained ones too. `Start.STATIONARY` is start_energy = 1 from m = 1 on.

    Raises:
      ValueError: gamma outside [0, 1], updates < 0.
    """
    gamma = within("gamma", gamma, 0, 1, "a decay")
    return (1 - gamma ** (2.0 * lags("updates", updates)) * (1 - finite("start_energy", start_energy)))[()]


def rotrnn_range_energy(gamma_min: float, gamma_max: float, updates: ArrayLike) -> np.ndarray:
    """Mean over heads from the zero start, -log gamma log-uniform on [v0, v1] = [-log gamma_max, -log gamma_min]:

        1 - [E1(2 m v0) - E1(2 m v1)] / log(v1/v0)       (E1: exponential integral)

    The ring law (gamma^2 uniform) is `lru_energy` at t = m - 1.

    Raises:
      ValueError: not 0 < gamma_min < gamma_max < 1, updates < 0.
    """
    gamma_min, gamma_max = _number("gamma_min", gamma_min), _number("gamma_max", gamma_max)
    if not 0 < gamma_min < gamma_max < 1:
        raise ValueError(f"gamma in [{gamma_min}, {gamma_max}]: expected 0 < gamma_min < gamma_max < 1")
    slow, fast = -np.log(gamma_max), -np.log(gamma_min)
    m = lags("updates", updates)
    safe = np.maximum(m, 1)
    mean = 1 - (exp1(2 * safe * slow) - exp1(2 * safe * fast)) / np.log(fast / slow)
    return np.where(m > 0, mean, 0.0)[()]


def autocovariance_of_spectrum(spectrum: ArrayLike) -> np.ndarray:
    """r(tau) = (1/N) sum_j s(w_j) exp(i w_j tau) for tau = 0..ceil(N/2)-1, from s(w_j) >= 0 at w_j = 2 pi j/N.

    White inputs of unit power have s = 1. N must resolve the spectrum; longer correlations fold back.

    Raises:
      ValueError: not a sequence of finite numbers >= 0.
    """
    found = finite("spectrum", spectrum)
    if found.ndim != 1 or not found.size or found.min() < 0:
        raise ValueError("spectrum: expected finite numbers >= 0 at the frequencies 2 pi j/N")
    return np.fft.ifft(found)[: -(-found.size // 2)]


def input_autocovariance(b: ArrayLike, inputs: ArrayLike) -> np.ndarray:
    """r_k(tau) = b_k R(tau) b_k^H, (M, T), from the rows b, (M, D), and R(tau) = E u_s u_{s-tau}^T, (T, D, D)."""
    b = np.asarray(b)
    return np.einsum("kd,tde,ke->kt", b, np.asarray(inputs), b.conj(), optimize=True)


def coloured_energy(eigenvalues: ArrayLike, autocovariance: ArrayLike, updates: int) -> np.ndarray:
    """E|x|^2 of modes after 1, ..., `updates` updates from the zero state, shape (M, updates).

    Args:
      eigenvalues: lambda, (M,), |lambda| <= 1: an LRU's, or S5's Lambda_bar.
      autocovariance: r(tau) for tau = 0, 1, ..., (M, T), or (T,) for all modes; 0 beyond T. See
        `input_autocovariance` and `autocovariance_of_spectrum`.

    Raises:
      ValueError: |lambda| > 1, updates < 1, an autocovariance that is not finite.
    """
    eigenvalues = np.asarray(eigenvalues, np.complex128)
    _moduli(eigenvalues)
    r = padded(autocovariance, updates)
    aligned = (eigenvalues.conj()[:, None] ** np.arange(r.shape[-1]) * r).real
    return aligned_energy(np.abs(eigenvalues), aligned)


def coloured_limit(eigenvalues: ArrayLike, autocovariance: ArrayLike) -> np.ndarray:
    """[r(0) + 2 Re sum_{tau>=1} conj(lambda)^tau r(tau)] / (1 - |lambda|^2) of modes, (M,); r is 0 beyond its end.

    Raises:
      ValueError: |lambda| >= 1, an autocovariance that is not finite.
    """
    eigenvalues = np.asarray(eigenvalues, np.complex128)
    if _moduli(eigenvalues).max(initial=0) == 1:
        raise ValueError("|lambda| = 1: expected below 1, coloured_energy has finite times")
    r = np.atleast_2d(_autocovariance(autocovariance))
    aligned = (eigenvalues.conj()[:, None] ** np.arange(r.shape[1]) * r).real
    return (2 * aligned.sum(1) - aligned[:, 0]) / (1 - np.abs(eigenvalues) ** 2)


def ar1_factor(eigenvalues: ArrayLike, phi: float) -> np.ndarray:
    """(1 - phi^2 |lambda|^2) / |1 - phi lambda|^2: steady energy under AR(1) inputs over that under white ones.

    Raises:
      ValueError: phi outside [-1, 1], |lambda| > 1, phi lambda = 1, where no state is steady.
    """
    phi = one("phi", within("phi", phi, -1, 1, "the correlation of neighbours"))
    eigenvalues = np.asarray(eigenvalues, np.complex128)
    if (phi * eigenvalues == 1).any():
        raise ValueError("phi lambda = 1: resonance, the energy has no limit")
    return (1 - phi**2 * _moduli(eigenvalues) ** 2) / np.abs(1 - phi * eigenvalues) ** 2


def ar1_phase_mean(modulus: ArrayLike, phi: float, max_phase: float) -> np.ndarray:
    """Mean of `ar1_factor` over a phase uniform on (0, max_phase): (2/theta) atan(((1+r)/(1-r)) tan(theta/2)),
    r = phi |lambda|, continued to theta <= 2 pi; 1 on the full circle, even for constant inputs (phi = 1).

    Raises:
      ValueError: phi outside [-1, 1], |lambda| outside [0, 1], max_phase outside (0, 2 pi].
    """
    r = within("phi", phi, -1, 1, "the correlation of neighbours") * within("|lambda|", modulus, 0, 1, "a modulus")
    half = _phase(max_phase) / 2
    return np.arctan2((1 + r) * np.sin(half), (1 - r) * np.cos(half)) / half


def ring_energy(
    r_min: float,
    r_max: float,
    autocovariance: ArrayLike,
    updates: int,
    *,
    max_phase: float = 2 * np.pi,
    gamma: Gamma = Gamma.LEARNED,
    start: Start = Start.ZERO,
) -> np.ndarray:
    """Mean energy at init under coloured inputs after 1, ..., `updates` updates, shape (updates,).

    |lambda|^2 uniform on [r_min^2, r_max^2] and the phase on (0, max_phase): an LRU per mode, or a RotRNN of the ring
    law per head (gamma as in RotRNN's xi: not off). Channels are independent of each other and share r(tau); B is
    independent of lambda with E|(Bu)_i|^2 = r(0). The mean over the phase is exact, that over the ring by quadrature.

    Raises:
      ValueError: not 0 <= r_min < r_max <= 1, max_phase outside (0, 2 pi], updates < 1, an autocovariance that is
        not finite.
    """
    gamma, start = Gamma(gamma), Start(start)
    low, high = _ring(r_min, r_max)
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    squared = low + (high - low) * (nodes + 1) / 2
    modulus = np.sqrt(squared)
    r = np.real(padded(autocovariance, updates))
    tau = np.arange(r.shape[-1])
    # Mean of Re exp(-i tau theta): sin(x)/x at x = tau max_phase, and r(tau) is real.
    turned = np.sinc(tau * _phase(max_phase) / np.pi)
    aligned = modulus[:, None] ** tau * turned * r
    spread = np.ones_like(squared) if gamma is Gamma.OFF else 1 - squared
    first = 1 / np.sqrt(1 - squared) if start is Start.STATIONARY else np.ones_like(squared)
    return weights / 2 @ (spread[:, None] * aligned_energy(modulus, aligned, first))


def aligned_energy(modulus: np.ndarray, aligned: np.ndarray, first: ArrayLike = 1.0) -> np.ndarray:
    """The energies from a_tau = Re conj(lambda)^tau r(tau), (M, T), the first input scaled by `first`:

    E_1 = first^2 a_0,  E_m = |lambda|^2 E_{m-1} + a_0 + 2 sum_{tau=1}^{m-1} a_tau + 2 (first - 1) a_{m-1}
    """
    first = np.broadcast_to(np.asarray(first, np.float64), modulus.shape)
    gained = 2 * np.cumsum(aligned, axis=1) - aligned[:, :1] + 2 * (first - 1)[:, None] * aligned
    found = np.empty_like(gained)
    found[:, 0] = first**2 * aligned[:, 0]
    for m in range(1, gained.shape[1]):
        found[:, m] = modulus**2 * found[:, m - 1] + gained[:, m]
    return found


def padded(autocovariance: ArrayLike, updates: int) -> np.ndarray:
    """r(tau) for tau = 0..updates-1, 0 where it is not given."""
    count = one("updates", lags("updates", updates, 1, "expected at least 1"))
    r = _autocovariance(autocovariance)[..., :count]
    return np.pad(r, [(0, 0)] * (r.ndim - 1) + [(0, count - r.shape[-1])])


def _difference(low: float, high: float, power: np.ndarray) -> np.ndarray:
    """high^p - low^p for 0 <= low < high, without cancellation where they are close."""
    with np.errstate(divide="ignore"):
        return -(high**power) * np.expm1(power * (np.log(low) - np.log(high)))


def _autocovariance(r: ArrayLike) -> np.ndarray:
    found = np.asarray(r)
    if not found.ndim or not np.isfinite(found).all():
        raise ValueError("autocovariance: expected a sequence of finite numbers")
    return found


def _moduli(eigenvalues: np.ndarray) -> np.ndarray:
    return within("|lambda|", np.abs(eigenvalues), 0, 1, "a mode does not grow")


def _ring(r_min: float, r_max: float) -> tuple[float, float]:
    low, high = _number("r_min", r_min), _number("r_max", r_max)
    if not 0 <= low < high <= 1:
        raise ValueError(f"ring [{low}, {high}]: expected 0 <= r_min < r_max <= 1")
    return low**2, high**2


def _phase(max_phase: float) -> float:
    found = _number("max_phase", max_phase)
    if not 0 < found <= 2 * np.pi:
        raise ValueError(f"max_phase = {found}: expected above 0, at most 2 pi")
    return found


def _number(name: str, value: float) -> float:
    return one(name, finite(name, value))
