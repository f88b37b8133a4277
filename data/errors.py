"""The one exception of this package, and how what comes from files and command lines is said."""

LONGEST, TAIL = 2_000, 500


def one_line(text: str) -> str:
    r"""`text` with whatever is not printable escaped, as \n: one line, with a form in UTF-8, and nothing in it that a
    terminal obeys."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def first_line(error: Exception) -> str:
    """Of what an error of a library says."""
    return (str(error) or type(error).__name__).splitlines()[0]


def said(message: str) -> str:
    """What an error says: one line, and of a longer one than LONGEST characters its beginning and its end."""
    line = one_line(message)
    return line if len(line) <= LONGEST else f"{line[: LONGEST - TAIL]} ... {line[-TAIL:]}"


class DataError(Exception):
    """Data that is missing, damaged or impossible. One line, whatever it quotes: what is wrong, where, what would be
    right."""

    def __init__(self, message: str) -> None:
        super().__init__(said(message))
