"""Squarified treemaps: Bruls, Huizing and van Wijk 2000, "Squarified Treemaps". Pure functions."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

VANISHING = 1e-12


class Rectangle(NamedTuple):
    """A rectangle by its top left corner and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def area(self) -> float:
        """The area."""
        return self.width * self.height

    def inset(self, left: float, top: float, right: float, bottom: float) -> "Rectangle":
        """The rectangle without margins; without area if they leave none."""
        width, height = self.width - left - right, self.height - top - bottom
        return Rectangle(self.x + left, self.y + top, max(width, 0.0), max(height, 0.0))


def squarify(weights: Sequence[float], within: Rectangle) -> tuple[Rectangle, ...]:
    """A rectangle for each weight, in the weights' order, with areas in proportion to the weights.

    The rectangles fill ``within``. Rows are filled with the largest weights first, along the shorter side of
    what is left, and end when another rectangle would make the worst aspect ratio of the row worse.

    Args:
        weights: numbers; those that are not positive and finite, or negligible beside the largest, get a
            rectangle without area.
        within: the rectangle to divide.
    """
    corner = Rectangle(within.x, within.y, 0.0, 0.0)
    placed = [corner] * len(weights)
    largest = max((weight for weight in weights if math.isfinite(weight)), default=0.0)
    if not largest > 0 or not within.area > 0:
        return tuple(placed)
    scaled = {index: weight / largest for index, weight in enumerate(weights) if math.isfinite(weight)}
    order = sorted((i for i, each in scaled.items() if each > VANISHING), key=lambda i: -scaled[i])
    unit = within.area / math.fsum(scaled[index] for index in order)
    areas = [scaled[index] * unit for index in order]
    start, left = 0, within
    while start < len(order):
        end = _row_end(areas, start, min(left.width, left.height))
        row, left = _row(areas[start:end], left)
        for index, rectangle in zip(order[start:end], row, strict=True):
            placed[index] = rectangle
        start = end
    return tuple(placed)


def _row_end(areas: Sequence[float], start: int, side: float) -> int:
    """The end of the row that begins at ``start``, along a side."""
    total = largest = areas[start]
    worst = _worst(total, largest, largest, side)
    for end in range(start + 1, len(areas)):
        total += areas[end]
        with_next = _worst(total, largest, areas[end], side)
        if with_next > worst:
            return end
        worst = with_next
    return len(areas)


def _worst(total: float, largest: float, smallest: float, side: float) -> float:
    """The worst aspect ratio of a row, by the paper's formula."""
    if not (side > 0 and total > 0 and smallest > 0):
        return math.inf
    return max(side * side * largest / (total * total), total * total / (side * side * smallest))


def _row(areas: Sequence[float], left: Rectangle) -> tuple[list[Rectangle], Rectangle]:
    """The rectangles of a row along the shorter side, and what is left beside it."""
    total = math.fsum(areas)
    if left.width >= left.height:
        width = min(total / left.height, left.width) if left.height > 0 else 0.0
        row = [
            Rectangle(left.x, left.y + left.height * start, width, left.height * share)
            for start, share in _shares(areas, total)
        ]
        return row, Rectangle(left.x + width, left.y, left.width - width, left.height)
    height = min(total / left.width, left.height) if left.width > 0 else 0.0
    row = [
        Rectangle(left.x + left.width * start, left.y, left.width * share, height)
        for start, share in _shares(areas, total)
    ]
    return row, Rectangle(left.x, left.y + height, left.width, left.height - height)


def _shares(areas: Sequence[float], total: float) -> Iterator[tuple[float, float]]:
    start = 0.0
    for area in areas:
        share = area / total if total > 0 else 0.0
        yield start, share
        start += share
