"""The training loop: one program over all seeds, a fixed order within each step, resumable at any moment.

Order: draw batch -> step -> flush the metrics of the step before -> evaluate -> stop if not finite -> save. Metrics are
fetched one step late, so that the device never waits for the log; before an evaluation or a save none are left behind.
"""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from data.batching import records_of_batch, seed_batches, steps_per_epoch
from data.prepared import Opened, open_data, open_task, smoke_data, smoke_task
from data.spec import TaskKind, TaskSpec
from models.norm import Stats
from training import checkpoint, nonfinite
from training.compiled import compile_cache
from training.config import ExperimentConfig, Mirrors, OnNonFinite
from training.cost import model_facts, record_peak, recorded_peak
from training.distributed import agreed, copied, is_first, together, told
from training.errors import NonFiniteError, PreemptedError
from training.evaluate import bits, evaluate, guesses_line, interval_text, metric_of, selection_values
from training.inherit import Inherited, inherit
from training.memory import CompiledStep, compile_step
from training.mesh import (
    everywhere,
    fetch,
    make_mesh,
    place,
    place_batch,
    refuse_uneven,
    replicated,
    share_of,
    split_seeds,
    using,
)
from training.mirrors import Beside
from training.nonfinite import Incident
from training.optim import parameter_table
from training.probe import probe_batch, probe_lengths, probe_rows, probe_times
from training.profile import FOLDER, Profile
from training.start import abstract_state, begin
from training.state import (
    Affine,
    Params,
    Program,
    TrainState,
    initial_params_of_all,
    initial_stats_of_all,
    make_program,
)
from training.step import (
    FINE,
    StepMetrics,
    keep_best,
    make_eval_step,
    make_probe_step,
    tensor_names,
)
from training.workdir import CHECKPOINTS, CONFIG, LOG, METRICS, alone, claim, gone, refuse_difference
from training.writers import MetricsLog, Nowhere, Progress, RunLog


class Pending(NamedTuple):
    """What a step has put on the device's queue and the log has not seen yet."""

    step: int
    metrics: StepMetrics | None
    probe: list[dict[str, jax.Array]] | None


def load_data(config: ExperimentConfig, data_dir: Path) -> Opened:
    """The data a config asks for. Raises DataError if they are missing or damaged."""
    request = config.data.request
    return smoke_data(request) if config.data.smoke else open_data(request, data_dir)


def load_task(config: ExperimentConfig, data_dir: Path) -> tuple[TaskSpec, Affine | None]:
    """What a program needs to know of these data, and of prepared data only their manifest can tell: how many ids a
    text has, statistics of samples. No record is read. Raises DataError as `load_data`."""
    request = config.data.request
    spec, affine = smoke_task(request) if config.data.smoke else open_task(request, data_dir)
    return spec, affine and Affine(*affine)


def train(config: ExperimentConfig, workdir: Path, data_dir: Path, to_stop: Callable[[], bool] = lambda: False) -> None:
    """Trains to the end, from the newest checkpoint if there is one.

    to_stop: asked before the first step whether to stop, and after every one whether to save and stop there.
    Raises ConfigError and DataError before anything is written if the run cannot start, NonFiniteError if it stops,
    PreemptedError if it was asked to. Of several processes (`training.distributed`) all call it, and the first writes.
    """
    with contextlib.ExitStack() as held:
        with together():
            held.enter_context(compile_cache(config.compile_cache))
            run = _prepared(config, workdir, data_dir, agreed(to_stop), held)
        run.go()


def _prepared(
    config: ExperimentConfig, workdir: Path, data_dir: Path, to_stop: Callable[[], bool], held: contextlib.ExitStack
) -> "Run":
    """A run that can start; `held` is closed after it."""
    program = make_program(config, *load_task(config, data_dir))
    parts = config.train.accumulate
    mesh = make_mesh(config.train.batch_size // parts, "train.batch_size" + f" / {parts}" * (parts > 1), config.mesh)
    make_mesh(config.train.eval_batch_size, "train.eval_batch_size", config.mesh)
    refuse_uneven(program.task.length, config.mesh)
    # Before anything that takes time.
    begun = refuse_difference(workdir, config) if (workdir / CONFIG).exists() else None
    if begun is not None and is_first():
        held.enter_context(alone(workdir))
        recorded_peak(workdir)  # damage is said before the work and not after it
    inherited = inherit(program, workdir, begun) if is_first() else None
    compiled = functools.cache(lambda: compile_step(program, mesh))
    over = checkpoint.steps(workdir / CHECKPOINTS)[-1:] == [config.train.steps]
    if not over or jax.process_count() > 1:  # several compile together, and only one has the folder
        compiled()
    data = load_data(config, data_dir)
    steps_per_epoch(data.splits["train"], config.train.batch_size)
    times = probe_times(program.task.length)
    if not is_first():
        return Run(program, data, workdir, times, mesh, Nowhere(), to_stop, compiled, inherited, [])
    facts = {"probe_times": times, "data_sha256": data.content_sha256, **model_facts(program)}
    if inherited is not None:
        facts["init_from"] = inherited.facts
    if begun is None:
        held.enter_context(alone(workdir))
    changes = claim(workdir, config, facts)
    log = held.enter_context(contextlib.closing(RunLog(workdir / LOG)))
    for line in changes:
        log.say(f"warning: {line}")
    return Run(program, data, workdir, times, mesh, log, to_stop, compiled, inherited, changes)


class Run:
    """One run in progress."""

    def __init__(
        self,
        program: Program,
        data: Opened,
        workdir: Path,
        times: tuple[int, ...],
        mesh: Mesh,
        log: RunLog | Nowhere,
        to_stop: Callable[[], bool],
        compiled: Callable[[], CompiledStep],
        inherited: Inherited | None,
        repairs: list[str],
    ):
        config = program.config
        self.program, self.config, self.splits, self.workdir, self.log = program, config, data.splits, workdir, log
        self.mesh, self.to_stop, self.compiled, self.times = mesh, to_stop, compiled, times
        self.eval_step = using(mesh, make_eval_step(program))
        self.probe_step = using(mesh, make_probe_step(program, times))
        batch = probe_batch(data.splits["val"], config.train.probe_size)
        self.probe_lengths = probe_lengths(batch, config.model.padding)
        self.probe_inputs = place(batch, replicated(mesh))
        self.share = share_of(mesh, len(config.seeds), config.train.batch_size)
        self.guesses = guesses_line(data.baselines["val"], metric_of(program.task))
        self.inherited = inherited
        self.repairs = repairs
        self.stopped: list[str] = []
        self.passed_over = False
        self.began = time.monotonic()

    def go(self) -> None:
        """From the newest checkpoint, or from the start, to the last step."""
        config, diagnostics = self.config, None
        if (restored := self._restore()) is None:
            params, stats = self._initial()
            fresh, diagnostics = begin(self.program, params, self._probe, self.probe_inputs, stats)
            restored = place(fresh, split_seeds(self.mesh)), None, None
        state, start, rows = restored
        self._stop_if_asked(state)
        with (
            MetricsLog(self.workdir / METRICS, start, rows) if is_first() else Nowhere() as self.metrics,
            Beside(config.mirrors if is_first() else Mirrors.NONE, self.workdir, self.log.say) as self.mirrors,
        ):
            lost = [] if self.passed_over else gone(config, start or 0, self.metrics.end)
            self._repaired([*self.metrics.repairs, *lost])
            if start == config.train.steps:
                self.log.say(f"finished already: {start} steps in {self.workdir}")
                return
            optim = config.optim
            self.log.say(parameter_table(self.program.abstract_params, config.model.layers, optim.groups, optim.decay))
            self.log.say(self.compiled().table)
            if self.to_stop():
                raise PreemptedError(
                    f"stopped at step {start or 0} of {config.train.steps} before anything was trained: "
                    "the same command goes on there"
                )
            if start is None:
                self._flush(Pending(0, None, diagnostics), state)
                state = self._evaluate(state, 0)
                if config.init_from:
                    self._save(state, 0)  # from here on the run that it starts from is needed no more
            self._steps(state, start or 0)

    def _initial(self) -> tuple[Params, Stats]:
        """Parameters and running averages of all seeds: drawn, or those of another run, which process 0 has read."""
        drawn = initial_params_of_all(self.program), initial_stats_of_all(self.program)
        if not self.config.init_from:
            return drawn
        if self.inherited is None:
            return copied(drawn)
        for line in self.inherited.lines:
            self.log.say(line)
        return copied((self.inherited.params, self.inherited.stats))

    def _probe(self, params: Params, inputs: Any) -> list[dict[str, np.ndarray]]:
        """The diagnostics of parameters that lie here."""
        # Placed as they will be while training, so that the probe is compiled once.
        return fetch(self.mesh, self.probe_step(place(params, split_seeds(self.mesh)), inputs))

    def _restore(self) -> tuple[TrainState, int | None, int | None] | None:
        """The newest state, on the devices, its step and the rows there were then; None if none was saved."""
        folder, restored = self.workdir / CHECKPOINTS, None
        with together():
            if is_first():
                expected = abstract_state(self.program) if checkpoint.steps(folder) else None
                restored = checkpoint.restore(folder, expected)
        facts = told(None if restored is None else [restored.step, restored.meta, restored.repairs])
        if facts is None:
            return None
        step, meta, repairs = facts
        self.repairs, self.stopped = list(dict.fromkeys([*meta["repairs"], *self.repairs])), meta["stopped"]
        self.passed_over = bool(repairs)
        self._repaired(repairs)
        self.log.say(f"going on from step {step}")
        if restored is None:
            tree = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), abstract_state(self.program))
        else:
            tree = restored.tree
        return place(copied(tree), split_seeds(self.mesh)), step, meta.get("rows")

    def _repaired(self, lines: Sequence[str]) -> None:
        """Says what was mended; every later checkpoint carries it into the results."""
        for line in lines:
            self.log.say(f"repaired: {line}")
        self.repairs += lines

    def _steps(self, state: TrainState, start: int) -> None:
        train, total = self.config.train, self.config.train.steps
        progress = Progress(self.log, start, total)
        profile = Profile(self.workdir / FOLDER, train.profile if is_first() else ())
        pending = None
        try:
            for step, batch in enumerate(self._batches(start), start=start + 1):
                profile.before(step)
                state, metrics = self.compiled().call(state, batch, np.int32(step - 1))
                profile.after(step, metrics)
                last = step == total
                stopping = not last and self.to_stop()
                due = step % train.probe_every == 0 or last
                evaluating, saving = (last or step % every == 0 for every in (train.eval_every, train.checkpoint_every))
                saving |= stopping
                probe = self.probe_step(state.params, self.probe_inputs) if due else None
                # Gathered behind this step: when it is flushed the next one is under way.
                previous, pending = pending, Pending(step, *everywhere(self.mesh, (metrics, probe)))
                trouble = self._flush(previous, state, progress)
                if trouble or evaluating or saving:
                    trouble = [*trouble, *self._flush(pending, state, progress)]
                    pending = None
                if evaluating:
                    state = self._evaluate(state, step)
                self._stop_on(trouble, state, step)
                if saving:
                    self._save(state, step)
                if stopping:
                    raise PreemptedError(f"stopped at step {step} of {total} and saved: the same command goes on there")
        finally:
            profile.close()
            progress.close()

    def _batches(self, start: int) -> Iterator[Any]:
        train, seeds = self.config.train, self.config.seeds[self.share.seeds]
        batches = seed_batches(self.splits["train"], seeds, train.batch_size, start, train.steps, self.share.records)
        return (place_batch(self.mesh, batch, self.share, seeds=True) for batch in batches)

    def _flush(self, pending: Pending | None, state: TrainState, progress: Progress | None = None) -> list[str]:
        """Writes the rows of a step. Returns one line for each seed that was found not finite there."""
        if pending is None:
            return []
        step, metrics, probe = pending
        metrics, probe = jax.device_get((metrics, probe))
        rows: list[dict[str, Any]] = [{} for _ in self.config.seeds]
        if metrics is not None:
            rows = [dict(zip(StepMetrics._fields, column, strict=True)) for column in zip(*metrics, strict=True)]
            if progress is not None:
                finite = metrics.loss[np.isfinite(metrics.loss)]
                progress.update(step, float(finite.mean()) if finite.size else float("nan"))
        bad = [row.pop("bad", FINE) for row in rows]
        energies = [{}] * len(rows)
        if probe is not None:
            energies = probe_rows(probe, fetch(self.mesh, state.energy_ref), self.probe_lengths, self.times)
        if step % self.config.train.log_every == 0 or probe is not None or max(bad) > FINE:
            for seed, row, energy in zip(self.config.seeds, rows, energies, strict=True):
                self._write(step, seed, "train", {"loss": None, **row, **energy})
        return [self._describe(state, i, step, index) for i, index in enumerate(bad) if index > FINE]

    def _write(self, step: int, seed: int, split: str, values: dict[str, Any]) -> None:
        data = {"data": "smoke"} if self.config.data.smoke else {}
        task, batch_size = self.program.task, self.config.train.batch_size
        # What was read so far: steps count updates.
        tokens = {"tokens": step * batch_size * task.length} if task.kind is TaskKind.LANGUAGE else {}
        seconds = round(time.monotonic() - self.began, 3)
        self.metrics.write({"step": step, "seed": seed, "split": split, **tokens, **values, **data, "seconds": seconds})
        self.mirrors.check()

    def _evaluate(self, state: TrainState, step: int) -> TrainState:
        """Validation of all seeds; keeps each one's best."""
        size = self.config.train.eval_batch_size
        found = evaluate(self.eval_step, state.params, state.stats, self.splits["val"], size, self.mesh)
        task = self.program.task
        if metric_of(task) == "loss":
            found["bits"] = bits(found["loss"])
        for i, seed in enumerate(self.config.seeds):
            self._write(
                step, seed, "val", {name: found[name][i] for name in ("loss", "accuracy", "bits") if name in found}
            )
        self.log.say(f"step {step}: validation {self._scores(found)}; {self.guesses}")
        value = np.asarray(selection_values(task, found), np.float32)
        return state._replace(best=keep_best(state, np.int32(step), value))

    def _scores(self, found: dict[str, np.ndarray]) -> str:
        """The metric of every seed, in words."""
        seeds = ", ".join(map(str, self.config.seeds))
        if metric_of(self.program.task) == "loss":
            losses = " ".join(f"{loss:.3f}" for loss in found["loss"])
            return f"loss {losses} nats, {' '.join(f'{b:.3f}' for b in found['bits'])} bits (seeds {seeds})"
        accuracies = " ".join(f"{100 * a:.1f}" for a in found["accuracy"])
        spread = interval_text(float(found["accuracy"].mean()), len(self.splits["val"]))
        return f"accuracy {accuracies} % (seeds {seeds}; {spread})"

    def _save(self, state: TrainState, step: int) -> None:
        self.metrics.sync()
        meta = {"repairs": self.repairs, "stopped": self.stopped, "rows": self.metrics.count}
        whole = fetch(self.mesh, state)
        with together():
            if is_first():
                record_peak(self.workdir)
                checkpoint.save(self.workdir / CHECKPOINTS, step, whole, meta)

    def _describe(self, state: TrainState, i: int, step: int, index: int) -> str:
        """Names what was not finite, and the first block at fault, and writes down what a replay needs.

        The state still holds the seed's parameters of before that step, so its batch can be run through them again.
        """
        seed, train = self.config.seeds[i], self.splits["train"]
        records = records_of_batch(train, seed, step - 1, self.config.train.batch_size)
        found = self.probe_step(state.params, place(train.gather(records), replicated(self.mesh)))
        params, blocks = jax.tree.map(lambda leaf: leaf[i], fetch(self.mesh, (state.params, found)))
        block = next((depth for depth, own in enumerate(blocks) if not own["finite"]), None)
        layers = nonfinite.sizes({"parameters": params}, blocks)
        incident = Incident(seed, step, tensor_names(state)[index], block, records.tolist(), layers)
        if is_first():
            nonfinite.write(self.workdir, incident)
        return incident.line

    def _stop_on(self, trouble: list[str], state: TrainState, step: int) -> None:
        """Says what was not finite; saves and stops, unless the config says to go on with the seeds that are left."""
        if not trouble:
            return
        self.log.say("; ".join(trouble))
        self.stopped += trouble
        if self._stops(state):
            self._save(state, step)
        self._stop_if_asked(state)

    def _stops(self, state: TrainState) -> bool:
        return self.config.on_nonfinite is OnNonFinite.STOP or not fetch(self.mesh, state.alive).any()

    def _stop_if_asked(self, state: TrainState) -> None:
        """Raises NonFiniteError for what was not finite, now or before, unless the run is to go on without it."""
        if self.stopped and self._stops(state):
            raise NonFiniteError("; ".join(self.stopped))
