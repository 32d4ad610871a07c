"""Where the time of a run goes: by function, by operator, and by line of the model. Pure functions."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from app.console.treemap import Rectangle, squarify
from bessemer.contract.problem import SourcePlace
from bessemer.contract.report import FunctionTime
from bessemer.figures import words

WIDTH, HEIGHT = 1000.0, 420.0
"""The proportions that the layout is made for; positions are in percent."""

SHOWN_FUNCTIONS = 60
SHOWN_OPERATORS = 12
SHOWN_LINES = 15
MAX_NAME = 120
SPLIT_FROM = 0.03
"""A function with at least this share of the time is divided into its operators."""
_HEADER = 22.0
_GAP = 3.0

_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("runtime", re.compile(r"^runtime$")),
    ("attention", re.compile(r"attention|sdpa")),
    ("convolution", re.compile(r"conv|winograd")),
    ("product", re.compile(r"matmul|linear|dense|einsum|lstm|gru|bmm|addmm")),
    ("reduction", re.compile(r"norm|softmax|mean|sum|pool|variance|reduce|arg(max|min)|cumsum|sort|topk")),
    (
        "movement",
        re.compile(r"transpose|permute|reshape|layout|concat|split|take|gather|pad|slice|strided|resize"),
    ),
)
ELEMENTWISE = "elementwise"
KINDS = (*(name for name, _ in _KINDS), ELEMENTWISE)


@dataclass(frozen=True)
class Part:
    """An operator of a function. Positions and sizes are in percent of the map."""

    box: Rectangle
    operator: str
    where: str


@dataclass(frozen=True)
class Cell:
    """A function. Positions and sizes are in percent of the map.

    Attributes:
        anchor: the row of the table that shows the same function; None for the rest.
        kind: one of ``KINDS``, by the function's name.
    """

    box: Rectangle
    name: str
    kind: str
    value: str
    calls: int
    anchor: int | None
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Line:
    """A line of the model. Operators that one function computes share its time equally."""

    where: str
    operators: tuple[str, ...]
    milliseconds: float
    share: float

    @property
    def value(self) -> str:
        """Its time, and its share of all functions' times."""
        return f"{words.duration(self.milliseconds)} · {words.percent(self.share)}"


@dataclass(frozen=True)
class FunctionRow:
    """A row of the table of functions."""

    name: str
    kind: str
    calls: int
    time: str
    share: float
    rate: str
    places: tuple[str, ...]
    more_places: int


@dataclass(frozen=True)
class TimeMap:
    """The time of one run."""

    cells: tuple[Cell, ...]
    kinds: tuple[str, ...]
    rows: tuple[FunctionRow, ...]
    lines: tuple[Line, ...]
    more_lines: int
    total_ms: float


def time_map(functions: Sequence[FunctionTime]) -> TimeMap | None:
    """Lay out the functions of a library; None if none took time."""
    ordered = sorted(
        (each for each in functions if math.isfinite(each.milliseconds) and each.milliseconds > 0),
        key=lambda each: -each.milliseconds,
    )
    total = math.fsum(each.milliseconds for each in ordered)
    if not ordered or not math.isfinite(total):
        return None
    lines = lines_of(ordered, total)
    return TimeMap(
        cells=_cells(ordered, total),
        kinds=tuple(kind for kind in KINDS if any(kind_of(each.name) == kind for each in ordered)),
        rows=tuple(_row(each, total) for each in ordered),
        lines=lines[:SHOWN_LINES],
        more_lines=max(len(lines) - SHOWN_LINES, 0),
        total_ms=total,
    )


def kind_of(function: str) -> str:
    """What kind of work a function does, by its name."""
    name = function[:MAX_NAME].lower()
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), ELEMENTWISE)


def lines_of(functions: Iterable[FunctionTime], total_ms: float) -> tuple[Line, ...]:
    """The time of each line of the model, or of each module if no file is recorded, longest first."""
    found: dict[str, Line] = {}
    for function in functions:
        for place in function.places:
            where = shown_place(place)
            if not where:
                continue
            known = found.get(where) or Line(where, (), 0.0, 0.0)
            operator = short_operator(place)
            operators = known.operators if operator in known.operators else (*known.operators, operator)[:8]
            spent = known.milliseconds + function.milliseconds / len(function.places)
            found[where] = replace(
                known, operators=operators, milliseconds=spent, share=spent / total_ms if total_ms else 0.0
            )
    return tuple(sorted(found.values(), key=lambda line: -line.milliseconds))


def shown_place(place: SourcePlace) -> str:
    """The file's name and the line, and the module: ``net.py:12 in layers.0``; empty if nothing is known."""
    file = (place.file or "").replace("\\", "/").rpartition("/")[2][-60:]
    line = f"{file}:{place.line}" if file and place.line else file
    module = (place.module_path or "")[-60:]
    return f"{line} in {module}" if line and module else line or module


def short_operator(place: SourcePlace) -> str:
    """``conv2d`` for ``aten.conv2d.default``."""
    name = (place.operator or "")[:MAX_NAME]
    parts = name.split(".")
    return parts[1] if len(parts) == 3 and parts[0] == "aten" else name or "operator"


def _cells(ordered: Sequence[FunctionTime], total: float) -> tuple[Cell, ...]:
    shown, rest = ordered[:SHOWN_FUNCTIONS], ordered[SHOWN_FUNCTIONS:]
    weights = [each.milliseconds for each in shown]
    if rest:
        weights.append(math.fsum(each.milliseconds for each in rest))
    boxes = squarify(weights, Rectangle(0, 0, WIDTH, HEIGHT))
    cells = [
        Cell(
            box=_percent(box),
            name=each.name[:MAX_NAME],
            kind=kind_of(each.name),
            value=f"{words.duration(each.milliseconds)} · {words.percent(each.milliseconds / total)}",
            calls=each.calls,
            anchor=index + 1,
            parts=_parts(each, box) if each.milliseconds >= SPLIT_FROM * total else (),
        )
        for index, (each, box) in enumerate(zip(shown, boxes, strict=False))
    ]
    if rest:
        value = f"{words.duration(weights[-1])} · {words.percent(weights[-1] / total)}"
        cells.append(
            Cell(_percent(boxes[-1]), f"{len(rest)} more functions", ELEMENTWISE, value, 0, None, ())
        )
    return tuple(cells)


def _parts(function: FunctionTime, box: Rectangle) -> tuple[Part, ...]:
    places = function.places[:SHOWN_OPERATORS]
    inner = box.inset(_GAP, _HEADER, _GAP, _GAP)
    if len(places) < 2 or inner.width < 60 or inner.height < 24:
        return ()
    boxes = squarify([1.0] * len(places), inner)
    return tuple(
        Part(_percent(each), short_operator(place), shown_place(place))
        for each, place in zip(boxes, places, strict=True)
    )


def _percent(box: Rectangle) -> Rectangle:
    return Rectangle(
        round(100 * box.x / WIDTH, 3),
        round(100 * box.y / HEIGHT, 3),
        round(100 * box.width / WIDTH, 3),
        round(100 * box.height / HEIGHT, 3),
    )


def _row(function: FunctionTime, total: float) -> FunctionRow:
    rate = (
        f"{words.three_digits(function.flops / function.milliseconds / 1e6)} GFLOP/s"
        if function.flops > 0
        else ""
    )
    places = tuple(dict.fromkeys(filter(None, map(str, function.places[:SHOWN_OPERATORS]))))
    return FunctionRow(
        name=function.name[:MAX_NAME],
        kind=kind_of(function.name),
        calls=function.calls,
        time=words.duration(function.milliseconds),
        share=function.milliseconds / total,
        rate=rate,
        places=tuple(place[:200] for place in places),
        more_places=max(len(function.places) - SHOWN_OPERATORS, 0),
    )
