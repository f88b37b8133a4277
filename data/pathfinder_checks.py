"""What is asked of stored Pathfinder images, and how far one gets without following a snake."""

import hashlib
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from data.errors import DataError
from data.parallel import Progress, silent
from data.pathfinder_sprites import PADDLES, SETTINGS
from data.spec import DataRequest, TaskSpec
from data.splits import Records
from data.stored import check_pixels, expect_count

REPORT_EVERY = 1_000
SAMPLE = 1_000  # images of each split that are drawn again
SAMPLE_JOB = 50
DISC = 200  # at least, in the middle of a disc: 255 / 1.2 where a short snake of pathfinder is brighter
LABEL_BAND = 0.006  # of the share of label 1 in 200,000 images
DISTRACTORS = {
    ("pathfinder", "upstream"): (0.9, 1.4),
    ("pathfinder", "words"): (4.6, 5.0),
    ("pathx", "upstream"): (7.5, 8.0),
    ("pathx", "words"): (7.5, 8.0),
}
"""Mean number of short snakes. path256 has room for nearly all of its seven."""
STANDARD_ERRORS = 5
DISTRACTORS_STD = 1.0  # at most, of the number in an image
GUESSES = ("ink", "brightness")


class Stored(NamedTuple):
    """What is kept of the images of a split: of their pixels the sum, the mean of those that are not 0, the maximum."""

    labels: np.ndarray
    digests: list[bytes]
    ink: np.ndarray
    brightness: np.ndarray
    brightest: np.ndarray


def read(
    spec: TaskSpec,
    splits: Mapping[str, Records],
    progress: Progress = silent,
) -> dict[str, Stored]:
    """Reads every record once. Raises DataError for one that is no image or has no label."""
    return {name: _read_split(spec, name, split, progress) for name, split in splits.items()}


def check_counts(request: DataRequest, sizes: dict[str, int], splits: Mapping[str, Records]) -> None:
    """Raises DataError for a split with another number of records."""
    for name, split in splits.items():
        expect_count(request, f"records in {name}", len(split), sizes[name])


def _read_split(spec: TaskSpec, name: str, split: Records, progress: Progress) -> Stored:
    numbers, digests = np.zeros((4, len(split))), []
    for index, (values, label, _) in enumerate(split.examples()):
        where = f"{spec.name}: {name} record {index}"
        check_pixels(where, values, spec)
        if label not in (0, 1):
            raise DataError(f"{where} has label {label}, expected 0 or 1")
        ink = int(values.sum(dtype=np.int64))
        numbers[:, index] = label, ink, ink / max(np.count_nonzero(values), 1), values.max()
        digests.append(_digest(values))
        if index % REPORT_EVERY == 0 or index == len(split) - 1:
            progress(f"check {name}", index + 1, len(split))
    labels, ink, brightness, brightest = numbers
    return Stored(labels.astype(np.int64), digests, ink, brightness, brightest)


def _digest(image: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(image).data, digest_size=16).digest()


def statistics(stored: Mapping[str, Stored]) -> dict[str, float]:
    """Counts, share of label 1, images that are there more than once, accuracies of `guesses` on the test split."""
    labels = np.concatenate([split.labels for split in stored.values()])
    digests = [digest for split in stored.values() for digest in split.digests]
    found = {f"{name}_records": float(len(split.labels)) for name, split in stored.items()}
    found |= {"label_1_share": float(labels.mean()), "duplicates": float(len(digests) - len(set(digests)))}
    return found | {f"{guess}_test_accuracy": share for guess, share in guesses(stored)["test"].items()}


def check_generated(request: DataRequest, stored: Mapping[str, Stored], found: dict[str, float]) -> None:
    """Asserts what the generator promises of all images. Raises DataError."""
    for name, split in stored.items():
        if (split.brightest < 255).any():
            index = int((split.brightest < 255).argmax())
            raise DataError(
                f"{request.task}: {name} record {index} has the maximum {split.brightest[index]:.0f}, expected 255"
            )
    first: dict[bytes, str] = {}
    for name, split in stored.items():
        for index, digest in enumerate(split.digests):
            here = f"{name} record {index}"
            if (other := first.setdefault(digest, here)) != here:
                raise DataError(f"{request.task}: {here} equals {other}: all images must be distinct")
    band = LABEL_BAND * math.sqrt(200_000 / sum(len(split.labels) for split in stored.values()))
    if not abs(found["label_1_share"] - 0.5) <= band:
        raise DataError(f"{request.task}: share of label 1 is {found['label_1_share']:.4f}, expected 0.5 ± {band:.2g}")


# Guesses.


def best_threshold(values: np.ndarray, labels: np.ndarray) -> tuple[float, int]:
    """(threshold, label above it) of the guess that has most of the labels right; below it is the other label."""
    order = np.argsort(values, kind="stable")
    values, labels = values[order], labels[order]
    below = np.concatenate([[0], np.cumsum(2 * labels - 1)])  # label 1 minus label 0 below each cut
    right = below[-1] - 2 * below  # of "1 above": twice the right ones, less a constant
    cuts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1], [True]]))
    cut = cuts[np.abs(right[cuts]).argmax()]
    threshold = -np.inf if cut == 0 else values[cut - 1]
    return float(threshold), int(right[cut] >= 0)


def threshold_accuracy(learned_on: tuple[np.ndarray, np.ndarray], scored_on: tuple[np.ndarray, np.ndarray]) -> float:
    """Accuracy of the best threshold. Both are values and labels."""
    threshold, above = best_threshold(*learned_on)
    values, labels = scored_on
    return float(np.mean(np.where(values > threshold, above, 1 - above) == labels))


def guesses(stored: Mapping[str, Stored]) -> dict[str, dict[str, float]]:
    """Accuracies on val and test of what was learned on train: majority, ink, brightness."""
    train, found = stored["train"], {}
    for name in ("val", "test"):
        split = stored[name]
        found[name] = {"majority": float(np.mean(split.labels == np.bincount(train.labels, minlength=2).argmax()))}
        for guess in GUESSES:
            learned_on, scored_on = (getattr(train, guess), train.labels), (getattr(split, guess), split.labels)
            found[name][guess] = threshold_accuracy(learned_on, scored_on)
    return found


# Drawn again.


class Sample(NamedTuple):
    """What is found out about images. placed: number of short snakes. distances: between the discs. seen: whether
    the discs are where the paddles say."""

    digests: list[bytes]
    labels: np.ndarray
    placed: np.ndarray
    distances: np.ndarray
    seen: np.ndarray


def sample(task: str, law: str, seed: int, indices: np.ndarray) -> Sample:
    """Draws images again, with what they were drawn from."""
    from data.pathfinder_law import draw_with_latents  # to import the compiler takes half a second

    images, latents = draw_with_latents(task, law, seed, indices)
    every = np.arange(len(images))
    ends = latents.snakes[:, :2, [0, PADDLES - 1], :2]  # (n, snake, first or last, y and x)
    first, last = ends[every, latents.marked[:, 0], 0], ends[every, latents.marked[:, 1], 1]
    seen = np.minimum(*(images[every, end[:, 0], end[:, 1]] for end in (first, last))) >= DISC
    labels = (latents.marked[:, 0] == latents.marked[:, 1]).astype(np.int64)
    distances = np.hypot(*(first - last).T)
    return Sample([_digest(image) for image in images], labels, latents.placed, distances, seen)


def check_sample(
    request: DataRequest,
    law: str,
    seed: int,
    stored: Mapping[str, Stored],
    indices: Mapping[str, np.ndarray],
    progress: Progress,
) -> dict[str, float]:
    """Asserts that an even sample of the records is what the key says. Returns the mean number of short snakes and the
    accuracy of the best threshold on the distance between the discs. Raises DataError."""
    places = {
        name: np.unique(np.linspace(0, len(split.labels) - 1, min(len(split.labels), SAMPLE)).astype(np.int64))
        for name, split in stored.items()
    }
    wanted = [(name, place) for name in stored for place in places[name]]
    keys = np.concatenate([indices[name][places[name]] for name in stored])
    parts: list[Sample] = []  # in this process: others would compile the law anew, for seconds of drawing
    for start in range(0, len(keys), SAMPLE_JOB):
        parts.append(sample(request.task, law, seed, keys[start : start + SAMPLE_JOB]))
        progress("draw a sample again", min(start + SAMPLE_JOB, len(keys)), len(keys))
    digests = [digest for part in parts for digest in part.digests]
    labels, placed, distances, seen = (np.concatenate([part[i] for part in parts]) for i in range(1, 5))
    for number, (name, place) in enumerate(wanted):
        where = f"{request.task}: {name} record {place}"
        if digests[number] != stored[name].digests[place]:
            raise DataError(f"{where} is not image {keys[number]} of law {law}, seed {seed}")
        if labels[number] != stored[name].labels[place]:
            raise DataError(f"{where} has a label that does not say whether its discs lie on one snake")
        if not seen[number]:
            raise DataError(f"{where} has no disc at the end of a snake")
    mean = _check_distractors(request.task, law, placed)
    train = np.array([name == "train" for name, _ in wanted])
    distance = threshold_accuracy((distances[train], labels[train]), (distances[~train], labels[~train]))
    return {"sample": float(len(keys)), "distractors_mean": mean, "marker_distance_accuracy": distance}


def _check_distractors(task: str, law: str, placed: np.ndarray) -> float:
    low, high = DISTRACTORS.get((task, law), (0, SETTINGS[task].distractors))
    mean, error = float(placed.mean()), STANDARD_ERRORS * DISTRACTORS_STD / math.sqrt(len(placed))
    if not low - error <= mean <= high + error:
        raise DataError(
            f"{task}: {mean:.3f} short snakes in an image on average, expected {low} to {high} (± {error:.2g})"
        )
    return mean
