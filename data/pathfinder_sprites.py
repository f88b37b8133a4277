"""What the Pathfinder generator is told: settings of the difficulties, the two laws, and small pictures made once.

A sprite is a paddle drawn from its start in one direction: its line, and its footprint, which is the line made thicker
by the margin, to keep other paddles away. Both are drawn `ANTIALIAS` times larger with Pillow and brought down by its
Lanczos filter. Directions are finite in number: the whole degrees of first paddles, and the pixels of a circle for all
others. Coordinates are (y, x); an angle has the displacement (sin, cos).
"""

import functools
import math
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

ANTIALIAS = 2
PADDLES = 14  # of a target snake
DISTRACTOR_PADDLES = 4
DEGREES = 360  # sprite number k < DEGREES: direction k - 180 degrees; the pixels of the circle follow
FULL = 255
HEAD, PIVOT, ADVANCE = range(3)
"""Displacements (y, x) of a sprite: of a first paddle, from its start to its end, and from there back to the centre of
its circle; of every paddle, from the centre of its circle to that of the next."""
BLOCKING = 459 - FULL  # of a footprint: occupancy and footprint may not reach 459, which is 1.8 on a scale of 1


class Setting(NamedTuple):
    """One difficulty, as Long Range Arena documents it. Pixels, but for continuity and brightness."""

    window: int
    padding: int
    paddle_length: int
    thickness: float
    margins: tuple[int, ...]
    marker_radius: float
    seed_distance: int
    continuity: float
    distractors: int
    target_brightness: float
    distractor_brightness: float


SETTINGS = {
    "pathfinder": Setting(32, 1, 2, 0.5, (1,), 1.5, 7, 1.0, 5, 1.5, 2.0),
    "pathx": Setting(128, 1, 5, 1.5, (2, 3), 3, 20, 1.8, 8, 0.9, 0.9),
    "path256": Setting(256, 22, 5, 2, (3,), 5, 27, 1.8, 7, 1.0, 1.0),
}

LAWS = ("upstream", "words")
"""Upstream's kernel for finding free places lies off-centre, so that a first paddle finds none in most directions of
`pathfinder` and some of `pathx`. "upstream" keeps that, "words" does what its documentation says: every direction."""


def seed_directions(setting: Setting, law: str, margin: int) -> np.ndarray:
    """(360,) bool: whether a first paddle in the direction of k - 180 degrees can find a place."""
    degrees = np.arange(DEGREES) - DEGREES // 2
    if law == "upstream" and setting.window == 32:
        return (degrees >= -150) & (degrees <= -121)
    if law == "upstream" and setting.window == 128 and margin == 2:
        return (degrees < -59) | (degrees > -54)
    return np.ones(DEGREES, bool)


class Scene(NamedTuple):
    """Tables of one setting, law and margin, for compiled code.

    Pictures are flat, with a border of `border` pixels, so that no sprite leaves them: (window + 2 border)^2, and a
    sprite is a list of flat offsets from its start.
    """

    window: int
    border: int
    stride: int
    seed_distance: int
    distractors: int
    target_brightness: float
    distractor_brightness: float
    inside: np.ndarray  # 255 in the window, 0 beyond
    frame: np.ndarray  # occupancy of an empty image
    middles: np.ndarray  # (360, 4) places free for the first paddle of all: from y, below y, from x, below x
    seeds: np.ndarray  # (360,) bool, directions of first paddles
    ring: np.ndarray  # (R, 2) pixels on the circle on which the tip of the next paddle lies, from its centre
    disc: np.ndarray  # offsets of the disc whose radius is the margin
    moves: np.ndarray  # (K, 3, 2) see HEAD, PIVOT, ADVANCE
    bend: np.ndarray  # (K, R) weight of a tip on free ground, given the paddle before
    lines: np.ndarray  # (K, 2) where the pixels of a line start and end
    line_pixels: np.ndarray  # (n, 2) offset and value
    footprints: np.ndarray  # (K, 4) where those of a footprint start, cease to be 255, cease to block, end
    footprint_pixels: np.ndarray
    marker_pixels: np.ndarray


@functools.cache
def scenes(difficulty: str, law: str) -> tuple[Scene, ...]:
    """One scene for each margin, of which every image draws one."""
    return tuple(_scene(SETTINGS[difficulty], law, margin) for margin in SETTINGS[difficulty].margins)


def _scene(setting: Setting, law: str, margin: int) -> Scene:
    reach = setting.paddle_length + math.ceil(setting.thickness) + margin
    border = max(reach, math.ceil(setting.marker_radius) + 1)
    stride = setting.window + 2 * border
    radius = setting.paddle_length + margin
    ring = ring_pixels(radius)
    seed_angles = np.radians(np.arange(DEGREES) - DEGREES // 2)
    ring_angles = np.arctan2(ring[:, 0], ring[:, 1])
    angles = np.concatenate([seed_angles, ring_angles])
    drawn = np.concatenate([seed_angles, ring_angles + np.pi])  # later paddles are drawn from the tip backwards
    canvases = np.stack([line_canvas(setting, margin, angle) for angle in drawn])
    lines, line_pixels = _pixel_lists(_shrink(canvases), stride, (1,))
    _, marker_pixels = _pixel_lists(_shrink(_marker_canvas(setting.marker_radius)[None]), stride, (1,))
    grown = _shrink(dilate(canvases, margin * ANTIALIAS))
    footprints, footprint_pixels = _pixel_lists(grown, stride, (FULL, BLOCKING, 1))
    return Scene(
        window=setting.window,
        border=border,
        stride=stride,
        seed_distance=setting.seed_distance,
        distractors=setting.distractors,
        target_brightness=setting.target_brightness,
        distractor_brightness=setting.distractor_brightness,
        inside=_flat_frame(setting.window, border, setting.window),
        frame=_flat_frame(setting.window, border, setting.padding),
        middles=_middles(grown[:DEGREES], setting),
        seeds=seed_directions(setting, law, margin),
        ring=ring,
        disc=(disc_pixels(margin) @ [stride, 1]).astype(np.int64),
        moves=np.stack([displacement(step, angles) for step in (setting.paddle_length, -radius, radius + margin)], 1),
        bend=_bend(setting.continuity, angles, ring_angles),
        lines=lines,
        line_pixels=line_pixels,
        footprints=footprints,
        footprint_pixels=footprint_pixels,
        marker_pixels=marker_pixels,
    )


def _flat_frame(window: int, border: int, width: int) -> np.ndarray:
    """A flat picture with a bright frame of that width inside of the window."""
    picture = np.full((window, window), FULL, np.uint8)
    picture[width : window - width, width : window - width] = 0
    return np.pad(picture, border).ravel()


def displacement(distance: float, angles: np.ndarray) -> np.ndarray:
    """(..., 2) int64: (y, x) of a step of so many pixels, rounded up but for what is less than a billionth."""
    exact = distance * np.stack([np.sin(angles), np.cos(angles)], -1)
    return np.ceil(exact - 1e-9).astype(np.int64)


def ring_pixels(radius: int) -> np.ndarray:
    """(R, 2) the distinct pixels under points 1 / radius rad apart on a circle about (0, 0), truncated."""
    angles = np.arange(0, 2 * np.pi, 1 / radius)
    points = radius * np.stack([np.sin(angles), np.cos(angles)], -1)
    return np.unique(np.floor(points + 1e-9).astype(np.int64), axis=0)


def disc_pixels(radius: float) -> np.ndarray:
    """(n, 2) pixels at most `radius` away from (0, 0)."""
    span = np.arange(-math.floor(radius), math.floor(radius) + 1)
    pixels = np.stack(np.meshgrid(span, span, indexing="ij"), -1).reshape(-1, 2)
    return pixels[(pixels**2).sum(1) <= radius**2]


def _middles(footprints: np.ndarray, setting: Setting) -> np.ndarray:
    """(n, 4) where a first paddle keeps off a frame of twice the seed distance: what that leaves is a rectangle, and so
    are the places whose footprint, where it is 255, stays in it."""
    low, high = 2 * setting.seed_distance, setting.window - 2 * setting.seed_distance
    middle = footprints.shape[1] // 2
    boxes = []
    for footprint in footprints:
        y, x = np.nonzero(footprint == FULL)
        boxes.append([low + middle - y.min(), high + middle - y.max(), low + middle - x.min(), high + middle - x.max()])
    return np.array(boxes)


def _bend(continuity: float, last: np.ndarray, ring: np.ndarray) -> np.ndarray:
    """(K, R) max(cos(min(continuity |angle|, pi / 2)), 0)^2 of the angle between directions."""
    angle = np.abs((ring[None] - last[:, None] + np.pi) % (2 * np.pi) - np.pi)
    bend = np.maximum(np.cos(np.minimum(continuity * angle, np.pi / 2)), 0) ** 2
    return np.where(continuity * angle >= np.pi / 2, 0, bend)  # cos(pi / 2) is not quite 0 in floating point


# Pictures.


def line_canvas(setting: Setting, margin: int, angle: float) -> np.ndarray:
    """(2 h a + 1, 2 h a + 1) uint8, a = ANTIALIAS: a paddle from the middle on, on the larger canvas."""
    middle = (setting.paddle_length + math.ceil(setting.thickness) + margin) * ANTIALIAS
    y, x = displacement(setting.paddle_length * ANTIALIAS, np.array(angle)) + middle
    canvas = Image.new("L", (2 * middle + 1, 2 * middle + 1))
    line = [(middle, middle), (int(x), int(y))]
    ImageDraw.Draw(canvas).line(line, fill=FULL, width=round(setting.thickness * ANTIALIAS))
    return np.array(canvas)


def _marker_canvas(radius: float) -> np.ndarray:
    middle = (math.ceil(radius) + 1) * ANTIALIAS
    canvas = np.zeros((2 * middle + 1, 2 * middle + 1), np.uint8)
    canvas[tuple((disc_pixels(radius * ANTIALIAS) + middle).T)] = FULL
    return canvas


def dilate(canvases: np.ndarray, radius: int) -> np.ndarray:
    """The largest value within `radius` of each pixel; beyond the edges is nothing."""
    size = canvases.shape[1]
    padded = np.pad(canvases, ((0, 0), (radius, radius), (radius, radius)))
    grown = np.zeros_like(canvases)
    for y, x in disc_pixels(radius) + radius:
        np.maximum(grown, padded[:, y : y + size, x : x + size], out=grown)
    return grown


def _shrink(canvases: np.ndarray) -> np.ndarray:
    """From (n, 2 h a + 1, 2 h a + 1) to (n, 2 h + 1, 2 h + 1), by Pillow's Lanczos filter on bytes."""
    size = (canvases.shape[1] - 1) // ANTIALIAS + 1
    shrink = functools.partial(Image.Image.resize, size=(size, size), resample=Image.Resampling.LANCZOS)
    return np.stack([np.array(shrink(Image.fromarray(canvas))) for canvas in canvases])


def _pixel_lists(pictures: np.ndarray, stride: int, levels: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Pixels of all pictures, of each the brightest first, as flat offsets from the middle, with their values.

    Returns where the pixels of picture k start and where those of at least each level end; and the pixels.
    """
    middle, places, pixels, start = pictures.shape[1] // 2, [], [], 0
    for picture in pictures.astype(np.int64):
        y, x = np.nonzero(picture)
        order = np.argsort(-picture[y, x], kind="stable")
        pixels.append(np.stack([(y - middle) * stride + x - middle, picture[y, x]], 1)[order])
        places.append([start, *(start + (picture >= level).sum() for level in levels)])
        start += len(order)
    return np.array(places, np.int64), np.concatenate(pixels)
