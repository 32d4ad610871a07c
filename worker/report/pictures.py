"""Draws inputs as pictures: PNG files within the report's page."""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bessemer.contract.options import image_channels

COLOR_TYPES = {1: 0, 3: 2}
"""PNG's color type by the number of channels: gray, or red, green and blue."""

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Picture:
    """An input as a picture of ``height`` by ``width`` pixels, as a ``data:`` URI."""

    name: str
    height: int
    width: int
    uri: str


def draw_picture(name: str, values: NDArray[Any], height: int, width: int) -> Picture:
    """Draw the first image of a tensor, from its smallest value (black) to its largest.

    Raises:
        ValueError: the tensor holds no images of this size.
    """
    channels = image_channels(values.shape, height, width)
    if channels is None:
        raise ValueError(f"'{name}' {list(values.shape)} holds no images of {height} by {width} pixels")
    planes = values.reshape(-1)[: channels * height * width].astype(np.float64)
    planes = np.nan_to_num(planes).reshape(channels, height, width)
    low, high = planes.min(), planes.max()
    pixels = np.round((planes - low) * (255 / (high - low or 1))).astype(np.uint8)
    data = base64.b64encode(_png(np.moveaxis(pixels, 0, -1))).decode()
    return Picture(name, height, width, f"data:image/png;base64,{data}")


def _png(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG file of ``[height, width, channels]``.

    Source: W3C, Portable Network Graphics (Third Edition), sections 5 and 9.
    """
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, COLOR_TYPES[channels], 0, 0, 0)
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each begins with its filter, 0 for none
    rows[:, 1:] = pixels.reshape(height, -1)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
