"""Draws a sheet of Pathfinder images with their labels, to look at.

    python -m scripts.contact_sheet pathfinder --law=words --out=sheet.png [--columns=8] [--rows=4]

The images are the first ones of the generator; a green frame is label 1 (both discs on one snake), a red one label 0.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from data.pathfinder import SEED
from data.pathfinder_sprites import LAWS, SETTINGS
from scripts.arguments import Parser, positive

SIDE = 256  # at least, of an image on the sheet
FRAME, TEXT = 3, 14
COLOURS = ("firebrick", "seagreen")


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    flags = _parser().parse_args(arguments)
    from data.pathfinder_law import draw_images  # the compiler; --help need not wait for it

    images, labels = draw_images(flags.task, flags.law, SEED, np.arange(flags.columns * flags.rows))
    try:
        sheet(images, labels, flags.columns).save(flags.out)
    except (OSError, ValueError) as error:  # ValueError: no format has this ending
        print(f"error: {flags.out}: {error}", file=sys.stderr)
        return 2
    print(flags.out)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser("contact_sheet", __doc__)
    parser.add_argument("task", choices=list(SETTINGS))
    parser.add_argument("--law", choices=LAWS, default=LAWS[0])
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--columns", type=positive, default=8)
    parser.add_argument("--rows", type=positive, default=4)
    return parser


def sheet(images: np.ndarray, labels: np.ndarray, columns: int) -> Image.Image:
    """Images (n, H, W) in rows, each with its number and label above and a frame in the colour of the label."""
    scale = max(SIDE // images.shape[1], 1)
    side = scale * images.shape[1]
    width, height = side + 2 * FRAME, side + 2 * FRAME + TEXT
    whole = Image.new("RGB", (columns * width, -(-len(images) // columns) * height))
    draw = ImageDraw.Draw(whole)
    for number, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        x, y = number % columns * width, number // columns * height
        draw.text((x + FRAME, y), f"{number}: label {label}", fill="white")
        draw.rectangle((x, y + TEXT, x + width - 1, y + height - 1), fill=COLOURS[label])
        whole.paste(
            Image.fromarray(image).resize((side, side), Image.Resampling.NEAREST), (x + FRAME, y + TEXT + FRAME)
        )
    return whole


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
