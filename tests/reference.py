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


def matrix_loop(m, h0=None, reset=None):
    """H_t = H_{t-1} M_t for m (B, T, H, n, n), one step after the other; H_t = M_t where reset. All H and the last."""
    h = np.broadcast_to(np.eye(m.shape[-1]), m[:, 0].shape) if h0 is None else h0
    out = np.zeros(m.shape)
    for t in range(m.shape[1]):
        if reset is not None:
            h = np.where(reset[:, t, None, None, None], np.eye(m.shape[-1]), h)
        h = out[:, t] = h @ m[:, t]
    return out, h


def matrix_gradients(m, h0, reset, g):
    """Gradients of sum(H * g) by m and h0, in closed form: sum over s >= t of H_{t-1}^T G_s (M_{t+1} ... M_s)^T."""
    h, _ = matrix_loop(m, h0, reset)
    dm, dh0 = np.zeros(m.shape), np.zeros(h0.shape)
    eye = np.broadcast_to(np.eye(m.shape[-1]), m[:, 0].shape)
    transposed = lambda x: np.swapaxes(x, -1, -2)  # noqa: E731
    for t in range(m.shape[1]):
        alone = reset[:, t, None, None, None]
        before = np.where(alone, eye, h[:, t - 1] if t else h0)
        later, linked = eye, 1.0
        for s in range(t, m.shape[1]):
            if s > t:
                later, linked = later @ m[:, s], linked * ~reset[:, s, None, None, None]
            through = linked * g[:, s] @ transposed(later)
            dm[:, t] += transposed(before) @ through
            if t == 0:
                dh0 += ~alone * (through @ transposed(m[:, 0]))
    return dm, dh0
