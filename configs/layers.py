"""Options of every layer with their defaults, as configs spell them; the layers' own dataclasses check them."""

import math

ROTRNN = {
    "state_size": 128,
    "heads": 32,
    "direction": "bidirectional",
    "start": "zero",
    "normalise": "xi",
    "orthogonal": "expm",
    "init": "training",
    "gamma_init": "by_init",
    "gamma_min": 0.9,
    "gamma_max": 0.999,
    "theta_max": 2 * math.pi,
    "theta_storage": "raw",
    "output_init": "by_init",
    "held": 1,
    "chunk": 0,
}

LRU = {
    "state_size": 64,
    "direction": "bidirectional",
    "gamma": "learned",
    "r_min": 0.0,
    "r_max": 0.99,
    "max_phase": 2 * math.pi,
    "held": 1,
    "chunk": 0,
}

S5 = {
    "state_size": 128,
    "blocks": 16,
    "direction": "bidirectional",
    "discretization": "zoh",
    "conj_sym": True,
    "clip_eigs": False,
    "C_init": "lecun_normal",
    "dt_min": 1e-3,
    "dt_max": 0.1,
    "step_rescale": 1.0,
    "chunk": 0,
}

MRU = {
    "state_size": 256,
    "heads": 4,
    "variant": "ldu",
    "state_scan": "plain",
    "output_norm": "none",
    "det_eps": 0.0,
    "sublayers": 1,
}

ATTENTION = {
    "heads": 4,
    "max_length": 4096,
    "position": "rope",
    "mru_order": 8,
    "mru_variant": "orthogonal_cayley",
    "mru_start": "identity",
    "sublayers": 1,
}

LINEAR_ATTENTION = {"heads": 4, "position": "rope", "sublayers": 1}

MLP = {"expansion": 4, "sublayers": 1}

MODEL = {"norm": "layer", "bn_momentum": 0.95, "padding": "full", "backbone": "sequence", "sublayers": ()}
OPTIM = {"schedule": "clean", "decay": "clean", "lr_min": 0.0, "b2": 0.999, "clip": 0.0}
"""The rest of a model and of its optimiser, as they are unless a config says otherwise."""

MESH = {"batch": 0, "seeds": 1, "sequence": 1}
"""Devices split the batch, unless a run asks for more of them to share its seeds or the time of its sequences."""

OPTIONS = {
    "rotrnn": ROTRNN,
    "lru": LRU,
    "s5": S5,
    "mru": MRU,
    "attention": ATTENTION,
    "linear_attention": LINEAR_ATTENTION,
    "mlp": MLP,
}


def options_of(layer: str, **changes: object) -> dict:
    """The options of a layer with some changed. Raises ValueError for an unknown layer."""
    if layer not in OPTIONS:
        raise ValueError(f"unknown layer {layer!r}: expected one of {', '.join(OPTIONS)}")
    return OPTIONS[layer] | changes
