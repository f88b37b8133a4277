"""A trace of chosen steps, for TensorBoard's profile plugin, xprof or Perfetto."""

from pathlib import Path
from typing import Any

import jax

FOLDER = "profile"
"""Of a run."""


class Profile:
    """Traces the steps from `first` to `last` of `steps`, both included, into a folder; () is none.

    A run that begins between them traces what is left of them.
    """

    def __init__(self, folder: Path, steps: tuple[int, ...]):
        self._folder, self._steps, self._tracing = folder, steps, False

    def before(self, step: int) -> None:
        """To be called before a step is put on the device's queue."""
        if self._steps and not self._tracing and self._steps[0] <= step <= self._steps[1]:
            jax.profiler.start_trace(self._folder)
            self._tracing = True

    def after(self, step: int, results: Any) -> None:
        """To be called with what the step gives; waits for it if the trace ends here."""
        if self._tracing and step >= self._steps[1]:
            jax.block_until_ready(results)
            self.close()

    def close(self) -> None:
        """Writes the trace if one is still going on: also of a run that stops before its last step."""
        if self._tracing:
            self._tracing = False
            jax.profiler.stop_trace()
