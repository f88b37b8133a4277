"""Signal propagation in linear recurrences at finite width: what the energy of a state does with time, exactly.

signal_propagation    everything below that needs NumPy and SciPy only, under one name
dense, dense_real     dense recurrences with complex and real Gaussian weights
limits, budgets       limits and regimes; when energies pass a level or overflow
diagonal, overlays    LRU, RotRNN, S5 under white and coloured inputs; any family on one axis
measured              energies of one given W on given inputs
dense_jax             the exact energies in jax, differentiable
monte_carlo, draws    energies of drawn weights in jax, and their statistics

laws, checks          closed choices; what is refused
"""
