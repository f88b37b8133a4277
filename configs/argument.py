"""The string after the colon of --config=FILE:key=value,...: parsed strictly."""

import difflib


def parse_argument(text: str | None, kinds: dict[str, type]) -> dict:
    """The given keys with their values, each of its kind.

    A bool key may stand without a value ("smoke"). A tuple is one number, a range "0:5" or a list "0+3+7", of at most
    MOST numbers.
    Raises ValueError for an unknown key (naming the nearest), a key given twice, or a value of a wrong type.
    """
    values = {}
    for part in filter(None, (text or "").split(",")):
        key, given, value = part.partition("=")
        if key not in kinds:
            near = difflib.get_close_matches(key, kinds, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(kinds)}"
            raise ValueError(f"unknown key {key!r} after the colon: {hint}")
        if key in values:
            raise ValueError(f"{key} is given twice after the colon")
        values[key] = _typed(key, value, kinds[key]) if given or kinds[key] is not bool else True
    return values


def _typed(key: str, text: str, kind: type) -> object:
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return _numbers(text) if kind is tuple else kind(text)
    except (ValueError, KeyError):
        raise ValueError(f"{key}={text!r} after the colon: expected {_EXPECTED[kind]}") from None


MOST = 10_000
_EXPECTED = {bool: "true or false", int: "an integer", float: "a number", str: "a name"}
_EXPECTED[tuple] = f"3, 0:5 or 0+3+7, at most {MOST:,} numbers"


def _numbers(text: str) -> tuple[int, ...]:
    if ":" in text:
        low, high = map(int, text.split(":"))
        if high - low > MOST:
            raise ValueError
        return tuple(range(low, high))
    return tuple(int(number) for number in text.split("+"))
