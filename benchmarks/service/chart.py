"""An SVG chart of one app process under load: its figures by queue length, per database.

It has a panel per figure, with a logarithmic axis for the queue. It follows the reader's light or dark scheme
and has no external references.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from benchmarks.service.results import Backend, Load

WIDTH = 760
TOP, PANEL_WIDTH, PANEL_HEIGHT = 56, 380, 214
LEFT, RIGHT, ABOVE, BELOW = 58, 66, 34, 40
LABEL_HEIGHT = 15
_STEPS = (1, 2, 2.5, 5, 10)

_STYLE = """
  text { font: 14px "Inter", "Segoe UI", system-ui, "Helvetica Neue", Arial, sans-serif; fill: #1a1f25; }
  .name { font-weight: 600; } .quiet { font-size: 12px; font-weight: 400; fill: #56616c; }
  .paper { fill: #ffffff; } .grid { stroke: #dcdcd9; }
  .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
  .one { stroke: #e0560f; } .dot.one { fill: #e0560f; }
  .other { stroke: #53687d; } .dot.other { fill: #ffffff; stroke-width: 1.8; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e8e5e0; } .quiet { fill: #9ba6b1; }
    .paper { fill: #191e23; } .grid { stroke: #2c333a; }
    .one { stroke: #f2692a; } .dot.one { fill: #f2692a; }
    .other { stroke: #8299af; } .dot.other { fill: #191e23; }
  }"""
_SERIES = ("one", "other")


@dataclass(frozen=True)
class Panel:
    """A figure and its title."""

    title: str
    unit: str
    quantity: Callable[[Load], float]


PANELS = (
    Panel("Submitted per second", "", lambda load: load.submit_per_second),
    Panel("Reading a job, 99th percentile", "ms", lambda load: load.get_one.p99_ms),
    Panel("Memory of the app", "MiB", lambda load: load.memory_mib),
    Panel("Dispatch to an idle worker, median", "ms", lambda load: load.dispatch.p50_ms),
    Panel("Event delivery, median", "ms", lambda load: load.event_at_work.p50_ms),
    Panel("Reading /metrics, median", "ms", lambda load: load.scrape.p50_ms),
)


@dataclass(frozen=True)
class Frame:
    """A panel's position and the ranges of its axes."""

    x: float
    y: float
    sizes: tuple[int, ...]
    step: float
    highest: float

    def across(self, queued: int) -> float:
        """The x coordinate of a queue length."""
        first, last = math.log(self.sizes[0]), math.log(self.sizes[-1])
        share = (math.log(queued) - first) / (last - first) if last > first else 0.5
        return round(self.x + LEFT + share * (PANEL_WIDTH - LEFT - RIGHT), 1)

    def down(self, value: float) -> float:
        """The y coordinate of a value."""
        share = value / self.highest
        return round(self.y + PANEL_HEIGHT - BELOW - share * (PANEL_HEIGHT - ABOVE - BELOW), 1)


def load_chart(backends: Sequence[Backend]) -> str:
    """The SVG for at least one backend with at least one load."""
    height = TOP + PANEL_HEIGHT * math.ceil(len(PANELS) / 2)
    names = " and ".join(backend.name for backend in backends)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-labelledby="title">',
        f'<title id="title">{escape(f"One app process as its queue grows, on {names}")}</title>',
        f"<style>{_STYLE}\n</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}" rx="6"/>',
        *_legend(backends),
        *(part for index, panel in enumerate(PANELS) for part in _draw(panel, index, backends)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def axis_step(highest: float, most: int = 4) -> float:
    """A round tick distance that needs few ticks to reach the highest value."""
    if highest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest / most))
    return next(step * power for step in _STEPS if step * power * most >= highest)


def apart(places: Sequence[float], distance: float) -> list[float]:
    """Move overlapping labels apart, as little as possible."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved = list(places)
    for upper, lower in pairwise(order):
        missing = distance - (moved[lower] - moved[upper])
        if missing > 0:
            moved[upper] -= missing / 2
            moved[lower] += missing / 2
    return moved


def _draw(panel: Panel, index: int, backends: Sequence[Backend]) -> list[str]:
    frame = _frame(panel, index, backends)
    lines = [(backend, kind) for backend, kind in zip(backends, _SERIES, strict=False) if backend.loads]
    ends = apart([frame.down(panel.quantity(backend.loads[-1])) for backend, _ in lines], LABEL_HEIGHT)
    summary = "; ".join(f"{backend.name} {_summary(panel, backend)}" for backend, _ in lines)
    unit = f'<tspan class="quiet">, {panel.unit}</tspan>' if panel.unit else ""
    return [
        f"<g><title>{escape(f'{panel.title}: {summary}')}</title>",
        f'<text class="name" x="{frame.x + 16}" y="{frame.y + 14}">{escape(panel.title)}{unit}</text>',
        *_grid(frame),
        *(part for backend, kind in lines for part in _line(frame, panel, backend, kind)),
        *(
            f'<text x="{frame.across(backend.loads[-1].queued) + 11}" y="{end + 5}">'
            f"{_short(panel.quantity(backend.loads[-1]))}</text>"
            for (backend, _), end in zip(lines, ends, strict=True)
        ),
        "</g>",
    ]


def _frame(panel: Panel, index: int, backends: Sequence[Backend]) -> Frame:
    loads = [load for backend in backends for load in backend.loads]
    sizes = tuple(sorted({load.queued for load in loads}))
    highest = max(panel.quantity(load) for load in loads)
    step = axis_step(highest)
    row, column = divmod(index, 2)
    top = step * max(1, math.ceil(round(highest / step, 6)))
    return Frame(column * PANEL_WIDTH, TOP + row * PANEL_HEIGHT, sizes, step, top)


def _grid(frame: Frame) -> list[str]:
    left, right = frame.x + LEFT - 8, frame.x + PANEL_WIDTH - RIGHT + 8
    parts = []
    for count in range(round(frame.highest / frame.step) + 1):
        value = count * frame.step
        y = frame.down(value)
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="quiet" x="{left - 6}" y="{y + 4}" text-anchor="end">{value:,g}</text>')
    bottom = frame.y + PANEL_HEIGHT - BELOW + 18
    parts += [
        f'<text class="quiet" x="{frame.across(size)}" y="{bottom}" text-anchor="middle">{size:,}</text>'
        for size in frame.sizes
    ]
    return parts


def _line(frame: Frame, panel: Panel, backend: Backend, kind: str) -> list[str]:
    places = [(frame.across(load.queued), frame.down(panel.quantity(load))) for load in backend.loads]
    points = " ".join(f"{x},{y}" for x, y in places)
    return [
        f'<polyline class="line {kind}" points="{points}"/>',
        *(f'<circle class="dot {kind}" cx="{x}" cy="{y}" r="4.5"/>' for x, y in places),
    ]


def _legend(backends: Sequence[Backend]) -> list[str]:
    parts, x = [], 26.0
    for backend, kind in zip(backends, _SERIES, strict=False):
        parts.append(f'<line class="line {kind}" x1="{x - 10}" x2="{x + 10}" y1="26" y2="26"/>')
        parts.append(f'<circle class="dot {kind}" cx="{x}" cy="26" r="4.5"/>')
        parts.append(f'<text x="{x + 18}" y="31">{escape(backend.name)}</text>')
        x += 54 + 8.2 * len(backend.name)
    parts.append(f'<text class="quiet" x="{WIDTH - 16}" y="31" text-anchor="end">by jobs in the queue</text>')
    return parts


def _summary(panel: Panel, backend: Backend) -> str:
    unit = f" {panel.unit}" if panel.unit else ""
    return ", ".join(
        f"{_short(panel.quantity(load))}{unit} at {load.queued:,} queued" for load in backend.loads
    )


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
