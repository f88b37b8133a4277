"""Signal propagation in one place: exact energies of dense recurrences, their limits, and the diagonal models.

    >>> import numpy as np
    >>> from theory.signal_propagation import log_q, log_s, regime
    >>> round(float(np.exp(log_q(256, 32))), 4), regime(256, 32).regime.value      # energy of an input after 32 steps
    (1.8432, 'critical')

Needs NumPy and SciPy, not jax: the same values in jax, differentiable in the gain, are in `theory.dense_jax`, drawn
weights in `theory.monte_carlo`. Setting: M. Seleznova, arXiv 2605.05113. What is derived here says so.
"""

from theory.budgets import Budget, Quantity, budget, first_passage, overflow_times
from theory.dense import gain_for_horizon, log_energy, log_q, log_s
from theory.dense_real import real_cross_moment, real_q, real_s
from theory.diagonal import (
    ar1_factor,
    ar1_phase_mean,
    autocovariance_of_spectrum,
    coloured_energy,
    coloured_limit,
    input_autocovariance,
    lru_energy,
    lru_limit,
    mode_energy,
    ring_energy,
    rotrnn_energy,
    rotrnn_range_energy,
)
from theory.laws import Ensemble, Gamma, Method, Origin, Start, Unit
from theory.limits import Regime, critical, critical_passage, log_s_claim, log_s_supercritical, regime
from theory.measured import Measured, measure
from theory.overlays import LRU, Dense, Modes, Orthogonal, Overlay, RotRNN, overlay

__all__ = [
    "LRU",
    "Budget",
    "Dense",
    "Ensemble",
    "Gamma",
    "Measured",
    "Method",
    "Modes",
    "Origin",
    "Orthogonal",
    "Overlay",
    "Quantity",
    "Regime",
    "RotRNN",
    "Start",
    "Unit",
    "ar1_factor",
    "ar1_phase_mean",
    "autocovariance_of_spectrum",
    "budget",
    "coloured_energy",
    "coloured_limit",
    "critical",
    "critical_passage",
    "first_passage",
    "gain_for_horizon",
    "input_autocovariance",
    "log_energy",
    "log_q",
    "log_s",
    "log_s_claim",
    "log_s_supercritical",
    "lru_energy",
    "lru_limit",
    "measure",
    "mode_energy",
    "overflow_times",
    "overlay",
    "real_cross_moment",
    "real_q",
    "real_s",
    "regime",
    "ring_energy",
    "rotrnn_energy",
    "rotrnn_range_energy",
]
