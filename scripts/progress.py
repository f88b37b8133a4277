"""Progress of a long job: a bar on a terminal, plain lines with the time left in a log."""

import sys
import time
from collections.abc import Callable

from tqdm import tqdm

from training.files import time_text

SECONDS_BETWEEN_LINES = 5.0


class Progress:
    """Called with (stage, done, total), total 0 if it is not known. A new stage starts a new bar; rates are measured
    within a stage."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bar: tqdm | None = None
        self._stage = ""
        self._first = (0, 0.0)
        self._said_at = 0.0

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, stage: str, done: int, total: int) -> None:
        new = stage != self._stage
        if new:
            self._stage, self._first = stage, (done, self._clock())
        if sys.stderr.isatty():
            self._draw(done, total, new)
        elif new or done == total or not 0 <= self._clock() - self._said_at < SECONDS_BETWEEN_LINES:
            of = f" of {total:,}{self._left(done, total)}" if total else ""
            print(f"{stage}: {done:,}{of}", file=sys.stderr, flush=True)
            self._said_at = self._clock()

    def _left(self, done: int, total: int) -> str:
        first, began = self._first
        if done <= first or done == total:
            return ""
        seconds = (self._clock() - began) / (done - first) * (total - done)
        return f", {time_text(seconds)} left"

    def _draw(self, done: int, total: int, new: bool) -> None:
        if self._bar is None or new:
            self.__exit__()
            self._bar = tqdm(total=total or None, desc=self._stage, initial=done, unit_scale=True, file=sys.stderr)
        self._bar.update(done - self._bar.n)
