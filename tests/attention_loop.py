"""Attention one token after the other, with lists of the past, in NumPy: what the layers are held against.

A logit is written with the distance of two tokens, never with absolute positions as the layers have it.
"""

import numpy as np
import scipy.linalg


def pairs(x):
    """Components (2i, 2i+1) as complex numbers."""
    return x[..., 0::2] + 1j * x[..., 1::2]


def turned_product(q, k, distance, first=0, gain=1.0):
    """sum_i gain_i Re(q_i conj(k_i) e^(i distance theta_i)): q . k with q `distance` tokens after k, per head."""
    size = q.shape[-1]
    theta = 10000.0 ** (-2 * np.arange(first, first + size // 2) / size)
    return (gain * (pairs(q) * pairs(k).conj() * np.exp(1j * distance * theta)).real).sum(-1)


def xpos_512_product(q, k, distance):
    """The published form: theta and zeta from i = 1, distances divided by 512."""
    size = q.shape[-1]
    i = np.arange(1, size // 2 + 1)
    zeta = (2 * i / (size / 2) + 0.4 * size) / (1 + 0.4 * size)
    return turned_product(q, k, distance / 512, first=1, gain=zeta ** (distance / 512))


def orthogonal(e, order, variant, start, size):
    """The matrices (blocks, order, order) of one head from their elements (blocks, z)."""
    found = []
    for block, elements in enumerate(e):
        k = np.zeros((order, order))
        for (row, column), value in zip(((r, c) for r in range(order) for c in range(r)), elements, strict=True):
            k[row, column], k[column, row] = value, -value
        eye = np.eye(order)
        m = np.linalg.solve(eye - k, eye + k) if variant == "orthogonal_cayley" else scipy.linalg.expm(k)
        turn = np.eye(order)
        for i in range(order // 2 if start == "rope" else 0):
            angle = 10000.0 ** (-2 * (block * order // 2 + i) / size)
            cos, sin = np.cos(angle), np.sin(angle)
            turn[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[cos, -sin], [sin, cos]]
        found.append(turn @ np.asarray(m))
    return found


def mru_product(q, k, between):
    """k^T M_(j+1) ... M_i q, the matrices of the tokens after k up to q, (heads, blocks, n, n) each."""
    order = between[0].shape[-1] if between else q.shape[-1]
    x = q.reshape(q.shape[0], -1, order)
    for m in reversed(between):
        x = np.einsum("hbij,hbj->hbi", m, x)
    return (x.reshape(q.shape) * k).sum(-1)


def softmax_loop(config, weights, u, mask, reset):
    """y of the softmax layer; weights by name."""
    y = np.zeros_like(u)
    heads, size = config.heads, config.head_size
    for i, t, past in walk(mask, reset):
        q, k, v = (np.reshape(u[i, t] @ weights[name], (heads, size)) for name in ("W_q", "W_k", "W_v"))
        m = None
        if config.position == "mru":
            e = (u[i, t] @ weights["W_turn"]).reshape(heads, size // config.mru_order, -1)
            m = np.array([orthogonal(h, config.mru_order, config.mru_variant, config.mru_start, size) for h in e])
        past.append((k, v, m))
        logits = np.array([_product(config.position, q, j, past) for j in range(len(past))]) / np.sqrt(size)
        weight = np.exp(logits - logits.max(0))
        out = (weight / weight.sum(0))[..., None] * np.array([v for _, v, _ in past])
        y[i, t] = out.sum(0).ravel() @ weights["W_out"]
    return y


def _product(position, q, j, past):
    k, distance = past[j][0], len(past) - 1 - j
    match str(position):
        case "none":
            return (q * k).sum(-1)
        case "rope":
            return turned_product(q, k, distance)
        case "xpos_512":
            return xpos_512_product(q, k, distance)
    return mru_product(q, k, [m for _, _, m in past[j + 1 :]])


def linear_loop(config, weights, u, mask, reset):
    """y of the linear layer: sums over the past, written out."""
    y = np.zeros_like(u)
    for i, t, past in walk(mask, reset):
        q, k, v = (np.reshape(u[i, t] @ weights[name], (config.heads, -1)) for name in ("W_q", "W_k", "W_v"))
        q, k = (np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (q, k))
        past.append((k, v))
        turned = np.array([_product(config.position, q, j, past) for j in range(len(past))])
        over = np.einsum("jh,jhd->hd", turned, np.array([v for _, v in past]))
        under = np.array([(q * k).sum(-1) for k, _ in past]).sum(0) + 1e-6
        y[i, t] = (over / under[:, None]).ravel() @ weights["W_out"]
    return y


def walk(mask, reset):
    """(row, step, list of the past) for every valid step; the list is emptied by a reset."""
    for i in range(mask.shape[0]):
        past = []
        for t in range(mask.shape[1]):
            if reset[i, t]:
                past = []
            if mask[i, t]:
                yield i, t, past


MASK = np.array([[1, 1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 1, 0], [1, 0, 1, 1, 0, 1, 1]], bool)
RESET = np.array([[0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0, 0], [1, 0, 0, 0, 1, 0, 0]], bool)
"""Rows: everything; masked ends and a reset; a reset at a masked step."""


def inputs(width, seed=0, mask=MASK):
    """u (3, 7, width) with large values where it is masked."""
    u = np.random.default_rng(seed).normal(size=(*mask.shape, width))
    return np.where(mask[..., None], u, 1e3 * u)
