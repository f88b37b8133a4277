"""Sizes of attention layers that do not fit are refused with the numbers."""

import pytest

from attention import AttentionConfig, LinearAttentionConfig, Position
from configs.layers import options_of
from models.registry import LAYERS

REFUSED = {
    "no width": ({"width": 0, "heads": 1}, "width=0, heads=1 and sublayers=1 must be at least 1"),
    "no heads": ({"width": 8, "heads": 0}, "width=8, heads=0"),
    "no sublayers": ({"width": 8, "heads": 2, "sublayers": 0}, "sublayers=0"),
    "heads do not divide": ({"width": 250, "heads": 4}, "width=250 is not divisible by heads=4"),
    "odd head": ({"width": 12, "heads": 4}, "position=rope turns pairs: .* 12/4 = 3 must be even"),
    "position": ({"width": 8, "heads": 2, "position": "learned"}, "'learned': expected one of rope, none"),
}
REFUSED_SOFTMAX = {
    "odd head with xpos": ({"width": 12, "heads": 4, "position": "xpos_512"}, "position=xpos_512 .* = 3 must be even"),
    "no cache": ({"width": 8, "heads": 2, "max_length": 0}, "max_length=0 must be at least 1"),
    "no block": ({"width": 8, "heads": 2, "position": "mru", "mru_order": 1}, "mru_order=1: .* at least 2"),
    "block does not divide": (
        {"width": 48, "heads": 4, "position": "mru", "mru_order": 8},
        "48/4 = 12 is not divisible by mru_order=8",
    ),
    "odd block for rope": (
        {"width": 12, "heads": 2, "position": "mru", "mru_order": 3, "mru_start": "rope"},
        "mru_start=rope needs an even mru_order, got 3",
    ),
    "not orthogonal": (
        {"width": 8, "heads": 2, "mru_variant": "ldu"},
        "'ldu': expected one of orthogonal_cayley, orthogonal_expm",
    ),
    "start": ({"width": 8, "heads": 2, "mru_start": "zero"}, "'zero': expected one of identity, rope"),
}


ALL = REFUSED | REFUSED_SOFTMAX


@pytest.mark.parametrize(("sizes", "message"), ALL.values(), ids=ALL)
def test_softmax_refuses(sizes, message):
    with pytest.raises(ValueError, match=message):
        AttentionConfig(**sizes)


@pytest.mark.parametrize(("sizes", "message"), REFUSED.values(), ids=REFUSED)
def test_linear_refuses(sizes, message):
    with pytest.raises(ValueError, match=message):
        LinearAttentionConfig(**sizes)


@pytest.mark.parametrize("position", ["xpos_512", "mru"])
def test_linear_has_two_positions(position):
    with pytest.raises(ValueError, match=f"position={position}: expected one of rope, none"):
        LinearAttentionConfig(width=8, heads=2, position=position)


def test_odd_heads_are_fine_without_pairs():
    assert AttentionConfig(width=12, heads=4, position=Position.NONE).head_size == 3
    assert AttentionConfig(width=12, heads=4, position=Position.MRU, mru_order=3).head_size == 3
    assert LinearAttentionConfig(width=12, heads=4, position=Position.NONE).head_size == 3


def test_state_sizes_of_the_six_layer_models():
    """Width 384, 6 heads, 256 tokens: a cache of 196,608 numbers a layer, sums of 24,960."""
    assert AttentionConfig(width=384, heads=6, max_length=256).real_state_size == 196_608
    turning = AttentionConfig(width=384, heads=6, max_length=256, position=Position.MRU, mru_order=8)
    assert turning.real_state_size == 196_608 + 6 * 8 * 8 * 8
    assert LinearAttentionConfig(width=384, heads=6).real_state_size == 24_960


@pytest.mark.parametrize("layer", ["attention", "linear_attention", "mlp"])
def test_options_of_configs_are_the_defaults(layer):
    config = LAYERS[layer].make_config(32, options_of(layer))
    required = {"heads": 4} if layer != "mlp" else {}
    assert config == LAYERS[layer].make_config(32, required)
