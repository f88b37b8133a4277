"""Signal propagation in training: dense recurrences beside LRU and RotRNN, all of 64 real numbers of state.

    python -m scripts.prepare_data a5
    python train.py --config=configs/signal_propagation.py:layer=dense_complex,seeds=0:3 --workdir=runs/dense_complex

The state energy over time, before training, one line a seed:

    python -c "
    from pathlib import Path
    from training.writers import read_metrics
    for row in read_metrics(Path('runs/dense_complex/metrics.jsonl'))[:3]:
        print(row['seed'], row['state_energy_t'])"

Keys after the colon: layer (dense_complex | dense_real | lru | rotrnn), gain (of a dense layer), lr, seeds, smoke (the
energies at step 0 are the same). The times of state_energy_t stand once in config.json (probe_times). One block on 40
random elements of the group A5, whose product so far is asked for at every step.

A dense layer of order n (32 complex, 64 real) has after t steps the energy of t inputs while t is below sqrt n (6, 8).
From 2 sqrt n on the mean over draws grows faster than any power of t, a single draw by its largest eigenvalue: at
t = 40 seeds 0, 1, 2 of dense_complex have that of 440, 33,000 and 86 inputs, and none more than 26 after 150 updates.
The mean over draws is 5.4 million (`theory.signal_propagation.log_s(32, 39)`). LRU and RotRNN rise to 1 and stay.
"""

from ml_collections import ConfigDict

from configs.argument import parse_argument
from configs.probes import one_block

STATE = 64
"""Real numbers in the state of every layer."""
WIDTH = 64
STEPS = 600

LAYERS = {
    "dense_complex": ("dense", {"state_size": STATE // 2, "weights": "complex"}),
    "dense_real": ("dense", {"state_size": STATE, "weights": "real"}),
    "lru": ("lru", {"state_size": STATE // 2, "direction": "forward"}),
    "rotrnn": ("rotrnn", {"state_size": STATE, "heads": 8, "direction": "forward", "gamma_min": 0.5}),
}
"""A registered layer, and its options."""

KEYS = {"layer": str, "gain": float, "lr": float, "seeds": tuple, "smoke": bool}


def get_config(argument: str | None = None) -> ConfigDict:
    """One layer of the comparison."""
    given = {"layer": "dense_complex", "lr": 3e-3, "seeds": (0,), "smoke": False} | parse_argument(argument, KEYS)
    if given["layer"] not in LAYERS:
        raise ValueError(f"layer={given['layer']!r} after the colon: expected one of {', '.join(LAYERS)}")
    layer, options = LAYERS[given["layer"]]
    if "gain" in given:
        if layer != "dense":
            raise ValueError(f"gain={given['gain']} after the colon: only a dense layer has it, layer={layer}")
        options = {**options, "gain": given["gain"]}
    steps = 12 if given["smoke"] else STEPS
    measuring = {
        "log_every": steps // 12,
        "probe_every": steps // 4,
        "probe_size": 64,
        "eval_every": steps // 2,
        "checkpoint_every": steps // 2,
    }
    return one_block("a5", (layer, options), WIDTH, steps, measuring, given)
