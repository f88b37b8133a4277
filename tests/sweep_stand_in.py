"""Stands in for train.py and eval.py in the tests of sweeps: leaves the same files, in milliseconds.

A step is a line in steps.txt and a committed checkpoint. What goes wrong is said by --config.optim.lr: 0.2 is refused,
0.3 meets a non-finite value, 0.4 dies at step 3 of its first start, 0.5 at that of each; 0.6 and 0.7 stop there the
first time, until they are killed.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

STEPS = 12


def train(workdir, rate):
    """Goes on from the newest checkpoint to the last step."""
    workdir.mkdir(parents=True, exist_ok=True)
    first = not (workdir / "begun.txt").exists()
    with (workdir / "begun.txt").open("a") as file:
        file.write(f"{os.getpid()}\n")
    if rate == "0.2":
        print("error: a rate that is too high", file=sys.stderr)
        return 2
    done = max((int(path.name) for path in (workdir / "checkpoints").glob("*")), default=0)
    for step in range(done + 1, STEPS + 1):
        if step == 3 and rate in ("0.6", "0.7") and first:
            time.sleep(250)
        if step == 3 and (rate == "0.5" or (rate == "0.4" and first)):
            os.kill(os.getpid(), signal.SIGKILL)
        if step == 5 and rate == "0.3":
            print(f"stopped: seed 0, step {step}: the loss is not finite", file=sys.stderr)
            return 3
        with (workdir / "steps.txt").open("a") as file:
            file.write(f"{step}\n")
        save(workdir / "checkpoints" / str(step))
    print("trained")
    return 0


def save(folder):
    """An intact checkpoint of nothing, as `training.checkpoint` would have it: the hashes come last."""
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text("{}")
    hashes = {"meta.json": hashlib.sha256(b"{}").hexdigest()}
    (folder / "sha256.tmp").write_text(json.dumps(hashes, indent=0, sort_keys=True) + "\n")
    (folder / "sha256.tmp").rename(folder / "sha256.json")


def score(workdir, split):
    """Adds a record like those of eval.py."""
    path = workdir / "results.json"
    records = json.loads(path.read_text()) if path.exists() else []
    record = {"split": split, "checkpoint": "best", "updates": STEPS, "seeds": {"0": {"alive": True}}}
    path.write_text(json.dumps([*records, record]))
    print(f"{split} accuracy 50.0 %")
    return 0


if __name__ == "__main__":
    given = dict(argument.lstrip("-").split("=", 1) for argument in sys.argv[1:])
    where = Path(given["workdir"])
    sys.exit(score(where, given["split"]) if "split" in given else train(where, given.get("config.optim.lr")))
