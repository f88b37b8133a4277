"""What S5 refuses, with the numbers, and how large its state is."""

import pytest

from s5 import S5Config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state_size": 16, "blocks": 3}, "state_size=16 is not divisible by blocks=3"),
        ({"state_size": 12, "blocks": 4}, r"whole pairs, got state_size/blocks = 12/4 = 3"),
        ({"state_size": 4, "blocks": 8}, "state_size=4 is not divisible by blocks=8"),
        ({"blocks": 0}, "width=4, state_size=8, blocks=0"),
        ({"width": 0}, "width=0, state_size=8, blocks=1"),
        ({"state_size": 0}, "width=4, state_size=0, blocks=1"),
        ({"dt_min": 0.1, "dt_max": 0.1}, "0 < dt_min < dt_max is needed, got dt_min=0.1, dt_max=0.1"),
        ({"dt_min": 0.0}, "got dt_min=0.0, dt_max=0.1"),
        ({"step_rescale": 0.0}, "0 < step_rescale < 1e6 is needed, got 0.0"),
        ({"step_rescale": float("nan")}, "0 < step_rescale < 1e6 is needed, got nan"),
        ({"discretization": "euler"}, "unknown Discretization 'euler': expected one of zoh, bilinear"),
        ({"C_init": "normal"}, "unknown CInit 'normal': expected one of lecun_normal, trunc_standard_normal, complex"),
        ({"direction": "both"}, "unknown Direction 'both'"),
    ],
)
def test_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        S5Config(**({"width": 4, "state_size": 8} | changes))


def test_odd_blocks_are_fine_without_pairs():
    assert S5Config(width=4, state_size=12, blocks=4, conj_sym=False).modes == 12


@pytest.mark.parametrize(("conj_sym", "modes", "real"), [(True, 8, 16), (False, 16, 32)])
def test_state_size_in_real_numbers(conj_sym, modes, real):
    config = S5Config(width=4, state_size=16, blocks=2, conj_sym=conj_sym)
    assert (config.block_size, config.modes, config.real_state_size) == (8, modes, real)
