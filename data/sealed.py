"""JSON records that carry a hash of themselves, so that an altered one is never taken for what was written."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

SEAL = "sha256"


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with the sha256 of its JSON text as last entry, in place of one that it has."""
    rest = _rest(record)
    return {**rest, SEAL: _digest(rest)}


def unsealed(record: dict[str, Any]) -> dict[str, Any]:
    """A record without its seal; one without was written before there were any, and is taken as it is.

    Raises:
      ValueError: it is not what was sealed.
    """
    rest = _rest(record)
    if SEAL in record:
        altered = record[SEAL] != _digest(rest)
    else:  # unless it is only the name of the seal that was hit
        altered = bool(re.fullmatch("[0-9a-f]{64}", str(next(reversed(record.values()), ""))))
    if altered:
        raise ValueError(f"it was altered after it was written: its {SEAL} does not match")
    return rest


def unsealed_all(records: Any) -> list[dict[str, Any]]:
    """A list of records without their seals.

    Raises:
      TypeError: it is no list of records.
      ValueError: one is not what was sealed.
    """
    if not (isinstance(records, list) and all(isinstance(record, dict) for record in records)):
        raise TypeError("it is no list of records")
    return list(map(unsealed, records))


def _rest(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != SEAL}


def _digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()
