"""Draws FX graphs as SVG: a row for each node, and edges as lanes, as ``git log --graph`` draws branches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from bessemer.contract.graph import GraphListing, GraphNode, ModelGraph

ROW, LANE, TOP, LEFT = 20, 14, 34, 16
LETTER = 7.3
MAX_LANES = 24
"""Values that find no lane free are named in the text of the nodes that read them."""

COLUMNS = (("name", 30), ("op", 16), ("target", 44), ("value", 36), ("module", 30), ("source", 34))
COLORS = 6

STYLE = """
.fx{font:12px ui-monospace,"SF Mono",Menlo,"DejaVu Sans Mono",Consolas,monospace;--paper:#fff;--ink:#1a1f25;
--quiet:#626c76;--c0:#bf3f08;--c1:#2b6cb0;--c2:#1b7f4b;--c3:#8a4fb5;--c4:#9a6b00;--c5:#0f7f8c}
@media(prefers-color-scheme:dark){.fx{--paper:#191e23;--ink:#e8e5e0;--quiet:#9ba6b1;--c0:#ff8a4c;--c1:#7ab8ff;
--c2:#72d3a1;--c3:#d0a2f2;--c4:#e6bf5c;--c5:#6fd3de}}
.fx-paper{fill:var(--paper)}.fx text{fill:var(--ink);white-space:pre}.fx .q{fill:var(--quiet)}
.fx .h{font-weight:700}.fx path{fill:none;stroke-width:1.8}.fx circle{stroke:var(--paper);stroke-width:1.5}
"""


@dataclass(frozen=True)
class Row:
    """The place of a node.

    Attributes:
        lane: where its mark is.
        last: the row of the last node that reads its value; None if the value has no lane.
        edges: the lanes of the values that it reads.
    """

    lane: int
    last: int | None
    edges: tuple[int, ...]


def lay_out(nodes: Sequence[GraphNode]) -> tuple[Row, ...]:
    """Give each value a lane from its node to the last node that reads it.

    Parameters and constants get none: all of them would run through most of the picture.
    """
    index = {node.name: number for number, node in enumerate(nodes)}
    last = {name: number for number, node in enumerate(nodes) for name in node.inputs if name in index}
    busy: dict[int, str] = {}
    lanes: dict[str, int] = {}
    rows: list[Row] = []
    for number, node in enumerate(nodes):
        edges = tuple(lanes[name] for name in node.inputs if name in lanes)
        busy = {lane: name for lane, name in busy.items() if last[name] > number}
        free = next((lane for lane in range(MAX_LANES) if lane not in busy), None)
        drawn = free is not None and last.get(node.name, number) > number and not _is_held(node)
        if drawn and free is not None:
            busy[free] = node.name
            lanes[node.name] = free
        lane = MAX_LANES if free is None else free
        rows.append(Row(lane, last[node.name] if drawn else None, edges))
    return tuple(rows)


def _is_held(node: GraphNode) -> bool:
    return node.parameter is not None or node.op == "get_attr"


def picture(listing: GraphListing) -> str:
    """The graphs below one another, as a self-contained SVG."""
    drawn, top, width = [], 0, 0.0
    for graph in listing.items:
        rows = lay_out(graph.nodes)
        left = LEFT + LANE * (1 + max((row.lane for row in rows), default=0)) + 6
        width = max(width, left + LETTER * sum(size for _, size in COLUMNS))
        drawn += [f'<g transform="translate(0 {top})">', *_graph(graph, rows, left), "</g>"]
        top += TOP + ROW * (len(rows) + 2)
    size = f"{width:.0f} {top}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="fx" viewBox="0 0 {size}" width="{width:.0f}"'
    style = f'<style>{STYLE}</style><rect class="fx-paper" width="100%" height="100%"/>'
    return "\n".join((f'{head} height="{top}" role="img">', style, *drawn, "</svg>\n"))


def _graph(graph: ModelGraph, rows: Sequence[Row], left: float) -> Iterator[str]:
    title = f"{graph.total:,} nodes" + (f" of entry point {graph.entry}" if graph.entry else "")
    yield _text(LEFT, 18, " · ".join(filter(None, (title, graph.note))), "h")
    yield from _cells(left, TOP + 6, [heading for heading, _ in COLUMNS], "q")
    for number, row in enumerate(rows):
        yield from _edges(number, row)
    for number, (node, row) in enumerate(zip(graph.nodes, rows, strict=True)):
        yield from _node(number, node, row, left)


def _edges(number: int, row: Row) -> Iterator[str]:
    y = _y(number)
    if row.last is not None:
        yield _path(row.lane, f"M{_x(row.lane)} {y}V{_y(row.last) - ROW}")
    for lane in row.edges:
        middle = y - ROW // 2
        curve = f"C{_x(lane)} {middle} {_x(row.lane)} {middle} {_x(row.lane)} {y}"
        yield _path(lane, f"M{_x(lane)} {y - ROW}{curve}")


def _node(number: int, node: GraphNode, row: Row, left: float) -> Iterator[str]:
    y = _y(number)
    fill = "var(--quiet)" if _is_held(node) else f"var(--c{row.lane % COLORS})"
    yield f"<g><title>{_safe(f'{node.name} = {node.target}({node.args})')}</title>"
    yield f'<circle cx="{_x(row.lane)}" cy="{y}" r="{3 if _is_held(node) else 4.5}" fill="{fill}"/>'
    target = node.parameter or node.target
    cells = (node.name, node.op, target, node.type, node.module_path or "", node.source or "")
    yield from _cells(left, y + 4, cells, "q" if _is_held(node) else "")
    yield "</g>"


def _cells(left: float, y: float, cells: Sequence[str], kind: str) -> Iterator[str]:
    for cell, (heading, size) in zip(cells, COLUMNS, strict=True):
        if cell:
            keeps_end = heading in ("source", "module")
            yield _text(left, y, _cut(cell, size - 2, keeps_end), kind)
        left += LETTER * size


def _cut(text: str, size: int, keeps_end: bool) -> str:
    if len(text) <= size:
        return text
    return f"…{text[1 - size :]}" if keeps_end else f"{text[: size - 1]}…"


def _text(x: float, y: float, text: str, kind: str) -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{named}>{_safe(text)}</text>'


def _safe(text: str) -> str:
    """Text for XML, which allows no control characters."""
    return escape("".join(letter if letter.isprintable() else " " for letter in text))


def _path(lane: int, line: str) -> str:
    return f'<path stroke="var(--c{lane % COLORS})" d="{line}"/>'


def _x(lane: int) -> int:
    return LEFT + LANE * lane


def _y(number: int) -> int:
    return TOP + ROW * (number + 1)
