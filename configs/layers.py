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

DENSE = {"state_size": 64, "weights": "complex", "gain": 1.0}

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

MODEL = {
    "norm": "layer",
    "bn_momentum": 0.95,
    "padding": "full",
    "backbone": "sequence",
    "sublayers": (),
    "precision": "float32",
}
OPTIM = {"schedule": "clean", "decay": "clean", "lr_min": 0.0, "b2": 0.999, "clip": 0.0}
TRAIN = {"accumulate": 1, "remat": False, "profile": ()}
"""The rest of a model, of its optimiser and of training, as they are unless a config says otherwise."""

MESH = {"batch": 0, "seeds": 1, "sequence": 1}
"""Devices split the batch, unless a run asks for more of them to share its seeds or the time of its sequences."""

START = {"init_from": "", "init_checkpoint": "best"}
"""Parameters are drawn, unless a run is to start from the weights of another one."""

OPTIONS = {
    "rotrnn": ROTRNN,
    "lru": LRU,
    "s5": S5,
    "mru": MRU,
    "dense": DENSE,
    "attention": ATTENTION,
    "linear_attention": LINEAR_ATTENTION,
    "mlp": MLP,
}


def options_of(layer: str, **changes: object) -> dict:
    """The options of a layer with some changed. Raises ValueError for an unknown layer."""
    if layer not in OPTIONS:
        raise ValueError(f"unknown layer {layer!r}: expected one of {', '.join(OPTIONS)}")
    return OPTIONS[layer] | changes


NUMBERS_OF_A_UNIT = {"rotrnn": 1, "lru": 2, "mru": 1}
"""Real numbers that one unit of a layer's `state_size` carries; S5's and that of dense depend on their options."""


def resize_state(model: dict, given: dict, smoke_size: int) -> None:
    """Chooses the `state_size` of a model whose layer is to carry given["real_state_size"] numbers in each direction.

    given: the keys of a config; `smoke` cuts the number to `smoke_size`, for every layer alike.
    Raises ValueError for a layer whose state has no size of its own, or if no size gives that number.
    """
    if "real_state_size" not in given:
        return
    layer, options, asked = model["layer"], model["options"], given["real_state_size"]
    if "state_size" not in options:
        raise ValueError(f"real_state_size={asked} after the colon: {layer} has no state_size that could be chosen")
    if layer == "s5":
        unit = 1 if options["conj_sym"] else 2
    else:
        unit = {"complex": 2, "real": 1}[options["weights"]] if layer == "dense" else NUMBERS_OF_A_UNIT[layer]
    numbers = min(asked, smoke_size) if given["smoke"] else asked
    if numbers < 1 or numbers % unit:
        raise ValueError(f"real_state_size={asked} after the colon: {layer} needs a positive multiple of {unit}")
    options["state_size"] = numbers // unit
