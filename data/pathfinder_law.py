"""Pathfinder: two long snakes of dashes and some short ones, two discs, and the question whether the discs lie on one
snake (Linsley et al., arXiv:1805.08315; Long Range Arena, Tay et al., arXiv:2011.04006, takes 14 paddles a snake).

An image is a pure function of (difficulty, law, seed, index). Its draws are those of the counter-based generator
Philox4x32-10 (Salmon et al., SC 2011) with the key (seed, index), so any image can be made alone, anywhere.

The law. Places taken are an `occupancy` of bytes: a frame first, then footprints of paddles; beyond the window all is
free. Both target snakes start in the middle, `seed_distance` apart, and take turns in growing by a paddle. The tip of a
new paddle lies on a circle about a point ahead of the last one, drawn with a weight that falls with the bend and is 0
on taken ground. A footprint is laid down when the next paddle stands, so a paddle does not collide with the one before
it. Whatever fails restarts the image. Short snakes grow the same way, anywhere; one that keeps failing is left out.

Only images that succeed are drawn. This module compiles at its first use.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from data.pathfinder_sprites import (
    ADVANCE,
    DEGREES,
    DISTRACTOR_PADDLES,
    FULL,
    HEAD,
    PADDLES,
    PIVOT,
    SETTINGS,
    scenes,
)

SEED_TRIES, PADDLE_TRIES, SNAKE_TRIES = 3, 3, 5
FREE = 76  # a first paddle stands free on occupancy up to 0.3
COLLISION = 459  # occupancy and footprint may together stay below 1.8
LEAST_WEIGHT = 1e-4
LEAST_FREE = 0.01  # of the window, to look for the place of a short snake
FIELDS = 5
Y, X, SPRITE, PIVOT_Y, PIVOT_X = range(FIELDS)
SUCCESS, FAILURE, NO_ROOM = range(3)


class Latents(NamedTuple):
    """What images were drawn from, n of them.

    snakes: (n, 2 + distractors, 14, 5) of every paddle: the y and x of its outer end, the number of its sprite, the y
        and x of the centre of the circle on which that end lies. Row 0 and 1 are the targets, zeros where no paddle is.
    placed: (n,) short snakes.
    margins: (n,) number of the scene that was drawn.
    marked: (n, 2) target snake with the disc at its first paddle, and the one with the disc at its last.
    """

    snakes: np.ndarray
    placed: np.ndarray
    margins: np.ndarray
    marked: np.ndarray

    @property
    def labels(self) -> np.ndarray:
        """(n,) uint8: 1 if both discs lie on one snake."""
        return (self.marked[:, 0] == self.marked[:, 1]).astype(np.uint8)

    @property
    def markers(self) -> np.ndarray:
        """(n, 2, 2) y and x of the two discs."""
        every = np.arange(len(self.marked))
        first, last = self.snakes[every, self.marked[:, 0], 0], self.snakes[every, self.marked[:, 1], PADDLES - 1]
        return np.stack([first, last], 1)[..., : X + 1]


def draw_images(difficulty: str, law: str, seed: int, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, H, W) uint8 and labels (n,) uint8 of these indices, each below 2^32."""
    images, latents = draw_with_latents(difficulty, law, seed, indices)
    return images, latents.labels


def draw_with_latents(difficulty: str, law: str, seed: int, indices: np.ndarray) -> tuple[np.ndarray, Latents]:
    """The same images and what they were drawn from."""
    tables, n = scenes(difficulty, law), len(indices)
    size = SETTINGS[difficulty].window
    images = np.zeros((n, size, size), np.uint8)
    snakes = np.zeros((n, 2 + SETTINGS[difficulty].distractors, PADDLES, FIELDS), np.int32)
    latents = Latents(snakes, np.zeros(n, np.int32), np.zeros(n, np.int32), np.zeros((n, 2), np.int32))
    _draw_all(tables, np.uint64(seed), np.asarray(indices, np.uint64), images, *latents)
    return images, latents


# The stream.

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_ROUNDS, _WORDS = 10, 4
_KEY, _COUNTER, _USED, _BLOCK = 0, 2, 3, 4  # places in the array that is a stream


@njit(cache=True)
def open_stream(seed, index):
    """A stream of 32-bit words: key (2), blocks made, words used of the last one, its words (4)."""
    stream = np.zeros(_BLOCK + _WORDS, np.uint64)
    stream[_KEY] = seed
    stream[_KEY + 1] = index
    stream[_USED] = _WORDS
    return stream


@njit(cache=True)
def philox(counter, key):
    """Changes the counter (4,) uint64 of 32-bit words into the random block of that number, under the key (2,)."""
    first_key, second_key = key[0], key[1]
    for _ in range(_ROUNDS):
        first, second = _MULTIPLIERS[0] * counter[0], _MULTIPLIERS[1] * counter[2]
        counter[0] = (second >> _HALF) ^ counter[1] ^ first_key
        counter[1] = second & _LOW
        counter[2] = (first >> _HALF) ^ counter[3] ^ second_key
        counter[3] = first & _LOW
        first_key = (first_key + _WEYL[0]) & _LOW
        second_key = (second_key + _WEYL[1]) & _LOW


@njit(cache=True)
def _word(stream):
    if stream[_USED] == _WORDS:
        block = stream[_BLOCK:]
        block[0] = stream[_COUNTER]
        for i in range(1, _WORDS):
            block[i] = 0
        philox(block, stream[_KEY:_COUNTER])
        stream[_COUNTER] += np.uint64(1)
        stream[_USED] = 0
    word = stream[_BLOCK + np.int64(stream[_USED])]
    stream[_USED] += np.uint64(1)
    return word


@njit(cache=True)
def _below(stream, count):
    """A whole number in 0..count-1."""
    return np.int64((_word(stream) * np.uint64(count)) >> _HALF)


# Places. Functions in the hot loops take arrays and no scene: to hand a scene on costs more than they do.


@njit(cache=True)
def _copy(source, target):
    for i in range(len(source)):  # an assignment of slices takes seconds to compile
        target[i] = source[i]


@njit(cache=True)
def _in_window(window, y, x):
    return 0 <= y < window and 0 <= x < window


@njit(cache=True)
def _is_free(occupancy, place, full):
    """Whether the pixels of a footprint that are 255 lie on free ground."""
    for i in range(len(full)):  # noqa: SIM110  compiled: a generator would cost an allocation
        if occupancy[place + full[i, 0]] > FREE:
            return False
    return True


@njit(cache=True)
def _collides(occupancy, place, blocking):
    for i in range(len(blocking)):  # noqa: SIM110
        if occupancy[place + blocking[i, 0]] + blocking[i, 1] >= COLLISION:
            return True
    return False


@njit(cache=True)
def _occupy(scene, occupancy, paddle):
    """Lays the footprint of a paddle down, in the window only."""
    place = (paddle[Y] + scene.border) * scene.stride + paddle[X] + scene.border
    inside, pixels = scene.inside, scene.footprint_pixels
    for i in range(scene.footprints[paddle[SPRITE], 0], scene.footprints[paddle[SPRITE], 3]):
        at = place + pixels[i, 0]
        occupancy[at] = max(np.int64(occupancy[at]), pixels[i, 1] & inside[at])


# Snakes.


@njit(cache=True)
def _has_room(window, border, occupancy, full):
    """Whether a first paddle finds free places enough."""
    missing = np.int64(np.ceil(LEAST_FREE * window**2))
    for y in range(window):
        row = (y + border) * (window + 2 * border) + border
        for place in range(row, row + window):
            missing -= _is_free(occupancy, place, full)
        if missing <= 0:
            return True
    return False


@njit(cache=True)
def _seed_paddle(scene, y, x, sprite, paddle):
    """Puts a first paddle down; false if its end or the centre of its circle lies outside of the window."""
    moves = scene.moves[sprite]
    head_y, head_x = y + moves[HEAD, 0], x + moves[HEAD, 1]
    paddle[Y], paddle[X], paddle[SPRITE] = y, x, sprite
    paddle[PIVOT_Y], paddle[PIVOT_X] = head_y + moves[PIVOT, 0], head_x + moves[PIVOT, 1]
    return _in_window(scene.window, head_y, head_x) and _in_window(scene.window, paddle[PIVOT_Y], paddle[PIVOT_X])


@njit(cache=True)
def _seed_in_the_middle(stream, scene, paddle):
    """The first paddle of all, off a frame of twice the seed distance. A failure would restart the image, of which
    there is nothing yet: it is drawn until it stands."""
    while True:
        sprite = _below(stream, DEGREES)
        from_y, below_y, from_x, below_x = scene.middles[sprite]
        if scene.seeds[sprite] and from_y < below_y and from_x < below_x:
            y, x = from_y + _below(stream, below_y - from_y), from_x + _below(stream, below_x - from_x)
            if _seed_paddle(scene, y, x, sprite, paddle):
                return


@njit(cache=True)
def _seed_anywhere(stream, scene, occupancy, paddle):
    """The first paddle of a short snake: any direction, and of the places that are free for it any."""
    window, border, stride = scene.window, scene.border, scene.stride
    for _ in range(SEED_TRIES):
        sprite = _below(stream, DEGREES)
        if not scene.seeds[sprite]:
            return FAILURE
        full = scene.footprint_pixels[scene.footprints[sprite, 0] : scene.footprints[sprite, 1]]
        if not _has_room(window, border, occupancy, full):
            return NO_ROOM
        while True:
            y, x = _below(stream, window), _below(stream, window)
            if _is_free(occupancy, (y + border) * stride + x + border, full):
                break
        if _seed_paddle(scene, y, x, sprite, paddle):
            return SUCCESS
    return FAILURE


@njit(cache=True)
def _seed_beside(stream, scene, first, paddle):
    """The first paddle of the other target snake, at the seed distance from that of the first."""
    for _ in range(SEED_TRIES):
        angle = np.radians(_below(stream, DEGREES) - DEGREES // 2)
        y = first[Y] + np.int64(np.ceil(scene.seed_distance * np.sin(angle) - 1e-9))
        x = first[X] + np.int64(np.ceil(scene.seed_distance * np.cos(angle) - 1e-9))
        sprite = _below(stream, DEGREES)
        if _in_window(scene.window, y, x) and _seed_paddle(scene, y, x, sprite, paddle):
            return True
    return False


@njit(cache=True)
def _weigh(scene, occupancy, pivot_y, pivot_x, bend, weights):
    """Running sums of the weights of the pixels on the circle: how little the snake bends, times how free they are."""
    window, ring, disc = scene.window, scene.ring, scene.disc
    total = 0.0
    for j in range(len(ring)):
        y, x = pivot_y + ring[j, 0], pivot_x + ring[j, 1]
        if bend[j] > 0 and _in_window(window, y, x):
            place = (y + scene.border) * scene.stride + x + scene.border
            taken = 0
            for i in range(len(disc)):
                taken = max(taken, np.int64(occupancy[place + disc[i]]))
            total += bend[j] * (FULL - taken) / FULL
        weights[j] = total
    return total


@njit(cache=True)
def _extend(stream, scene, occupancy, weights, snake, k):
    """Adds paddle k and lays down the footprint of the one before it; false if there is no way on."""
    last, paddle = snake[k - 1], snake[k]
    pivot_y = last[PIVOT_Y] + scene.moves[last[SPRITE], ADVANCE, 0]
    pivot_x = last[PIVOT_X] + scene.moves[last[SPRITE], ADVANCE, 1]
    total = _weigh(scene, occupancy, pivot_y, pivot_x, scene.bend[last[SPRITE]], weights)
    if total < LEAST_WEIGHT:
        return False
    for _ in range(PADDLE_TRIES):
        drawn = total * (np.float64(_word(stream)) / 2.0**32)
        j = 0
        while weights[j] <= drawn:
            j += 1
        y, x, sprite = pivot_y + scene.ring[j, 0], pivot_x + scene.ring[j, 1], DEGREES + j
        place = (y + scene.border) * scene.stride + x + scene.border
        blocking = scene.footprint_pixels[scene.footprints[sprite, 0] : scene.footprints[sprite, 2]]
        if not _collides(occupancy, place, blocking):
            paddle[Y], paddle[X], paddle[SPRITE] = y, x, sprite
            paddle[PIVOT_Y], paddle[PIVOT_X] = pivot_y, pivot_x
            _occupy(scene, occupancy, last)
            return True
    return False


@njit(cache=True)
def _grow_targets(stream, scene, occupancy, weights, snakes):
    """Both target snakes, by turns; false if anything fails. Of the last footprints only that of the second is laid
    down, as upstream does."""
    _seed_in_the_middle(stream, scene, snakes[0, 0])
    if not _seed_beside(stream, scene, snakes[0, 0], snakes[1, 0]):
        return False
    for k in range(1, PADDLES):
        for target in range(2):
            if not _extend(stream, scene, occupancy, weights, snakes[target], k):
                return False
    _occupy(scene, occupancy, snakes[1, PADDLES - 1])
    return True


@njit(cache=True)
def _grow_distractor(stream, scene, occupancy, weights, snake):
    """A short snake; false if it found no place, and then nothing is changed. Its last footprint is not laid down."""
    before = occupancy.copy()
    for _ in range(SNAKE_TRIES):
        seeded = _seed_anywhere(stream, scene, occupancy, snake[0])
        if seeded == NO_ROOM:
            break
        grown = seeded == SUCCESS
        for k in range(1, DISTRACTOR_PADDLES):
            grown = grown and _extend(stream, scene, occupancy, weights, snake, k)
        if grown:
            return True
        _copy(before, occupancy)
    for paddle in range(DISTRACTOR_PADDLES):
        for field in range(FIELDS):
            snake[paddle, field] = 0
    return False


# Images.


@njit(cache=True)
def _stamp(scene, picture, paddle, pixels, brightness):
    """The brighter of the picture and a sprite at the outer end of a paddle."""
    place = (paddle[Y] + scene.border) * scene.stride + paddle[X] + scene.border
    for i in range(len(pixels)):
        at = place + pixels[i, 0]
        picture[at] = max(picture[at], brightness * pixels[i, 1])


@njit(cache=True)
def _stamp_lines(scene, picture, snake, paddles, brightness):
    for k in range(paddles):
        start, end = scene.lines[snake[k, SPRITE]]
        _stamp(scene, picture, snake[k], scene.line_pixels[start:end], brightness)


@njit(cache=True)
def _draw_one(stream, scene, image, snakes, marked):
    """Fills one image and its latents; returns the number of short snakes."""
    weights = np.empty(len(scene.ring))
    occupancy = scene.frame.copy()
    while not _grow_targets(stream, scene, occupancy, weights, snakes):
        _copy(scene.frame, occupancy)
    placed = 0
    for _ in range(scene.distractors):
        placed += _grow_distractor(stream, scene, occupancy, weights, snakes[2 + placed])
    same, first = _below(stream, 2), _below(stream, 2)
    marked[0], marked[1] = first, first if same else 1 - first

    picture = np.zeros(len(occupancy))
    for k in range(2 + placed):
        paddles = PADDLES if k < 2 else DISTRACTOR_PADDLES
        brightness = scene.target_brightness if k < 2 else scene.distractor_brightness
        _stamp_lines(scene, picture, snakes[k], paddles, brightness)
    _stamp(scene, picture, snakes[marked[0], 0], scene.marker_pixels, 1.0)
    _stamp(scene, picture, snakes[marked[1], PADDLES - 1], scene.marker_pixels, 1.0)
    brightest = 0.0
    for value in picture:
        brightest = max(brightest, value)
    for y in range(scene.window):
        row = (y + scene.border) * scene.stride + scene.border
        for x in range(scene.window):
            image[y, x] = np.uint8(FULL * picture[row + x] / brightest + 0.5)
    return placed


@njit(cache=True)
def _draw_all(tables, seed, indices, images, snakes, placed, margins, marked):
    """Fills images and latents."""
    for n in range(len(indices)):
        stream = open_stream(seed, indices[n])
        margins[n] = _below(stream, len(tables))
        placed[n] = _draw_one(stream, tables[margins[n]], images[n], snakes[n], marked[n])
