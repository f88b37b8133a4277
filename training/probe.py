"""Hidden-state energies of a fixed batch, measured against what the initial parameters promise.

For a layer with heads h (heads of RotRNN, modes of LRU; both directions) let E_h be the mean of |x_t^h|^2 over the
valid positions of the probe, g_h = |B_h|^2 / (1 - |lambda_h|^2) the energy under white unit input, a function of the
parameters alone, and a_h the factor by which the covariance of the real input changes it. Then, with sums over h,

    state_energy_raw    sum E_h
    state_energy        sum E_h / sum g_h(0) s_h          1 means: as designed
    state_energy_median median over h of E_h / (g_h(0) s_h)
    state_energy_t      E at the t-th valid step / sum g_h(0)
    state_white_t       sum g_h (1 - |lambda_h|^(2t)) / sum g_h(0): what it would be under white unit input
    state_coloured_t    the same under inputs that are stationary with the measured autocovariance
    state_energy_drift  log10(sum E_h / sum E_h(0))
    state_gain          sum g_h / sum g_h(0)              what the parameters guarantee
    state_gain_max      max g_h / g_h(0)
    state_align         sum g_h a_h / sum g_h             B turned towards strong input directions
    state_temporal      sum E_h / sum g_h a_h             the rest: correlation over time, and the zero start

(0) is the drawn initial parameters, or those of another run that this one starts from (`training.inherit`); s_h = mean
of 1 - |lambda_h(0)|^(2t) over the same positions is the part of the stationary energy that a zero start reaches (1 for
a stationary start). gain x align x temporal = state_energy x sum g_h(0) s_h / sum g_h(0), exactly.

Under white input the energy of a mode with |lambda| >= 1 grows without end (S5 without clip_eigs can train its modes
there): the layer has null for the four that need g_h, and if it starts so, for all that is measured in units of it.

A layer whose energy does not split this way (MRU: E_h the mean of |S_t^h|_F^2, g_h = n, s_h = 1; dense: E_h the mean of
|x_i|^2 over time, g_h = |B_i|^2, what one white input brings, s_h = 1) has null for the last four and, but for
dense, for state_white_t and state_coloured_t; one without a state has null for all. What a layer logs besides (MRU:
max_element, max_log_norm, log10_cond) stands under its own name.
"""

from typing import Any

import jax
import numpy as np

from data.splits import Batch, Split
from models.padding import Padding
from training.state import EnergyRef

POINTS = 16
"""Number of log-spaced times t at which energies over t are recorded."""

Row = dict[str, list[float | None]]


def probe_times(length: int) -> tuple[int, ...]:
    """Log-spaced times from 1 to `length`, without repetition."""
    return tuple(sorted({round(length ** (i / (POINTS - 1))) for i in range(POINTS)}))


def probe_batch(split: Split, size: int) -> Batch:
    """The first `size` records (or all there are)."""
    return split.gather(np.arange(min(size, len(split))))


def probe_lengths(batch: Batch, padding: Padding) -> np.ndarray:
    """The steps that are input to the layers, of every sequence of the probe: the valid ones, or all of them."""
    lengths = batch["lengths"]
    steps = batch["inputs"].shape[lengths.ndim]
    return (lengths if padding is Padding.FULL else np.full_like(lengths, steps)).reshape(-1)


def energy_refs(diagnostics: list[dict[str, Any]]) -> tuple[EnergyRef | None, ...]:
    """What the initial parameters promise, from the probe at step 0; None for a layer without a state energy."""
    return tuple(EnergyRef(d["energy"], d["gain"], d["log_decay"]) if "gain" in d else None for d in diagnostics)


def start_share(log_decay: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """s_h for decays (H,) and the numbers of valid steps of the probe (B,)."""
    t = np.arange(1, lengths.max() + 1)
    reached = (lengths[:, None] >= t).sum(0)
    return -np.expm1(2 * log_decay[:, None] * t) @ reached / reached.sum()


def probe_rows(
    diagnostics: list[dict[str, Any]], refs: tuple[EnergyRef | None, ...], lengths: np.ndarray, times: tuple[int, ...]
) -> list[Row]:
    """One row a seed: the quantities above, each a list over layers (null for a layer without them).

    times: those at which the probe recorded energies.
    """
    rows = []
    own = sorted({name for found in diagnostics for name in found.get("log", {})})
    for seed in range(len(diagnostics[0]["finite"])):
        blocks = (_of_seed(block, seed) for block in zip(diagnostics, refs, strict=True))
        layers = [_layer(found, ref, lengths, times) for found, ref in blocks]
        rows.append({name: [layer.get(name) for layer in layers] for name in (*NAMES, *own)})
    return rows


def _of_seed(values: Any, seed: int) -> Any:
    return jax.tree.map(lambda value: np.asarray(value[seed], np.float64), values)


def _layer(found: dict[str, Any], ref: EnergyRef | None, lengths: np.ndarray, times: tuple[int, ...]) -> dict:
    own = found.get("log", {})
    if ref is None:
        return own
    energy, gain = found["energy"], found["gain"]
    design = np.where(_decays(ref.log_decay), ref.gain, np.nan)
    expected = design * start_share(np.asarray(ref.log_decay), lengths)
    size = {
        "state_energy_raw": energy.sum(),
        "state_energy": energy.sum() / expected.sum(),
        "state_energy_median": np.median(energy / expected),
        "state_energy_drift": np.log10(energy.sum() / ref.energy.sum()),
        "state_energy_t": found["energy_t"] / design.sum(),
    }
    size |= {f"state_{name}": found[name] / design.sum() for name in ("white_t", "coloured_t") if name in found}
    if "gain_align" not in found:
        return size | own
    # Beyond the unit circle these are no energies, but over finite times the products below are.
    lasting = np.where(_decays(found["log_decay"]), gain, np.nan)
    aligned = np.where(_decays(found["log_decay"]), found["gain_align"], np.nan)
    reached = -np.expm1(2 * found["log_decay"] * np.asarray(times)[:, None])
    split = {
        "state_white_t": reached @ gain / design.sum(),
        "state_gain": lasting.sum() / design.sum(),
        "state_gain_max": (lasting / design).max(),
        "state_align": aligned.sum() / lasting.sum(),
        "state_temporal": energy.sum() / aligned.sum(),
    }
    return size | split | own


def _decays(log_decay: Any) -> np.ndarray:
    return np.asarray(log_decay) < 0


NAMES = (
    "state_energy_raw",
    "state_energy",
    "state_energy_median",
    "state_energy_drift",
    "state_energy_t",
    "state_white_t",
    "state_coloured_t",
    "state_gain",
    "state_gain_max",
    "state_align",
    "state_temporal",
)
