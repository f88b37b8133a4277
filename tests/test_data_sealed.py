"""A record that was altered is never read as what was written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.sealed import SEAL, sealed, unsealed

RECORD = {"mean": 0.1 + 0.2, "count": 3, "names": ["ä", "b"], "by_seed": {0: None, 1: -1e-300}, "pair": (1, 2)}


def test_a_record_survives_being_written_and_read():
    for text in (json.dumps(sealed(RECORD)), json.dumps(sealed(RECORD), indent=2, ensure_ascii=False)):
        assert unsealed(json.loads(text)) == json.loads(json.dumps(RECORD))


def test_a_record_of_before_there_were_seals_is_taken_as_it_is():
    assert unsealed(json.loads(json.dumps(RECORD)))["count"] == 3


@given(st.data())
def test_no_flipped_bit_gives_another_record(data):
    text = json.dumps(sealed(RECORD)).encode()
    place, bit = data.draw(st.integers(0, len(text) - 1)), data.draw(st.integers(0, 7))
    flipped = bytearray(text)
    flipped[place] ^= 1 << bit
    try:
        found = unsealed(json.loads(flipped.decode()))
    except ValueError:
        return
    assert found == json.loads(json.dumps(RECORD))  # it was the last digit of a number, which says the same


def test_a_second_flip_is_seen_where_the_first_hit_the_name_of_the_seal():
    text = json.dumps(sealed(RECORD)).replace('"sha256"', '"sha257"')
    for altered in (text, text.replace('"count": 3', '"count": 2')):
        with pytest.raises(ValueError, match="altered after it was written"):
            unsealed(json.loads(altered))


def test_one_altered_number_is_seen():
    with pytest.raises(ValueError, match="altered after it was written"):
        unsealed(sealed(RECORD) | {"count": 4})
    with pytest.raises(ValueError, match="altered after it was written"):
        unsealed(sealed(RECORD) | {SEAL: "0" * 64})
