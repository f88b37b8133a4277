"""What the module of a data set makes: a stream of examples, and what is to be known about them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np


class Example(NamedTuple):
    """One record, in whole numbers as they are stored.

    values: (n,) ids or (n, channels) samples, n >= 1, of the task's dtype.
    label: a class; (n,) labels of the steps where these are labelled, NO_LABEL where not; None for a piece of text.
    second: the second sequence of a pair.
    """

    values: np.ndarray
    label: int | np.ndarray | None
    second: np.ndarray | None = None


@dataclass(frozen=True)
class Indexed:
    """Examples that can be made from any place on, so that an interrupted preparation goes on where it stopped.

    starting_at: index -> the examples from there to the end.
    """

    starting_at: Callable[[int], Iterator[Example]]

    def __iter__(self) -> Iterator[Example]:
        return self.starting_at(0)


class Generated(NamedTuple):
    """What a data set makes. Each split is taken once, in order, to its end, and only then are the facts asked for: so
    a split may be a generator that holds little in memory.

    facts: () -> what the manifest says: version, source, seed, vocabulary, counts that were met, ...
    arrays: () -> name -> array, statistics of the training split that come with the data.
    expected: how many examples there will be in all, for the progress; 0: not known.
    """

    splits: Mapping[str, Iterable[Example]]
    facts: Callable[[], dict[str, Any]]
    arrays: Callable[[], dict[str, np.ndarray]] = dict
    expected: int = 0


class Choice(NamedTuple):
    """A named way in which a data set can be made or read.

    values: all of them, the default first. stored: whether it changes what is written (its value then belongs to the
    name of the folder) or only how that is read.
    """

    values: tuple[str, ...]
    stored: bool


class About(NamedTuple):
    """What `prepare_data list` tells of a data set. Sizes in bytes; download is 0 where nothing is downloaded."""

    source: str
    licence: str
    download: int
    prepared: int
