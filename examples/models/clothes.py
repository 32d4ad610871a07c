"""Images of clothes of 28 by 28 gray pixels, as in Fashion-MNIST: drawings, and a user's own.

Each drawing is a stack of polygons on black, and the trained networks name it correctly.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw

CLASSES = (
    "t-shirt",
    "trousers",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
"""Fashion-MNIST's classes, in the order of the networks' logits."""

SIDE = 28
_SCALE = 8
_SHADES = " .:-=+*#%@"

Polygon = tuple[int, Sequence[tuple[float, float]]]
"""A polygon's gray from 0 to 255, and its corners ``(x, y)`` in pixels."""


def _both_sides(half: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The corners of a symmetric shape from those of its left half, from top to bottom."""
    return half + [(SIDE - x, y) for x, y in reversed(half)]


DRAWINGS: dict[str, tuple[Polygon, ...]] = {
    "t-shirt": (
        (200, _both_sides([(11, 3), (8, 3.5), (2, 8), (5, 12), (8, 10), (8, 26)])),
        (0, _both_sides([(11, 3), (12.5, 5)])),
    ),
    "trousers": ((190, _both_sides([(9, 1), (8, 27), (12, 27), (14, 8)])),),
    "dress": (
        (190, _both_sides([(11, 1), (10.5, 7), (11, 12), (8, 27)])),
        (0, _both_sides([(12, 1), (12.5, 4)])),
    ),
    "coat": (
        (190, _both_sides([(12, 2), (8, 4), (4, 8), (2, 26), (6, 27), (8, 12), (8, 27)])),
        (60, [(13.6, 3), (14.4, 3), (14.4, 27), (13.6, 27)]),
    ),
    "sandal": (
        (120, [(27, 19), (1, 18), (1, 20), (8, 21), (27, 21)]),
        (160, [(26, 19), (24, 12), (22, 12), (23, 19)]),
        (200, [(12, 19), (8, 14), (6, 14), (8, 19)]),
        (200, [(6, 18), (3, 14), (2, 15), (3, 18)]),
        (90, [(27, 20), (24, 20), (25, 25), (27, 25)]),
    ),
    "sneaker": (
        (150, [(27, 13), (23, 11.5), (19, 14), (14, 12.5), (3, 17), (1, 19), (27, 19)]),
        (210, [(27, 18.5), (1, 18.5), (1, 20.5), (27, 20.5)]),
    ),
    "bag": (
        (200, [(3, 11), (25, 11), (26, 25), (2, 25)]),
        (150, [(8, 11), (9, 5), (19, 5), (20, 11), (18, 11), (17, 7), (11, 7), (10, 11)]),
    ),
    "ankle boot": (
        (200, [(26, 3), (15, 3), (13, 11), (6, 15), (1, 18), (1, 23), (26, 23)]),
        (150, [(26, 22), (1, 22), (1, 24), (19, 24), (20, 26), (26, 26)]),
    ),
}


def draw(name: str) -> torch.Tensor:
    """A drawing, ``[28, 28]`` in float32 from 0 to 1."""
    canvas = Image.new("L", (SIDE * _SCALE, SIDE * _SCALE))
    pen = ImageDraw.Draw(canvas)
    for gray, corners in DRAWINGS[name]:
        pen.polygon([(x * _SCALE, y * _SCALE) for x, y in corners], fill=gray)
    return _tensor(canvas.resize((SIDE, SIDE), Image.Resampling.BOX))


def read(path: Path) -> torch.Tensor:
    """An image file, or an ``.npy`` file of gray values from 0 to 1, as ``[28, 28]``.

    Images become gray and are resized. Fashion-MNIST shows clothes in light gray on black.

    Raises:
        OSError: the file cannot be read.
        ValueError: the array does not have 28 by 28 elements.
    """
    if path.suffix == ".npy":
        return torch.from_numpy(np.load(path).astype(np.float32).reshape(SIDE, SIDE))
    with Image.open(path) as image:
        return _tensor(image.convert("L").resize((SIDE, SIDE), Image.Resampling.LANCZOS))


def as_text(image: torch.Tensor) -> str:
    """The image for a terminal: a row of text for two rows of pixels."""
    rows = image.reshape(SIDE // 2, 2, SIDE).mean(1)
    return "\n".join("".join(_SHADES[int(gray * 9)] for gray in row) for row in rows.clamp(0, 1).tolist())


def _tensor(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.asarray(image, dtype=np.float32) / 255)
