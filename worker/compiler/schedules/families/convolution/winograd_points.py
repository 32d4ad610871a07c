"""The transforms of Winograd's convolutions F(m x m, 3 x 3) and F(m, 3), from points by Cook and Toom.

    Y = A^T [(G g G^T) * (B^T d B)] A      d: n x n pixels, g: 3 x 3 weights, Y: m x m outputs, n = m + 2
    Y = A^T [(G g) * (B^T d)]              sequences: d: n pixels, g: 3 weights, Y: m outputs

Row ``i`` of ``B^T`` holds the polynomial whose roots are all points but the ``i``-th; the last row, for the
point at infinity, has all points as roots. Column ``i`` of ``A^T`` and row ``i`` of ``G`` hold the powers of
the ``i``-th point; ``G``, applied when the model is compiled and in float64, also divides by the polynomial.

Points far from 1 lose digits: the powers of a large point drown the others. ``docs/schedules.md`` states the
errors. The points of F(4 x 4) are dyadic, so ``A^T`` and ``B^T`` are exact in float32, and come in pairs of
opposite sign, which share most of their arithmetic.

Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016; Barabasz et al., "Error
Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural Networks", 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod

Matrix = tuple[tuple[float, ...], ...]

TAPS = 3
POINTS: dict[int, tuple[float, ...]] = {
    2: (0.0, 1.0, -1.0),
    4: (0.0, 0.625, -0.625, 1.5, -1.5),
}
"""The finite points by the side of the output's tile."""


@dataclass(frozen=True)
class Transforms:
    """The matrices of one tile size: ``output`` is A^T, ``weights`` is G, ``image`` is B^T."""

    output: Matrix
    weights: Matrix
    image: Matrix


def tile_of(side: int, dimensions: int) -> tuple[int, int]:
    """Rows and columns of a tile's outputs; the tiles of a sequence have one row."""
    return (side if dimensions > 1 else 1, side)


def reach_of(tile: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of a tile's pixels."""
    rows, columns = (len(transforms(side).image) for side in tile)
    return rows, columns


@cache
def transforms(side: int) -> Transforms:
    """The matrices for tiles of ``side`` outputs; a single output has one tap, as across a sequence."""
    if side == 1:
        return Transforms(*[((1.0,),)] * 3)
    points = POINTS[side]
    others = [tuple(other for other in points if other != point) for point in points]
    powers = [[*(point**power for point in points), 0.0] for power in range(side)]
    powers[-1][-1] = 1.0
    weights = [
        tuple(point**power / prod(point - other for other in rest) for power in range(TAPS))
        for point, rest in zip(points, others, strict=True)
    ]
    image = [(*_with_roots(rest), 0.0) for rest in others]
    return Transforms(
        output=tuple(map(tuple, powers)),
        weights=(*weights, (0.0,) * (TAPS - 1) + (1.0,)),
        image=(*image, _with_roots(points)),
    )


def _with_roots(roots: tuple[float, ...]) -> tuple[float, ...]:
    """The coefficients of the monic polynomial with these roots, the constant first."""
    coefficients: tuple[float, ...] = (1.0,)
    for root in roots:
        shifted = (0.0, *coefficients)
        coefficients = tuple(
            one - root * other for one, other in zip(shifted, (*coefficients, 0.0), strict=True)
        )
    return coefficients
