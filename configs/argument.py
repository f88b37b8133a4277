"""The string after the colon of --config=FILE:key=value,...: parsed strictly."""

import difflib


def parse_argument(text: str | None, defaults: dict) -> dict:
    """`defaults` with the values of `text`, each of the type of its default.

    A key without a value is True ("smoke"). seeds is a number (one seed), a range "0:5" or a list "0+3+7".
    Raises ValueError for an unknown key (naming the nearest) or a value of a wrong type.
    """
    values = dict(defaults)
    for part in filter(None, (text or "").split(",")):
        key, given, value = part.partition("=")
        if key not in defaults:
            near = difflib.get_close_matches(key, defaults, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(defaults)}"
            raise ValueError(f"unknown key {key!r} after the colon: {hint}")
        values[key] = _typed(key, value if given else "true", defaults[key])
    return values


def _typed(key: str, text: str, default: object) -> object:
    try:
        match default:
            case bool():
                return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
            case int():
                return int(text)
            case float():
                return float(text)
            case tuple():
                return _seeds(text)
            case _:
                return text
    except (ValueError, KeyError):
        raise ValueError(f"{key}={text!r} after the colon: expected a value like {default!r}") from None


def _seeds(text: str) -> tuple[int, ...]:
    if ":" in text:
        low, high = text.split(":")
        return tuple(range(int(low), int(high)))
    return tuple(int(seed) for seed in text.split("+"))
