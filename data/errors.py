"""The one exception of this package."""


class DataError(Exception):
    """Data that is missing, damaged or impossible. One line: what is wrong, where, what would be right."""
