"""An SVG chart of every runtime's latency relative to torch eager's.

It has one row per model on a logarithmic axis, follows the reader's light or dark scheme, and has no external
references, so a README can show it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from benchmarks.models.results import ModelResult, mean_ratio
from bessemer.figures.words import TIMES, duration

EAGER = "torch eager"
OURS = "Bessemer"

WIDTH = 760
LEFT, RIGHT, TOP, ROW, BOTTOM = 128, 664, 74, 34, 46
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)

_STYLE = """
  text { font: 14px "Inter", "Segoe UI", system-ui, "Helvetica Neue", Arial, sans-serif; fill: #1a1f25; }
  .name, .mean { font-weight: 600; } .quiet { font-size: 12px; fill: #56616c; }
  .paper { fill: #ffffff; } .grid { stroke: #dcdcd9; } .one { stroke: #56616c; stroke-width: 1.5; }
  .range { stroke: #c3ccd5; stroke-width: 3; stroke-linecap: round; }
  .peer { fill: none; stroke: #53687d; stroke-width: 1.8; } .ours { fill: #e0560f; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e8e5e0; } .quiet { fill: #9ba6b1; }
    .paper { fill: #191e23; } .grid { stroke: #2c333a; } .one { stroke: #9ba6b1; }
    .range { stroke: #3a4652; } .peer { stroke: #8299af; } .ours { fill: #f2692a; }
  }"""


class Mark(NamedTuple):
    """A runtime's mark in a row, as a multiple of torch eager's latency."""

    runtime: str
    value: float


@dataclass(frozen=True)
class Row:
    """A model with its runtimes' marks; ``note`` is shown at the right."""

    name: str
    marks: tuple[Mark, ...]
    note: str


def models_chart(models: Sequence[ModelResult]) -> str:
    """The SVG; models without our figure or torch eager's are left out."""
    rows = tuple(row for row in map(_row, models) if row is not None)
    means = _mean_row(models)
    every = (*rows, means) if means is not None else rows
    place = _axis([mark.value for row in every for mark in row.marks])
    height = TOP + ROW * len(every) + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-labelledby="title">',
        f'<title id="title">{escape(_title(every))}</title>',
        f"<style>{_STYLE}\n</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}" rx="6"/>',
        *_legend(every),
        *_grid(place, height - BOTTOM),
        *(part for index, row in enumerate(every) for part in _draw(row, TOP + ROW * index, place)),
        f'<text class="quiet" x="{(LEFT + RIGHT) / 2}" y="{height - 14}" text-anchor="middle">'
        "latency relative to torch eager: left is faster</text>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _row(model: ModelResult) -> Row | None:
    eager = model.measured_peers.get(EAGER)
    if eager is None or eager.ratio is None or model.ours.latency is None:
        return None
    marks = [
        Mark(peer.name, eager.ratio.median / peer.ratio.median)
        for peer in model.measured_peers.values()
        if peer.ratio is not None and peer.name != EAGER
    ]
    note = duration(model.ours.latency.p50_ms)
    return Row(model.name, (Mark(OURS, eager.ratio.median), *marks), note)


def _mean_row(models: Sequence[ModelResult]) -> Row | None:
    ours = mean_ratio(list(models), EAGER)
    if ours is None:
        return None
    names = dict.fromkeys(name for model in models for name in model.measured_peers if name != EAGER)
    marks = [Mark(name, _mean_to_eager(models, name)) for name in names]
    return Row("geometric mean", (Mark(OURS, ours), *marks), f"{ours:.2f}{TIMES}")


def _mean_to_eager(models: Sequence[ModelResult], name: str) -> float:
    """Geometric mean of a peer's latency over torch eager's, for models that both ran."""
    both = [model for model in models if {name, EAGER} <= model.measured_peers.keys()]
    eager, peer = mean_ratio(both, EAGER), mean_ratio(both, name)
    assert eager is not None and peer is not None
    return eager / peer


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis with its ends and ticks."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def __call__(self, value: float) -> float:
        """The x coordinate of a value."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(LEFT + 12 + share * (RIGHT - LEFT - 24), 1)


def _axis(values: Sequence[float]) -> Axis:
    low, high = min((*values, 0.5)) * 0.92, max((*values, 2.0)) * 1.08
    return Axis(low, high, tuple(tick for tick in _TICKS if low <= tick <= high))


def _grid(axis: Axis, bottom: float) -> list[str]:
    parts = []
    for tick in axis.ticks:
        kind = "one" if tick == 1 else "grid"
        label = f"{tick:g}{TIMES}"
        parts.append(
            f'<line class="{kind}" x1="{axis(tick)}" x2="{axis(tick)}" y1="{TOP - 8}" y2="{bottom}"/>'
        )
        parts.append(
            f'<text class="quiet" x="{axis(tick)}" y="{bottom + 14}" text-anchor="middle">{label}</text>'
        )
    parts.append(f'<text class="quiet" x="{axis(1)}" y="{TOP - 14}" text-anchor="middle">{EAGER}</text>')
    return parts


def _draw(row: Row, top: float, axis: Axis) -> list[str]:
    middle = top + ROW / 2
    places = [axis(mark.value) for mark in row.marks]
    summary = "; ".join(f"{mark.runtime} {mark.value:.2f}{TIMES}" for mark in row.marks)
    return [
        f"<g><title>{escape(f'{row.name}: {summary}')}</title>",
        f'<text class="name" x="16" y="{middle + 5}">{escape(row.name)}</text>',
        f'<line class="range" x1="{min(places)}" x2="{max(places)}" y1="{middle}" y2="{middle}"/>',
        *(_shape(mark.runtime, place, middle) for mark, place in zip(row.marks, places, strict=True)),
        f'<text x="{WIDTH - 16}" y="{middle + 5}" text-anchor="end">{escape(row.note)}</text></g>',
    ]


def _legend(rows: Sequence[Row]) -> list[str]:
    names = list(dict.fromkeys(mark.runtime for row in rows for mark in row.marks))
    parts, x = [], 24.0
    for name in names:
        label = f"{name}, median at right" if name == OURS else name
        parts.append(_shape(name, x, 26))
        parts.append(f'<text x="{x + 12}" y="31">{escape(label)}</text>')
        x += 40 + 8.2 * len(label)
    return parts


def _shape(runtime: str, x: float, y: float) -> str:
    return _SHAPES.get(runtime, _square)(x, y)


def _ours(x: float, y: float) -> str:
    return f'<circle class="ours" cx="{x}" cy="{y}" r="7"/>'


def _circle(x: float, y: float) -> str:
    return f'<circle class="peer" cx="{x}" cy="{y}" r="5"/>'


def _diamond(x: float, y: float) -> str:
    return f'<path class="peer" d="M{x - 6.5},{y}L{x},{y - 6.5}L{x + 6.5},{y}L{x},{y + 6.5}Z"/>'


def _triangle(x: float, y: float) -> str:
    return f'<path class="peer" d="M{x - 6},{y + 5}L{x},{y - 6}L{x + 6},{y + 5}Z"/>'


def _square(x: float, y: float) -> str:
    return f'<rect class="peer" x="{x - 5}" y="{y - 5}" width="10" height="10"/>'


_SHAPES: dict[str, Callable[[float, float], str]] = {
    OURS: _ours,
    "torch.compile": _circle,
    "ONNX Runtime": _diamond,
    "OpenVINO": _triangle,
}


def _title(rows: Sequence[Row]) -> str:
    return f"Latency of {', '.join(row.name for row in rows)}: each runtime relative to {EAGER}"
