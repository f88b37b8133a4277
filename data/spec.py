"""What a user asks for (`DataRequest`) and what a model needs to know (`TaskSpec`); no data, no heavy import."""

import enum
from dataclasses import dataclass

from data.errors import DataError

NO_LABEL = -1
"""In place of a label, at a step where nothing is to be predicted."""


class TaskKind(enum.Enum):
    """What is to be predicted: one label for a sequence, for the labelled steps of one, for a pair of sequences, or the
    next token of a text."""

    CLASSIFICATION = "classification"
    TAGGING = "tagging"
    PAIRS = "pairs"
    LANGUAGE = "language"


class InputKind(enum.Enum):
    """What a step of the input is: the id of a token, or a vector of channels."""

    TOKENS = "tokens"
    CHANNELS = "channels"


@dataclass(frozen=True)
class DataRequest:
    """Names one prepared data set.

    task: a name of `data.registry.DATA_SETS`.
    length_window: ListOps only, the open interval low < length < high of kept expressions; None is the official one.
        A window is a distribution of its own, with a name of its own.
    limit: at most this many records in each split; None is all of them.
    choices: name -> value, where a data set can be made or read in several named ways; what is left out has its
        default (see `data.examples.Choice`).
    partial: a source that is not the official one was allowed; counts are then reported and not asserted.
    steps: of a window of text, or to which other inputs are cut; None is the data set's own number.

    Raises DataError if limit or steps is not positive.
    """

    task: str
    length_window: tuple[int, int] | None = None
    limit: int | None = None
    choices: tuple[tuple[str, str], ...] = ()
    partial: bool = False
    steps: int | None = None

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise DataError(f"steps is {self.steps}: an input needs at least 1")
        if self.limit is not None and self.limit < 1:
            raise DataError(f"limit is {self.limit}: at least 1 record in each split is needed")

    @property
    def name(self) -> str:
        """The distribution the records come from: "listops", "listops_24_96"."""
        return "_".join([self.task, *map(str, self.length_window or ())])


@dataclass(frozen=True)
class Normalisation:
    """x = (v / divisor - mean) / std for a stored value v, one mean and std for each channel."""

    divisor: float
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class TaskSpec:
    """The shape of a task.

    input_width: rows of the table of token ids, or number of channels.
    length: steps T to which every input is padded.
    classes: number of labels.
    test_length: the same for the test split, where that is to be longer than what is trained on.
    dtype: how a symbol is stored: "uint8", "uint16" or "int16".
    normalisation: of channels, on the device; None: tokens, or statistics that come with the prepared data.
    """

    name: str
    kind: TaskKind
    input_kind: InputKind
    input_width: int
    length: int
    classes: int
    test_length: int | None = None
    dtype: str = "uint8"
    normalisation: Normalisation | None = None

    def length_of(self, split: str) -> int:
        """Steps to which the inputs of a split are padded."""
        return self.test_length if split == "test" and self.test_length is not None else self.length
