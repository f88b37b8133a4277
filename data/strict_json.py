"""JSON of files that anybody may have written: plain values, or a ValueError."""

import json
from typing import Any, NoReturn

DEEPEST = 32
"""Lists and objects in one another: ours have six."""


def parse(text: str | bytes) -> Any:
    """The value of a JSON text, in UTF-8.

    Raises ValueError for what is none, also for NaN and Infinity, which JSON does not know, and for more than DEEPEST
    lists and objects in one another. `json.loads` ends these in a RecursionError that depends on its caller, and so
    would everything that walks the value.
    """
    text = text if isinstance(text, str) else text.decode("utf-8")
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    if text.count("[") + text.count("{") > DEEPEST and _is_deep(value):
        raise ValueError(TOO_DEEP)
    return value


TOO_DEEP = f"more than {DEEPEST} lists and objects in one another"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST + 1):
        nested = [v for v in level if isinstance(v, dict | list)]
        if not nested:
            return False
        level = [inner for v in nested for inner in (v.values() if isinstance(v, dict) else v)]
    return True
