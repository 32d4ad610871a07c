"""The geometry of line charts, which templates draw as SVG. Pure functions."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 960, 260
LEFT, RIGHT, TOP, BOTTOM = 76, 16, 14, 30
TICKS = 4
MOST_DATES = 8
FROM_ZERO = 0.4
"""The axis begins at 0 if the least value is below this share of the greatest."""
LEAST_SPAN = 0.25
"""The least part of the greatest value that an axis covers."""
SMALLEST, LARGEST = 1e-9, 1e12
"""Charts leave out values beyond these: no real value is, but jobs write figures."""


@dataclass(frozen=True)
class Point:
    """A value, its label on the other axis, its title, the page that it links to and the kind of its mark."""

    value: float
    date: str
    title: str
    address: str
    kind: str


@dataclass(frozen=True)
class Line:
    """Points in order; None where a value is missing. ``kind`` is the class of its elements."""

    kind: str
    name: str
    points: tuple[Point | None, ...]


@dataclass(frozen=True)
class Placed:
    """A point in the picture."""

    x: float
    y: float
    point: Point


@dataclass(frozen=True)
class DrawnLine:
    """A line in the picture: the path through its points, and the points."""

    kind: str
    name: str
    path: str
    points: tuple[Placed, ...]


@dataclass(frozen=True)
class Tick:
    """A position on an axis and its label."""

    at: float
    text: str


@dataclass(frozen=True)
class Chart:
    """A chart."""

    lines: tuple[DrawnLine, ...]
    values: tuple[Tick, ...]
    dates: tuple[Tick, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    bottom: int = HEIGHT - BOTTOM


def can_be_drawn(value: float) -> bool:
    """Whether a chart can show a value."""
    return SMALLEST <= value <= LARGEST


def chart(lines: Sequence[Line], shown: Callable[[float], str]) -> Chart | None:
    """A chart of lines that share one axis; None if no line has a value.

    Args:
        lines: the lines, of the same length.
        shown: formats a value for the axis.
    """
    values = [point.value for line in lines for point in line.points if point is not None]
    if not values:
        return None
    ticks = axis(min(values), max(values))
    low, high = ticks[0], ticks[-1]
    count = max(len(line.points) for line in lines)

    def x(index: int) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * ((index + 0.5) / count), 1)

    def y(value: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low)), 1)

    drawn = tuple(
        _drawn(line, tuple(Placed(x(i), y(p.value), p) for i, p in enumerate(line.points) if p is not None))
        for line in lines
    )
    dates = tuple(Tick(x(index), text) for index, text in _dates(lines, count))
    return Chart(drawn, tuple(Tick(y(value), shown(value)) for value in ticks), dates)


def axis(least: float, greatest: float) -> tuple[float, ...]:
    """Round values that enclose the given ones, evenly spaced; from 0 unless all are far from it.

    Values that hardly differ stay close together: the noise of a measurement must not fill the picture.
    """
    low = 0.0 if least < FROM_ZERO * greatest else least
    room = max(0.0, LEAST_SPAN * greatest - (greatest - low)) / 2
    low, high = low - room, greatest + room
    step = _round_step((high - low) / TICKS or 1.0)
    first = math.floor(low / step + 1e-9)
    last = max(first + 1, math.ceil(high / step - 1e-9))
    return tuple(index * step for index in range(first, last + 1))


def _round_step(step: float) -> float:
    magnitude = 10.0 ** math.floor(math.log10(step))
    return next(part * magnitude for part in (1, 2, 2.5, 5, 10) if part * magnitude >= step * (1 - 1e-9))


def _drawn(line: Line, placed: tuple[Placed, ...]) -> DrawnLine:
    path = " ".join(f"{'L' if index else 'M'}{point.x} {point.y}" for index, point in enumerate(placed))
    return DrawnLine(line.kind, line.name, path, placed)


def _dates(lines: Sequence[Line], count: int) -> Iterator[tuple[int, str]]:
    """The dates of evenly spaced points, without repetitions."""
    every = max(1, math.ceil(count / MOST_DATES))
    last = ""
    for index in range(0, count, every):
        known = (line.points[index] for line in lines)
        date = next((point.date for point in known if point is not None and point.date), "")
        if date and date != last:
            last = date
            yield index, date
