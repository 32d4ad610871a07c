"""Sampling images and volumes at the places of a grid."""

from __future__ import annotations

from itertools import product

import torch

from worker.compiler.translation.rule import Decomposition, Rules, from_torch

_TRILINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER, _REFLECTION = range(3)


def _grid_sampler_3d(
    volume: torch.Tensor, grid: torch.Tensor, interpolation: int, padding: int, align_corners: bool
) -> torch.Tensor:
    """Grid ``[n, d, h, w, 3]`` in -1 … 1. Trilinear sampling weights the eight nearest voxels."""
    places = [_place(grid[..., axis], volume.shape[-1 - axis], padding, align_corners) for axis in range(3)]
    if interpolation == _NEAREST:
        return _read(volume, [place.round() for place in places], padding)
    total = torch.zeros((), dtype=volume.dtype)
    floors = [place.floor() for place in places]
    for corner in product((0, 1), repeat=3):
        at = [floor + offset for floor, offset in zip(floors, corner, strict=True)]
        share = torch.ones((), dtype=volume.dtype)
        for place, near in zip(places, at, strict=True):
            share = share * (1 - (place - near).abs())
        total = total + _read(volume, at, padding) * share.unsqueeze(1)
    return total


def _place(at: torch.Tensor, size: int, padding: int, align_corners: bool) -> torch.Tensor:
    """Map -1 … 1 to positions along an axis."""
    place = (at + 1) / 2 * (size - 1) if align_corners else ((at + 1) * size - 1) / 2
    if padding == _REFLECTION:
        low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
        place = _reflected(place, low, span)
    return place if padding == _ZEROS else place.clamp(0, size - 1)


def _reflected(place: torch.Tensor, low: float, span: float) -> torch.Tensor:
    if span == 0:
        return torch.zeros_like(place)
    along = (place - low).abs()
    turns, rest = (along / span).floor(), along.fmod(span)
    return torch.where(turns.remainder(2) == 0, rest, span - rest) + low


def _read(volume: torch.Tensor, at: list[torch.Tensor], padding: int) -> torch.Tensor:
    """Read a volume ``[n, c, d, h, w]`` at positions ``[n, d', h', w']``; 0 outside unless padded."""
    batch, channels = volume.shape[:2]
    width, height, depth = (volume.shape[-1 - axis] for axis in range(3))
    x, y, z = (
        place.clamp(0, size - 1).long() for place, size in zip(at, (width, height, depth), strict=True)
    )
    flat = ((z * height + y) * width + x).reshape(batch, 1, -1).expand(batch, channels, -1)
    found = volume.reshape(batch, channels, -1).gather(2, flat).reshape(batch, channels, *x.shape[1:])
    if padding != _ZEROS:
        return found
    inside = torch.ones_like(x, dtype=torch.bool)
    for place, size in zip(at, (width, height, depth), strict=True):
        inside = inside & (place >= 0) & (place < size)
    return torch.where(inside.unsqueeze(1), found, 0.0)


RULES: Rules = (
    from_torch(torch.ops.aten.grid_sampler_2d.default),
    Decomposition("aten.grid_sampler_3d.default", _grid_sampler_3d),
)
