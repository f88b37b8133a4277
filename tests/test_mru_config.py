"""Sizes of the MRU: what fits, and one line with the numbers for what does not."""

import pytest

from models.registry import LAYERS
from mru import MRUConfig, Variant

RIGHT = {"width": 24, "state_size": 48, "heads": 3}


@pytest.mark.parametrize(
    ("width", "state_size", "heads", "order"),
    [(384, 384, 6, 8), (768, 768, 3, 16), (256, 256, 1, 16), (256, 256, 16, 4)],
)
def test_published_sizes(width, state_size, heads, order):
    config = MRUConfig(width, state_size, heads)
    assert (config.order, config.elements, config.real_state_size) == (order, order**2, state_size)
    orthogonal = MRUConfig(width, state_size, heads, variant=Variant.ORTHOGONAL_EXPM)
    assert (orthogonal.elements, orthogonal.real_state_size) == (order * (order - 1) // 2, state_size)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state_size": 100}, ("100", "3", "divisible")),
        ({"state_size": 288}, ("96", "perfect square")),
        ({"width": 250, "state_size": 256, "heads": 4}, ("250", "32", "divisible")),
        ({"width": 20, "state_size": 48}, ("20", "12", "divisible")),
        ({"state_size": 3}, ("order", "n=1", "at least 2")),
        ({"width": 0}, ("width=0", "at least 1")),
        ({"state_size": -48}, ("state_size=-48", "at least 1")),
        ({"heads": 0}, ("heads=0", "at least 1")),
        ({"sublayers": 0}, ("sublayers=0", "at least 1")),
        ({"variant": "lu"}, ("lu", *(variant.value for variant in Variant))),
        ({"state_scan": "scaled"}, ("scaled", "plain", "rescaled")),
        ({"output_norm": "l2"}, ("l2", "none", "frobenius", "row")),
        ({"state_scan": "rescaled"}, ("rescaled", "output_norm=none", "frobenius or row")),
        ({"variant": "determinant", "det_eps": -1e-3}, ("det_eps=-0.001",)),
        ({"variant": "ldu", "det_eps": 1e-3}, ("det_eps=0.001", "variant=determinant")),
    ],
)
def test_refused_in_one_line(changes, words):
    sizes = RIGHT | changes
    with pytest.raises(ValueError) as refusal:
        LAYERS["mru"].make_config(sizes.pop("width"), sizes)
    message = str(refusal.value)
    assert "\n" not in message
    assert [word for word in words if word not in message] == []
