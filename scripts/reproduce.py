"""The whole chain behind a published number: prepare, train all seeds, score, report.

    python -m scripts.reproduce list                                   every published number: how, or why not
    python -m scripts.reproduce lra --task listops --layer rotrnn      prints the chain
    python -m scripts.reproduce speech_commands --task sc35 --layer s5 --run

Families are those of configs/: lra, speech_commands, pixels. --run runs the commands one after the other; each goes on
where it was stopped, so the same line may be given again. --preset=published, the default, does what the published
code does; only its numbers may stand beside the published ones. --seeds=0:3, --out=runs/reproduce, --data_dir=DIR.

The hours are expected on one NVIDIA A100, computed as the chain says; none of them was measured here.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from configs.argument import parse_argument
from configs.experiment import PRESETS
from configs.published import LENGTHS
from data.registry import choices
from scripts.arguments import Parser
from scripts.report.commands import FAMILIES, NAMES, Command
from scripts.report.published import HEADS, REFERENCE
from training import cli
from training.errors import ConfigError

SPEED = {
    # task: steps/s of the LRU, steps/s of S5, batch
    "scifar": (15.9, 15.9, 50),
    "listops": (2.1, 2.2, 32),
    "text": (14.7, 14.4, 32),
    "retrieval": (5.7, 5.7, 64),
    "pathfinder": (15.5, 15.6, 64),
    "pathx": (2.4, 2.3, 32),
}
"""On an A100, at the sizes and batches of the LRU (arXiv 2303.06349)."""
RELATIVE = {
    "image": "scifar", "smnist": "pathfinder", "psmnist": "pathfinder", "path256": "pathx", "sc35": "pathx",
    "sc10": "pathx", "fsdd": "pathx",
}  # fmt: skip
"""The task whose speed stands for one without a published speed."""

LAYERS = {"S5": "s5", "LRU": "lru", "RotRNN": "rotrnn", "LRU (re-run by RotRNN authors)": "lru"}
"""Published model -> layer here."""
OTHERS = {
    "LRU stage": "a step on the way to the LRU, whose parametrisation is not built here",
    "S5-": "another initialisation of the eigenvalues than the one built here (HiPPO-N)",
    "S5 (re-run": "settings of that re-run are not published",
    "S4D (re-run": "S4D is not built here",
    "RNN-": "dense recurrences are not trained here",
    "Transformer": "the arena's settings are not built here; --layer attention trains a baseline of the LRU's sizes",
}
"""How a model's name begins -> why its number cannot be reproduced."""

Config = dict[str, Any]


class Expected(NamedTuple):
    """Hours of one seed on one A100; None where nothing is published to compute them from."""

    hours: float | None
    how: str


def main(argv: Sequence[str]) -> None:
    """Prints the list or a chain, or runs the chain."""
    parser = Parser("reproduce", __doc__)
    parser.add_argument("family", choices=["list", *(Path(file).stem for file in FAMILIES)])
    parser.add_argument("--task", default="")
    parser.add_argument("--layer", choices=list(NAMES), default="rotrnn")
    parser.add_argument("--seeds", default="0:3")
    parser.add_argument("--preset", choices=PRESETS, default="published")
    parser.add_argument("--out", type=cli.folder, default=Path("runs/reproduce"))
    parser.add_argument("--data_dir")
    parser.add_argument("--run", action="store_true")
    given = parser.parse_args(argv[1:])
    if given.family == "list":
        if given.task:
            raise ConfigError(f"--task={given.task}: list takes none")
        print("\n".join(numbers()))
        return
    try:
        seeds = parse_argument(f"seeds={given.seeds}", {"seeds": tuple})["seeds"]
    except ValueError as error:
        raise ConfigError(f"--seeds: {error}") from error
    remarks, commands = chain(given.family, given.task, given.layer, seeds, given.preset, given.out, given.data_dir)
    print("\n".join([*(f"# {remark}" for remark in remarks), *map(shlex.join, commands)]), flush=True)
    for command in commands if given.run else []:
        code = subprocess.run([sys.executable, *command[1:]], check=False).returncode
        if code:
            sys.exit(code)


def chain(
    family: str, task: str, layer: str, seeds: tuple[int, ...], preset: str, out: Path, data_dir: str | None
) -> tuple[list[str], list[list[str]]]:
    """What is to be known, and the commands. Raises ConfigError for a task that the family has not."""
    file = f"configs/{family}.py"
    tasks = FAMILIES[file].TASKS
    if task not in tasks:
        said = f"--task={task}" if task else "--task is missing"
        raise ConfigError(f"{said}: {family} has {', '.join(tasks)}")
    argument = {"task": task, "layer": layer} | ({"preset": preset} if preset != "clean" else {})
    config = FAMILIES[file].get_config(",".join(f"{key}={value}" for key, value in argument.items())).to_dict()
    folder = out / f"{task}_{layer}_{preset}"
    where = [f"--data_dir={data_dir}"] if data_dir else []
    train = shlex.split(Command(file, layer, argument, {}).train(seeds, str(folder)))
    score = ["python", "eval.py", f"--workdir={folder}", "--split=test"]
    commands = [["python", "-m", "scripts.prepare_data", task, *_stored(config), *where], [*train, *where]]
    commands += [[*score, *every, *where] for every in ([[], ["--every=2"]] if task == "sc35" else [[]])]
    commands += [["python", "-m", "scripts.report", str(out), f"--out={out / 'report'}"]]
    found, steps = expected(config), config["train"]["steps"]
    hours = (
        "unknown" if found.hours is None else f"{found.hours:.1f} h for a seed, {len(seeds) * found.hours:.1f} h for"
    )
    remarks = [
        f"{NAMES[layer]} on {HEADS[task]}; published: {config['published'] or 'no number for this setting'}",
        f"{steps:,} updates of {config['train']['batch_size']} records; on one NVIDIA A100: {hours}"
        + (f" {len(seeds)} one after the other" if found.hours is not None else "")
        + f" ({found.how})",
        "all seeds train in one program; not run here",
    ]
    return remarks, commands


def _stored(config: Config) -> list[str]:
    """Flags of prepare_data for choices that are stored and are not the default."""
    known = choices(config["data"]["task"])
    return [
        f"--{name}={value}"
        for name, value in config["data"]["choices"].items()
        if known[name].stored and value != known[name].values[0]
    ]


def expected(config: Config) -> Expected:
    """Steps over the published steps/s, which is scaled with the symbols in a batch where batch or task differ."""
    task: str = config["data"]["task"]
    layer, train = config["model"]["layer"], config["train"]
    if layer not in ("lru", "s5", "rotrnn"):
        return Expected(None, f"no speed of {NAMES[layer]} is published")
    relative = RELATIVE.get(task, task)
    of_lru, of_s5, batch = SPEED[relative]
    rate = of_lru if layer == "lru" else of_s5
    here, there = train["batch_size"] * LENGTHS[task], batch * LENGTHS[relative]
    hours = train["steps"] / (rate * there / here) / 3600
    how = f"{rate} steps/s of {'the LRU' if layer == 'lru' else 'S5'} on {HEADS[relative]}, arXiv 2303.06349"
    if layer == "lru" and here == there and task == relative:
        return Expected(hours, f"published: {how}")
    scaled = "" if here == there else ", scaled by the symbols in a batch"
    other = "; RotRNN published no speed" if layer == "rotrnn" else ""
    return Expected(hours, f"an estimate: {how}{scaled}; width and depth there are the LRU's{other}")


def numbers() -> list[str]:
    """One line for every published number: the chain that reproduces it, or why there is none."""
    lines = []
    for row in json.loads(REFERENCE.read_text())["rows"]:
        value = "–" if row["accuracy"] is None else f"{row['accuracy']:g} %"
        lines.append(f"{row['model']} | {row['task']} | {value} | {_how(row)}")
    return lines


def _how(row: dict[str, Any]) -> str:
    model, task = row["model"], row["task"].removesuffix("_8k")
    if task == "average_printed":
        return "not trained: scripts.report computes both means from the cells"
    for start, why in OTHERS.items():
        if model.startswith(start):
            return f"no: {why}"
    if model not in LAYERS:
        return "no: this model is not built here"
    if row["accuracy"] is None:
        return f"no number: {row['caveat']}"
    families = {file: family for file, family in FAMILIES.items() if task in family.TASKS}
    if not families:
        return "no: this task is in no family of configs/"
    return f"python -m scripts.reproduce {Path(next(iter(families))).stem} --task {task} --layer {LAYERS[model]}"


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv))
