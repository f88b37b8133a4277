"""Drawn weights against the exact means, by a rule with error bars; how draws are kept; statistics over draws."""

import functools
import json
import math

import numpy as np
import pytest
from conftest import oracle_dir

from theory import monte_carlo
from theory.draws import NEVER, agreement, log_s_of, passage, summarise
from theory.laws import Ensemble
from theory.monte_carlo import Plan, sample
from theory.signal_propagation import log_q, log_s, real_q

TYPICAL = json.loads((oracle_dir() / "signal_propagation.json").read_text())["typical_draws"]

sample_once = functools.cache(sample)


@pytest.mark.parametrize(("n", "draws"), [(16, 4000), (64, 2800), (256, 900)])
def test_complex_draws_agree_with_the_exact_mean_up_to_two_root_n(n, draws):
    """|mean - exact| < 4 standard errors and standard error < 3 %, at all k <= 2 sqrt n (one set of draws for all)."""
    longest = round(2 * math.sqrt(n))
    found = agreement(sample(Plan(n, longest, draws)), log_q(n, np.arange(longest + 1)))
    assert found.agrees.all(), (found.score.round(1), found.error.max())


def test_real_draws_agree_with_the_polynomials():
    found = agreement(sample(Plan(16, 8, 18_000, Ensemble.REAL)), np.log(real_q(16, np.arange(9))))
    assert found.agrees.all(), (found.score.round(1), found.error.max())


def test_real_draws_are_above_the_bound():
    k = np.arange(17)
    found = agreement(sample(Plan(64, 16, 1500, Ensemble.REAL)), log_q(64, k))
    assert (found.score > -4).all()
    assert found.score[16] > 3


def test_fresh_weights_each_step_keep_the_energy():
    log_energy = sample(Plan(16, 16, 2000, tied=False))
    assert agreement(log_energy, np.zeros(17)).agrees.all()
    assert agreement(log_s_of(log_energy), np.log1p(np.arange(17))).agrees.all()


def test_all_columns_are_the_exact_trace_and_vary_less():
    few, all_of_them = (sample(Plan(16, 4, 600, probes=p)) for p in (1, 16))
    assert (summarise(all_of_them).error[1:] < 0.75 * summarise(few).error[1:]).all()
    assert agreement(all_of_them, log_q(16, np.arange(5))).agrees.all()


@pytest.mark.parametrize("name", ["64_C", "64_R"])
def test_typical_draws_pass_levels_when_others_did(name):
    """The share of our draws that pass by the published median time is one half, within both sets' errors."""
    ensemble = Ensemble.COMPLEX if name.endswith("C") else Ensemble.REAL
    s = log_s_of(sample_once(Plan(64, 120, 400, ensemble)))
    growth = s - np.log1p(np.arange(s.shape[1]))
    for level in ("2", "10"):
        share = (growth > math.log(float(level)))[:, : int(TYPICAL[name][level][2]) + 1].any(1).mean()
        assert abs(share - 0.5) < 4 * math.sqrt(0.25 * (1 / 400 + 1 / 750))


def test_a_typical_draw_is_below_the_mean_beyond_two_root_n():
    s = summarise(log_s_of(sample_once(Plan(64, 120, 400))))
    exact = log_s(64, np.arange(49))
    assert abs(s.log_median[16] - exact[16]) < 0.2
    assert exact[48] - s.log_median[48] > 5


PLAN = Plan(8, 5, 12, seed=3)


@pytest.fixture
def chunks_of_four(monkeypatch):
    monkeypatch.setattr(monte_carlo, "NUMBERS_AT_ONCE", 4 * 64)


@pytest.mark.usefixtures("chunks_of_four")
def test_an_interrupted_run_goes_on(tmp_path):
    path, seen = tmp_path / "draws.npz", []

    def interrupt(stage, done, total):
        seen.append((stage, done, total))
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sample(PLAN, path, interrupt)
    assert seen == [("draws, n = 8 complex", done, 12) for done in (0, 4, 8)]
    seen.clear()
    found = sample(PLAN, path, lambda *done: seen.append(done))
    assert [done for _, done, _ in seen] == [8, 12]
    np.testing.assert_array_equal(found, sample(PLAN))
    # Fewer are the first of them; none is computed again.
    np.testing.assert_array_equal(sample(Plan(8, 5, 6, seed=3), path), found[:6])


def test_draws_do_not_depend_on_the_chunk(monkeypatch):
    whole = sample(PLAN)
    monkeypatch.setattr(monte_carlo, "NUMBERS_AT_ONCE", 5 * 64)
    np.testing.assert_allclose(sample(PLAN), whole, atol=1e-5)
    assert len({round(float(value), 6) for value in whole[:, -1]}) == 12


def test_widths_share_no_numbers():
    first = [sample(Plan(n, 1, 300, Ensemble.REAL, probes=n))[:, 1] for n in (4, 5)]
    assert abs(np.corrcoef(first)[0, 1]) < 4 / math.sqrt(300)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Plan(8, 5, 12, seed=4), "another seed"),
        (Plan(8, 6, 12, seed=3), "another longest"),
        (Plan(8, 5, 12, Ensemble.REAL, seed=3), "another ensemble"),
    ],
)
def test_draws_of_another_law_are_refused(tmp_path, plan, said):
    path = tmp_path / "draws.npz"
    sample(PLAN, path)
    with pytest.raises(ValueError, match=said):
        sample(plan, path)


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "draws.npz"
    sample(PLAN, path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"draws\.npz is damaged .* remove it"):
        sample(PLAN, path)


@pytest.mark.parametrize(
    ("fields", "said"),
    [((0, 3, 5), "n = 0"), ((8, -1, 5), "longest = -1"), ((8, 3, 0), "at least 1"), ((2, 3, 5), "1 to n = 2")],
)
def test_plans_that_are_refused(fields, said):
    with pytest.raises(ValueError, match=said):
        Plan(*fields)


def test_statistics_of_known_draws():
    energies = np.array([[1.0, 1e300], [2.0, 2e300], [9.0, 9e300]])
    found = summarise(np.log(energies) + 600)
    np.testing.assert_allclose(found.log_mean, np.log([4, 4e300]) + 600)
    np.testing.assert_allclose(found.error, np.sqrt(19) / np.sqrt(3) / 4)
    np.testing.assert_allclose(found.log_median, np.log([2, 2e300]) + 600)
    with pytest.raises(ValueError, match="at least 2"):
        summarise(np.zeros((1, 3)))


def test_agreement_needs_a_small_score_and_a_small_error():
    rng = np.random.default_rng(0)
    draws = rng.normal(1, 0.5, size=(1000, 1)).clip(0.01)
    assert agreement(np.log(draws), np.array([0.0])).agrees[0]
    assert not agreement(np.log(draws), np.array([0.1])).agrees[0]
    assert not agreement(np.log(draws[:50]), np.array([0.0])).agrees[0]
    assert agreement(np.zeros((5, 1)), np.array([0.0])).agrees[0]


def test_passage_of_known_draws():
    growth = np.log(np.array([[1, 3, 1], [1, 1, 3], [1, 1, 1], [1, 1, 1.5]]))
    assert passage(growth, 2.0) == (0.5, (1.0, 2.0, NEVER))
    # Draw t is above the level from t on: 1, 5 and 9 of the ten have passed at 0, 4 and 8.
    assert passage(np.log(3 * np.triu(np.ones((10, 10))) + 1e-9), 2.0) == (1.0, (0.0, 4.0, 8.0))
