"""Runs that differ in nothing but their seeds, and what they scored."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from data.errors import one_line
from scripts.report.commands import NAMES, Command, command_of, flat
from scripts.report.runs import Row, Run


@dataclass(frozen=True)
class Score:
    """What a setting scored on a split, every seed in its own checkpoint of the same kind.

    record: the first of those that hold them. why_not: why this is not the benchmark of its name; empty if it is.
    dead: seeds that met a value that was not finite.
    """

    values: Mapping[int, float]
    record: Row
    why_not: tuple[str, ...]
    dead: tuple[int, ...]

    @property
    def flags(self) -> str:
        """What eval.py is told to score so."""
        every, checkpoint = self.record.get("every", 1), self.record["checkpoint"]
        return f" --every={every}" * (every != 1) + f" --checkpoint={checkpoint}" * (checkpoint != "best")

    @property
    def is_accuracy(self) -> bool:
        return self.record.get("metric", "accuracy") == "accuracy"

    @property
    def test_selected(self) -> bool:
        return (self.record.get("choices") or {}).get("policy") == "test_selected"


@dataclass(frozen=True)
class Setting:
    """runs: in the order they were read; a seed counts in the first run that has it."""

    command: Command
    label: str
    runs: Sequence[Run]

    @property
    def first(self) -> Run:
        return self.runs[0]

    @property
    def data(self) -> str:
        """What tells data sets apart."""
        return f"{self.first.task} {self.first.facts.get('data_sha256', '')[:8]}"

    @property
    def split(self) -> str:
        """What is reported: the texts have no test split."""
        return "val" if self.first.task in TEXTS else "test"

    @cached_property
    def of_seed(self) -> dict[int, Run]:
        found: dict[int, Run] = {}
        for run in self.runs:
            for seed in run.config["seeds"]:
                found.setdefault(seed, run)
        return dict(sorted(found.items()))

    @cached_property
    def flat(self) -> dict[str, Any]:
        return flat(self.first.config)

    def rows(self, kind: str) -> dict[int, list[Row]]:
        """Seed -> its rows: kind is training, validation or probes."""
        return {seed: [row for row in getattr(run, kind) if row["seed"] == seed] for seed, run in self.of_seed.items()}

    def commands(self, *scores: Score | None) -> tuple[str, ...]:
        """What makes the runs, and these scores of them."""
        lines = []
        for run in self.runs:
            folder = str(run.folder)
            lines.append(self.command.train(tuple(run.config["seeds"]), folder))
            lines += [evaluation(run, self.split) + score.flags for score in scores if score is not None]
        return tuple(lines)

    def score(self, every: int = 1) -> Score | None:
        """Of the best checkpoints, else of the last ones; None if no seed was scored so."""
        for checkpoint in ("best", "last"):
            found = {run.folder: record for run in self.runs if (record := _record(run, self.split, checkpoint, every))}
            values, used, why_not, dead = {}, [], [], []
            for seed, run in self.of_seed.items():
                record = found.get(run.folder)
                if record is not None and str(seed) in record["seeds"]:
                    values[seed] = record["seeds"][str(seed)][record.get("metric", "accuracy")]
                    dead += [] if record["seeds"][str(seed)].get("alive", True) else [seed]
                    used.append(record)
                    why_not += why_not_the_benchmark(run, record)
            values = {seed: value for seed, value in values.items() if value is not None}
            if values:
                return Score(values, used[0], tuple(dict.fromkeys(why_not)), tuple(dead))
        return None


TEXTS = ("shakespeare_char", "tinystories", "tinystories_small")


def evaluation(run: Run, split: str) -> str:
    """The command that scores a run."""
    return f"python eval.py --workdir={shlex.quote(str(run.folder))} --split={split}"


def _record(run: Run, split: str, checkpoint: str, every: int) -> Row | None:
    """The record read at every so many samples, steps rescaled by as much and no more, and a text as in training."""
    for record in run.results:
        read = (
            record.get("step_rescale", 1),
            record.get("every", 1),
            record.get("window"),
            record.get("carried", False),
        )
        if (record["split"], record["checkpoint"]) == (split, checkpoint) and read == (1, every, None, False):
            return record
    return None


def why_not_the_benchmark(run: Run, record: Row) -> list[str]:
    """What makes this a part, or another thing, than the benchmark that its task is named for."""
    data = run.config["data"]
    found = []
    if data.get("smoke"):
        return ["smoke data, made in memory"]
    if data.get("length_window"):
        found.append("lengths {} to {}".format(*data["length_window"]))
    if data.get("limit"):
        found.append(f"{data['limit']:,} training records")
    if data.get("steps"):
        found.append(f"cut to {data['steps']:,} steps")
    if record.get("partial") and not data.get("limit"):
        found.append("partial data")
    if run.config.get("init_from"):
        found.append(f"started from the weights of {run.config['init_from']}")
    updates = record.get("updates", run.config["train"]["steps"])
    if updates < run.config["train"]["steps"]:
        found.append(f"stopped after {updates:,} of {run.config['train']['steps']:,} updates")
    return found


def settings_of(runs: Sequence[Run]) -> tuple[list[Setting], list[str], tuple[str, ...]]:
    """All settings, lines about seeds that were run twice, and what all settings have in common besides the default.

    A label says in what a setting differs from the default of its layer; what is common to all stands apart.
    """
    found: dict[tuple, list[Run]] = {}
    commands = {}
    for run in runs:
        command = command_of(run.config)
        key = (*command.setting, run.facts.get("data_sha256"))
        found.setdefault(key, []).append(run)
        commands.setdefault(key, command)
    count = Counter(part for command in commands.values() for part in dict.fromkeys(command.parts))
    common = tuple(part for part, times in count.items() if times == len(commands) > 1)
    settings = [Setting(commands[key], _label(commands[key], common), group) for key, group in found.items()]
    settings.sort(key=lambda s: (_place(s.first.layer), s.first.config["model"]["depth"], s.label))
    return settings, [line for setting in settings for line in _twice(setting)], common


def _place(layer: str) -> int:
    return list(NAMES).index(layer) if layer in NAMES else len(NAMES)


def _label(command: Command, common: Sequence[str]) -> str:
    named = [NAMES.get(command.layer, command.layer), *(part for part in command.parts if part not in common)]
    return one_line(", ".join(named))


def _twice(setting: Setting) -> list[str]:
    return [
        f"{run.folder}: seed {seed} was run before, in {setting.of_seed[seed].folder}, which counts"
        for run in setting.runs
        for seed in run.config["seeds"]
        if setting.of_seed[seed] is not run
    ]
