"""Lays out a model's graph: a box for each call of a function, with its operators, colored by time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bessemer.contract.code import CodeCall, CodeListing, listed_name
from bessemer.contract.report import FunctionTime
from bessemer.figures.words import duration

MAX_BOXES = 600
MAX_OPERATORS_SHOWN = 5
MAX_OPERATORS_READ = 200
MAX_EDGES = 3000
MAX_COLUMNS = 4
HEATS = 6
"""Colors for times, the last for the slowest."""

WIDTH, GAP, COLUMN_GAP, MARGIN = 320, 26, 28, 16
HEAD, ROW, FOOT = 26, 17, 8
LANE = 14
LETTERS = 42


@dataclass(frozen=True)
class Box:
    """A call.

    Attributes:
        call: its index in the run.
        function: the function that it calls.
        title: the function's name, cut.
        rows: the operators that it computes, one per row.
        where: the module of the model that it belongs to, cut.
        time: the time of one call; empty if it was not measured.
        heat: from 0, the fastest, to ``HEATS - 1``; -1 if it was not measured.
        address: the function's page.
    """

    call: int
    function: str
    title: str
    rows: tuple[str, ...]
    where: str
    time: str
    heat: int
    address: str
    x: int
    y: int
    height: int


@dataclass(frozen=True)
class Edge:
    """A value that passes from a call to a later one, as an SVG path."""

    path: str
    source: int
    target: int


@dataclass(frozen=True)
class Picture:
    """The whole graph."""

    boxes: Sequence[Box]
    edges: Sequence[Edge]
    width: int
    height: int
    hidden: int


def draw(listing: CodeListing, times: Sequence[FunctionTime], address: Callable[[str], str]) -> Picture:
    """The picture of a listing's calls, at most ``MAX_BOXES``.

    Args:
        listing: the calls and their operators.
        times: the times of functions; colors show the time of one call.
        address: the page of a function.
    """
    calls = listing.calls[:MAX_BOXES]
    each = {listed_name(time.name): time.milliseconds / max(time.calls, 1) for time in times}
    slowest = max((each.get(call.function, 0.0) for call in calls), default=0.0)
    ranks = _ranks(calls)
    rows: list[list[int]] = []
    for number, rank in enumerate(ranks):
        while len(rows) <= rank:
            rows.append([])
        rows[rank].append(number)
    boxes: dict[int, Box] = {}
    y = MARGIN
    for row in rows:
        for first in range(0, len(row), MAX_COLUMNS):
            placed = row[first : first + MAX_COLUMNS]
            for column, number in enumerate(placed):
                x = MARGIN + column * (WIDTH + COLUMN_GAP)
                boxes[number] = _box(listing, number, each, slowest, address, x, y)
            y += max(boxes[number].height for number in placed) + GAP
    edges, lanes = _edges(calls, boxes, ranks)
    columns = min(max((len(row) for row in rows), default=1), MAX_COLUMNS)
    width = 2 * MARGIN + columns * (WIDTH + COLUMN_GAP) + lanes * LANE
    return Picture(list(boxes.values()), edges, width, y + MARGIN, len(listing.calls) - len(calls))


def heat(milliseconds: float, slowest: float) -> int:
    """The color of a time: 0 below a hundredth of the slowest, ``HEATS - 1`` from 70 % of it."""
    if slowest <= 0:
        return 0
    share = milliseconds / slowest
    return sum(share >= bound for bound in (0.01, 0.03, 0.1, 0.3, 0.7))


def _ranks(calls: Sequence[CodeCall]) -> list[int]:
    """For each call, the number of calls before it on the longest path to it."""
    ranks: list[int] = []
    for number, call in enumerate(calls):
        earlier = [ranks[place] for place in call.inputs if place < number]
        ranks.append(1 + max(earlier) if earlier else 0)
    return ranks


def _box(
    listing: CodeListing,
    number: int,
    each: dict[str, float],
    slowest: float,
    address: Callable[[str], str],
    x: int,
    y: int,
) -> Box:
    call = listing.calls[number]
    operators = [listing.operators[place] for place in call.operators[:MAX_OPERATORS_READ]]
    rows = [
        _cut(f"{_short(operator.place.operator or operator.name)} {operator.value}".rstrip())
        for operator in operators[:MAX_OPERATORS_SHOWN]
    ]
    if len(call.operators) > MAX_OPERATORS_SHOWN:
        rows.append(f"and {len(call.operators) - MAX_OPERATORS_SHOWN} more")
    paths = [operator.place.module_path for operator in operators if operator.place.module_path]
    time = each.get(call.function)
    where = _cut(_common(paths)) if paths else ""
    height = HEAD + ROW * (len(rows) + bool(where)) + FOOT
    return Box(
        call=number,
        function=call.function,
        title=_cut(call.function, 30),
        rows=tuple(rows),
        where=where,
        time="" if time is None else duration(time),
        heat=-1 if time is None else heat(time, slowest),
        address=address(call.function),
        x=x,
        y=y,
        height=height,
    )


def _common(paths: Sequence[str]) -> str:
    """The innermost module that contains all of these; the first one's path if only the model itself does."""
    first, *others = [path.split(".") for path in paths]
    count = len(first)
    for other in others:
        same = next((i for i, (a, b) in enumerate(zip(first, other, strict=False)) if a != b), len(other))
        count = min(count, same)
    return ".".join(first[:count]) or paths[0]


def _short(operator: str) -> str:
    """An operator's name without its namespace and its default overload."""
    return operator.removeprefix("aten.").removesuffix(".default")


def _cut(text: str, letters: int = LETTERS) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def _edges(calls: Sequence[CodeCall], boxes: dict[int, Box], ranks: Sequence[int]) -> tuple[list[Edge], int]:
    """The edges, and the number of lanes.

    An edge to the next rank is one curve. Longer edges run in lanes beside the boxes.
    """
    edges: list[Edge] = []
    busy: list[int] = []
    ends = [
        (place, number)
        for number, call in enumerate(calls)
        for place in dict.fromkeys(call.inputs)
        if place < number
    ]
    del ends[MAX_EDGES:]
    right = max((box.x + WIDTH for box in boxes.values()), default=0) + COLUMN_GAP // 2
    for place, number in sorted(ends, key=lambda pair: (boxes[pair[0]].y, boxes[pair[1]].y)):
        source, target = boxes[place], boxes[number]
        if ranks[number] == ranks[place] + 1:
            edges.append(Edge(_down(source, target), place, number))
            continue
        lane = next((lane for lane, end in enumerate(busy) if end <= source.y), len(busy))
        busy[lane : lane + 1] = [target.y]
        edges.append(Edge(_beside(source, target, right + lane * LANE), place, number))
    return edges, len(busy)


def _down(source: Box, target: Box) -> str:
    x, y = source.x + WIDTH // 2, source.y + source.height
    middle = (y + target.y) // 2
    return f"M{x} {y}C{x} {middle} {target.x + WIDTH // 2} {middle} {target.x + WIDTH // 2} {target.y}"


def _beside(source: Box, target: Box, lane: int) -> str:
    x, y = source.x + WIDTH, source.y + source.height // 2
    end, end_y = target.x + WIDTH, target.y + target.height // 2
    return (
        f"M{x} {y}H{lane - 6}Q{lane} {y} {lane} {y + 6}V{end_y - 6}Q{lane} {end_y} {lane - 6} {end_y}H{end}"
    )
