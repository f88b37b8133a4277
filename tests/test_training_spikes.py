"""Loss spikes and gradient peaks on made-up series."""

import numpy as np
import pytest

from training.spikes import gradient_peak, spike_updates, spikes_per_1000


def test_a_quiet_series_has_no_spike():
    assert spike_updates([2.0] * 300) == []
    assert spikes_per_1000([2.0] * 300) == 0.0


@pytest.mark.parametrize(("rise", "spikes"), [(0.499, []), (0.501, [151])])
def test_half_a_nat_above_the_median_is_a_spike_where_nothing_varies(rise, spikes):
    losses = [2.0] * 300
    losses[150] += rise
    assert spike_updates(losses) == spikes


@pytest.mark.parametrize(("rise", "spikes"), [(1.77, []), (1.79, [151])])
def test_six_deviations_are_needed_where_it_varies(rise, spikes):
    """Losses 1.8 and 2.2 in turn: median 2, MAD 0.2, 6 x 1.4826 x 0.2 = 1.779."""
    losses = [1.8, 2.2] * 150
    losses[150] = 2.0 + rise
    assert spike_updates(losses) == spikes


def test_only_a_hundred_updates_are_looked_back_on():
    """After a step from 5 to 2, a loss of 4 is a spike once most of the hundred before are at 2."""
    losses = [5.0] * 100 + [2.0] * 100
    for update, spikes in ((140, []), (160, [160])):
        changed = list(losses)
        changed[update - 1] = 4.0
        # At update 160, 59 of the hundred are 2: median 2, MAD 0. At 140, 61 are 5.
        assert spike_updates(changed) == spikes


def test_the_first_hundred_updates_are_never_judged():
    losses = [2.0] * 50 + [9.0] * 1 + [2.0] * 49
    assert spike_updates(losses) == []
    assert spikes_per_1000(losses) is None
    assert gradient_peak(losses) is None
    assert spike_updates([*losses, 9.0]) == [101]


def test_several_spikes_per_thousand():
    losses = np.full(500, 2.0)
    losses[[200, 201, 333]] = 3.0
    assert spike_updates(losses.tolist()) == [201, 202, 334]
    assert spikes_per_1000(losses.tolist()) == 6.0


def test_a_fall_is_no_spike():
    losses = [5.0] * 150 + [1.0] * 150
    assert spike_updates(losses) == []


def test_the_gradient_peak_is_relative_to_what_came_before():
    norms = [1.0] * 100 + [3.0] + [2.0] * 200 + [5.0]
    assert gradient_peak(norms) == 3.0
    norms[-1] = 8.0
    assert gradient_peak(norms) == 4.0
