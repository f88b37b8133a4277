"""The Pathfinder law: the stream, the sprites, and every image against what it was drawn from."""

import math

import numpy as np
import pytest

from data import pathfinder_law as law
from data import pathfinder_sprites as sprites
from data.pathfinder_sprites import DEGREES, DISTRACTOR_PADDLES, PADDLES, SETTINGS, scenes

IMAGES = {"pathfinder": 40, "pathx": 4, "path256": 6}
CASES = [(task, name) for task in SETTINGS for name in sprites.LAWS if (task, name) != ("path256", "words")]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def drawn(request):
    """(task, law, images, latents)"""
    task, name = request.param
    return task, name, *law.draw_with_latents(task, name, 5, np.arange(IMAGES[task]))


# The stream.


@pytest.mark.parametrize(
    ("counter", "key", "block"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_the_published_vectors(counter, key, block):
    found = np.array(counter, np.uint64)
    law.philox(found, np.array(key, np.uint64))
    assert found.tolist() == block


def test_an_image_depends_on_seed_and_index_alone():
    images, labels = law.draw_images("pathfinder", "words", 3, np.array([7, 2, 4_000_000_000]))
    again, same = law.draw_images("pathfinder", "words", 3, np.array([4_000_000_000, 7]))
    np.testing.assert_array_equal(again, images[[2, 0]])
    np.testing.assert_array_equal(same, labels[[2, 0]])
    assert len({image.tobytes() for image in images}) == 3
    other, _ = law.draw_images("pathfinder", "words", 4, np.array([7, 2]))
    assert (other != images[:2]).any(axis=(1, 2)).all()


# Sprites.


def test_displacements_are_rounded_up():
    quarter = np.radians([0, 90, 180, -90, 30])
    assert sprites.displacement(4, quarter).tolist() == [[0, 4], [4, 0], [0, -4], [-4, 0], [2, 4]]


def test_the_circle_of_tips_is_truncated():
    for radius in (3, 7, 8):
        ring = sprites.ring_pixels(radius)
        assert len({tuple(pixel) for pixel in ring.tolist()}) == len(ring)
        assert len(ring) <= math.ceil(2 * math.pi * radius)
        lengths = np.hypot(*ring.T)
        assert radius - math.sqrt(2) < lengths.min()
        assert lengths.max() < radius + math.sqrt(2)
        assert [0, radius] in ring.tolist()


@pytest.mark.parametrize("task", SETTINGS)
def test_footprints_cover_their_lines(task):
    for scene in scenes(task, "words"):
        for sprite in range(len(scene.lines)):
            line = scene.line_pixels[slice(*scene.lines[sprite])]
            start, full, blocking, end = scene.footprints[sprite]
            footprint = dict(scene.footprint_pixels[start:end].tolist())
            strong = {offset: value for offset, value in line.tolist() if value >= 64}  # the others are ripples
            assert strong
            assert all(footprint.get(offset, 0) >= 0.9 * value for offset, value in strong.items())
            values = scene.footprint_pixels[start:end, 1]
            assert full > start
            assert (values[: full - start] == 255).all()
            assert (values >= 204).sum() == blocking - start


@pytest.mark.parametrize("task", SETTINGS)
def test_first_paddles_run_ahead_and_later_ones_from_their_tip_backwards(task):
    setting = SETTINGS[task]
    for scene, margin in zip(scenes(task, "words"), setting.margins, strict=True):
        ring = scene.ring / np.hypot(*scene.ring.T)[:, None]
        degrees = np.radians(np.arange(-180, 180))
        ahead = np.concatenate([np.stack([np.sin(degrees), np.cos(degrees)], 1), -ring])
        assert len(ring) == len(sprites.ring_pixels(setting.paddle_length + margin))
        for sprite, direction in enumerate(ahead):
            picture = line(scene, sprite)
            places = np.argwhere(picture) - scene.border
            middle = np.average(places, axis=0, weights=picture[picture > 0])
            assert np.hypot(*(middle - setting.paddle_length / 2 * direction)) < 1


def test_directions_of_first_paddles():
    degrees = np.arange(-180, 180)
    upstream = scenes("pathfinder", "upstream")[0].seeds
    assert degrees[upstream].tolist() == list(range(-150, -120))
    narrow, wide = (scene.seeds for scene in scenes("pathx", "upstream"))
    assert degrees[~narrow].tolist() == list(range(-59, -53))
    assert wide.all()
    assert all(scene.seeds.all() for task in SETTINGS for scene in scenes(task, "words"))


def test_brightness_is_snake_contrast_times_paddle_contrast_for_targets_only():
    contrasts = {"pathfinder": (2, 0.75), "pathx": (0.9, 1), "path256": (1, 1)}
    for task, (snake, paddle) in contrasts.items():
        setting = SETTINGS[task]
        assert (setting.target_brightness, setting.distractor_brightness) == (snake * paddle, snake)
        assert setting.distractors == (5, 8, 7)[list(contrasts).index(task)]


# Images.


def snakes_of(task, latents, n):
    """Paddles (y, x, sprite) of every snake of an image, the two targets first."""
    targets = [latents.snakes[n, k] for k in (0, 1)]
    short = [latents.snakes[n, 2 + k, :DISTRACTOR_PADDLES] for k in range(latents.placed[n])]
    return targets + short


def stamp(picture, sprite, y, x):
    """The larger of a picture and a sprite with its middle at (y, x), in place."""
    reach = sprite.shape[0] // 2
    padded = np.pad(picture, reach)
    window = padded[y : y + 2 * reach + 1, x : x + 2 * reach + 1]
    np.maximum(window, sprite, out=window)
    picture[:] = padded[reach : padded.shape[0] - reach, reach : padded.shape[1] - reach]


def unflatten(scene, pixels):
    """A sprite as a small picture, from its list of pixels."""
    reach = scene.border
    picture = np.zeros((2 * reach + 1, 2 * reach + 1))
    middle = reach * scene.stride + reach
    for offset, value in pixels.tolist():
        picture[divmod(offset + middle, scene.stride)] = value
    return picture


def footprint(scene, sprite):
    start, _, _, end = scene.footprints[sprite]
    return unflatten(scene, scene.footprint_pixels[start:end])


def line(scene, sprite):
    return unflatten(scene, scene.line_pixels[slice(*scene.lines[sprite])])


def test_label_1_means_that_both_discs_end_one_snake(drawn):
    task, _, images, latents = drawn
    assert images.dtype == np.uint8
    assert images.shape == (IMAGES[task], SETTINGS[task].window, SETTINGS[task].window)
    assert (images.max(axis=(1, 2)) == 255).all()
    assert len({image.tobytes() for image in images}) == len(images)
    assert set(latents.labels.tolist()) == {0, 1}
    for n, markers in enumerate(latents.markers.tolist()):
        ends = [{tuple(snake[k, :2].tolist()) for k in (0, PADDLES - 1)} for snake in latents.snakes[n, :2]]
        on_one = any(set(map(tuple, markers)) == end for end in ends)
        assert on_one == (latents.labels[n] == 1)
        assert all(any(tuple(marker) in end for end in ends) for marker in markers)
        assert all(images[n, y, x] >= 200 for y, x in markers)


def test_fourteen_paddles_each_ahead_of_the_last(drawn):
    """The geometry of growth, from angles computed anew."""
    task, name, _, latents = drawn
    setting = SETTINGS[task]
    for n, margin in enumerate(setting.margins[k] for k in latents.margins):
        radius = setting.paddle_length + margin
        for snake in snakes_of(task, latents, n):
            assert (snake[:, :2] >= 0).all()
            assert (snake[:, :2] < setting.window).all()
            angle = math.radians(snake[0, 2] - 180)
            head = snake[0, :2] + sprites.displacement(setting.paddle_length, np.array(angle))
            pivot = head + sprites.displacement(-radius, np.array(angle))
            np.testing.assert_array_equal(snake[0, 3:], pivot)
            for paddle in snake[1:]:
                pivot = pivot + sprites.displacement(radius + margin, np.array(angle))
                np.testing.assert_array_equal(paddle[3:], pivot)
                tip = paddle[:2] - pivot
                assert tip.tolist() in sprites.ring_pixels(radius).tolist()
                turned = math.atan2(*tip)
                bend = abs((turned - angle + math.pi) % (2 * math.pi) - math.pi)
                assert setting.continuity * bend < math.pi / 2
                assert paddle[2] >= DEGREES
                angle = turned
        degrees = latents.snakes[n, 0, 0, 2] - 180
        assert name == "words" or sprites.seed_directions(setting, name, margin)[degrees + 180]


def test_no_paddle_collides_within_the_law(drawn):
    """Replays the occupancy: a footprint is laid down one paddle late, targets by turns."""
    task, name, _, latents = drawn
    for n in range(min(len(latents.placed), 8)):
        scene = scenes(task, name)[latents.margins[n]]
        occupancy = np.full((scene.window, scene.window), 255.0)
        padding = SETTINGS[task].padding
        occupancy[padding:-padding, padding:-padding] = 0
        snakes = snakes_of(task, latents, n)
        turns = [[(snake, k) for k in range(1, PADDLES) for snake in snakes[:2]]]
        turns += [[(snake, k) for k in range(1, DISTRACTOR_PADDLES)] for snake in snakes[2:]]
        for number, turn in enumerate(turns):
            if number > 0:
                y, x, sprite = snakes[1 + number][0, :3]
                full = np.zeros_like(occupancy)
                stamp(full, footprint(scene, sprite), y, x)
                assert (occupancy[full == 255] <= 76).all(), "a first paddle stands free"
            for snake, k in turn:
                y, x, sprite = snake[k, :3]
                new = np.zeros_like(occupancy)
                stamp(new, footprint(scene, sprite), y, x)
                assert (occupancy + new).max() < 459
                assert occupancy[y, x] < 255, "a tip lies on free ground"
                y, x, sprite = snake[k - 1, :3]
                stamp(occupancy, footprint(scene, sprite), y, x)
            if number == 0:
                y, x, sprite = snakes[1][-1, :3]
                stamp(occupancy, footprint(scene, sprite), y, x)


def test_the_image_is_the_brightest_of_its_parts(drawn):
    task, name, images, latents = drawn
    setting = SETTINGS[task]
    for n, image in enumerate(images):
        scene = scenes(task, name)[latents.margins[n]]
        picture = np.zeros((scene.window, scene.window))
        for number, snake in enumerate(snakes_of(task, latents, n)):
            brightness = setting.target_brightness if number < 2 else setting.distractor_brightness
            for y, x, sprite in snake[:, :3]:
                stamp(picture, brightness * line(scene, sprite), y, x)
        for y, x in latents.markers[n]:
            stamp(picture, unflatten(scene, scene.marker_pixels), y, x)
        np.testing.assert_array_equal(image, np.floor(255 * picture / picture.max() + 0.5))


def test_targets_start_at_the_seed_distance_in_the_middle(drawn):
    task, _, _, latents = drawn
    setting = SETTINGS[task]
    first, second = latents.snakes[:, 0, 0, :2], latents.snakes[:, 1, 0, :2]
    assert (first >= 2 * setting.seed_distance).all()
    assert (first < setting.window - 2 * setting.seed_distance).all()
    distance = np.hypot(*(second - first).T)
    assert (np.abs(distance - setting.seed_distance) < math.sqrt(2)).all()


def test_shares_of_the_law():
    """32 x 32, 3,000 images: labels, short snakes, the place of the brightest pixel. Bands of five standard errors."""
    indices = np.arange(3_000)
    _, upstream = law.draw_with_latents("pathfinder", "upstream", 0, indices)
    images, words = law.draw_with_latents("pathfinder", "words", 0, indices)
    for latents, low, high in ((upstream, 0.9, 1.4), (words, 4.6, 5.0)):
        assert low < latents.placed.mean() < high
        assert abs(latents.labels.mean() - 0.5) < 5 * 0.5 / math.sqrt(len(indices))
        assert abs(latents.marked[:, 0].mean() - 0.5) < 5 * 0.5 / math.sqrt(len(indices))
    every = np.arange(len(images))
    discs = images[every, words.markers[:, 0, 0], words.markers[:, 0, 1]]
    assert np.median(discs) / 255 == pytest.approx(0.87, abs=0.01)  # a short snake is brighter: 2 * 147 / 255 to 1
