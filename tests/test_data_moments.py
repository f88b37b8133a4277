"""Statistics of clips, and the published normalisation written out."""

import numpy as np
import pytest
from fake_speech import clip

from data.errors import DataError
from data.examples import Example
from data.moments import Moments, global_normalisation, position_normalisation, statistics

LENGTH = 40


def clips(count=25):
    """Clips of different lengths around 3,000, quiet and loud."""
    rng = np.random.default_rng(0)
    return [
        Example(
            (rng.normal(3_000, 10 + 5_000 * rng.random(), rng.integers(5, LENGTH + 1))).astype(np.int16)[:, None], 0
        )
        for _ in range(count)
    ]


def waveforms(examples):
    """w in [-1, 1), filled up with zeros, float64."""
    return np.array([np.pad(e.values[:, 0] / 2**15, (0, LENGTH - len(e.values))) for e in examples])


def test_the_statistics():
    w, found = waveforms(clips()), statistics(clips(), LENGTH)
    np.testing.assert_allclose(found["position_mean"], w.mean(0), rtol=1e-13)
    np.testing.assert_allclose(found["position_std"], w.std(0, ddof=1), rtol=1e-13)
    np.testing.assert_allclose(found["mean"], w.mean(), rtol=1e-13)
    np.testing.assert_allclose(found["std"], w.std(ddof=1), rtol=1e-13)
    shapes = {name: (array.shape, array.dtype) for name, array in found.items()}
    assert shapes == {
        "position_mean": ((LENGTH,), np.float64),
        "position_std": ((LENGTH,), np.float64),
        "mean": ((), np.float64),
        "std": ((), np.float64),
    }


def test_no_order_and_no_number_of_clips_costs_a_digit():
    """Whole numbers: the same bits in any order; a spread of one step around the loudest sample is not lost."""
    one, other = statistics(clips(), LENGTH), statistics(clips()[::-1], LENGTH)
    assert all((one[name] == other[name]).all() for name in one)
    loud = [Example(np.full((LENGTH, 1), -(2**15) + k % 2, np.int16), 0) for k in range(1_000)]
    found = statistics(loud, LENGTH)
    np.testing.assert_allclose(found["position_std"] * 2**15, 0.5 * np.sqrt(1000 / 999), rtol=1e-15)


def test_one_quieter_sample_among_a_million():
    """-32767 once and else -32768: the deviation is 0.001, of squares that sum to more than float64 can tell apart."""
    moments, count = Moments(1), 10**6
    moments.clips, moments._sum = count, np.array([-count * 2**15 + 1])
    moments._squares = np.array([(count - 1) * 2**30 + (2**15 - 1) ** 2])
    found = moments.arrays()
    assert found["position_mean"][0] == pytest.approx(-1 + 1e-6 / 2**15, rel=1e-15)
    assert found["position_std"][0] * 2**15 == pytest.approx(1e-3, rel=1e-14)


def test_the_published_normalisation():
    """As it is published: divided by 2^15 once more, then mean and std at each position, epsilon 1e-5."""
    examples = clips()
    divided = waveforms(examples) / 2**15
    expected = (divided - divided.mean(0)) / (divided.std(0, ddof=1) + 1e-5)
    scale, shift = position_normalisation(statistics(examples, LENGTH), 0.32768)
    assert (scale.shape, shift.shape, scale.dtype, shift.dtype) == ((LENGTH, 1), (LENGTH, 1), np.float32, np.float32)
    v = np.array([np.pad(e.values[:, 0], (0, LENGTH - len(e.values))) for e in examples]).astype(np.float32)
    found = v[..., None] * scale + shift
    np.testing.assert_allclose(found[..., 0], expected, rtol=0, atol=3e-7)


def test_the_global_normalisation():
    examples = clips()
    w = waveforms(examples)
    scale, shift = global_normalisation(statistics(examples, LENGTH))
    assert (scale.shape, shift.shape, scale.dtype, shift.dtype) == ((1,), (1,), np.float32, np.float32)
    found = (w * 2**15).astype(np.float32)[..., None] * scale + shift
    np.testing.assert_allclose(found[..., 0], (w - w.mean()) / w.std(ddof=1), rtol=0, atol=2e-6)


def test_one_clip_none_and_silence():
    found = statistics([Example(clip(0, LENGTH)[:, None], 0)], LENGTH)
    assert (found["position_std"] == 0).all()
    scale, _ = position_normalisation(found, 0.32768)
    np.testing.assert_allclose(scale, 1 / (2**15 * 0.32768), rtol=1e-6)
    with pytest.raises(DataError, match="the training split has no clip"):
        statistics([], LENGTH)
    with pytest.raises(DataError, match="all samples of the training split are equal"):
        global_normalisation(statistics([Example(np.zeros((3, 1), np.int16), 0)] * 2, LENGTH))
