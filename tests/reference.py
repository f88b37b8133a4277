"""Plain float64 loops that the fast code is held against."""

import numpy as np


def linear_loop(a, b, h0=None, reset=None, *, reverse=False):
    """h_t = a_t h_{t-1} + b_t, one step after the other. a broadcasts to b (B, T, N)."""
    a = np.broadcast_to(a, b.shape)
    order = range(b.shape[1])[:: -1 if reverse else 1]
    h = np.zeros_like(b[:, 0] * a[:, 0]) if h0 is None else h0.astype(np.result_type(a, b))
    out = np.zeros(b.shape, h.dtype)
    for t in order:
        keep = 1.0 if reset is None else 1.0 - reset[:, t, None]
        h = a[:, t] * keep * h + b[:, t]
        out[:, t] = h
    return out, h


def diagonal_loop(system, u, h0=None, mask=None, reset=None, *, reverse=False):
    """y_t = Re(C x_t) + d u_t, complex, one step after the other; masked steps hold the state and give 0.

    `reset` marks first elements of packed sequences; a backward pass forgets at the element before the next flag.
    Returns y without the bidirectional part, the last state, and all states.
    """
    lam = np.exp(system.log_mag + 1j * system.phase)
    b = np.asarray(system.b_re) + 1j * np.asarray(system.b_im)
    c = np.asarray(system.c_re) + 1j * np.asarray(system.c_im)
    batch, steps, _ = u.shape
    x = np.zeros((batch, lam.size), complex) if h0 is None else h0.copy()
    states, y = np.zeros((batch, steps, lam.size), complex), np.zeros_like(u)
    for t in range(steps)[:: -1 if reverse else 1]:
        for i in range(batch):
            if reset is not None:
                flag = (t + 1 < steps and reset[i, t + 1]) if reverse else reset[i, t]
                x[i] = 0 if flag else x[i]
            if mask is None or mask[i, t]:
                x[i] = lam * x[i] + b @ u[i, t]
                y[i, t] = (c @ x[i]).real + system.d * u[i, t]
            states[i, t] = x[i]
    return y, x, states
