"""The picture of a graph: lanes, texts, limits."""

from xml.etree import ElementTree

import pytest

from bessemer.cli.models import graph_lines
from bessemer.contract.graph import GraphListing, GraphNode, GraphValue, ModelGraph
from bessemer.contract.model import ModelFormat
from worker.snapshots.graph_picture import MAX_LANES, lay_out, picture

VALUE = GraphValue(shape=("s0", 4), dtype="float32")


def node(text: str, **fields: object) -> GraphNode:
    """A node such as ``add: x y``."""
    name, _, inputs = text.partition(":")
    plain = {"op": "call_function", "target": name, "args": inputs, "values": (VALUE,)}
    return GraphNode.model_validate({"name": name, "inputs": tuple(inputs.split())} | plain | fields)


def listing(*nodes: GraphNode, total: int | None = None, entry: str | None = None) -> GraphListing:
    graph = ModelGraph(entry=entry, format=ModelFormat.FX, total=total or len(nodes), nodes=nodes)
    return GraphListing(items=(graph,))


@pytest.mark.parametrize(
    ("texts", "lanes", "edges"),
    [
        (["x", "a: x", "b: a"], [0, 0, 0], [(), (0,), (0,)]),
        (["x", "a: x", "b: x", "c: a b"], [0, 1, 0, 0], [(), (0,), (0,), (1, 0)]),
        (["x", "y", "a: x", "b: y a"], [0, 1, 0, 0], [(), (), (0,), (1, 0)]),
        (["x", "unused: x", "a: x"], [0, 1, 0], [(), (0,), (0,)]),
        (["x", "a: x x", "b: missing a"], [0, 0, 0], [(), (0, 0), (0,)]),
    ],
    ids=["chain", "branch", "two inputs", "unused", "repeated"],
)
def test_a_value_has_a_lane_until_the_last_node_that_reads_it(
    texts: list[str], lanes: list[int], edges: list[tuple[int, ...]]
) -> None:
    rows = lay_out([node(text) for text in texts])
    assert [row.lane for row in rows] == lanes
    assert [row.edges for row in rows] == edges


def test_parameters_and_constants_have_no_lanes() -> None:
    held = [node("w", parameter="layer.weight"), node("c", op="get_attr")]
    rows = lay_out([*held, node("x"), node("a: x w c")])
    assert [row.last for row in rows] == [None, None, 3, None]
    assert rows[-1].edges == (0,)


def test_lanes_are_bounded() -> None:
    names = [f"x{number}" for number in range(2 * MAX_LANES)]
    rows = lay_out([*map(node, names), node(f"all: {' '.join(names)}")])
    assert max(row.lane for row in rows) == MAX_LANES
    assert len(rows[-1].edges) == MAX_LANES


def test_the_picture_is_xml_with_a_row_for_each_node() -> None:
    drawn = picture(listing(node("x"), node("a: x"), node("b: a x"), entry="decode"))
    root = ElementTree.fromstring(drawn)
    texts = ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "3 nodes of entry point decode"
    assert texts.count("float32[s0, 4]") == 3
    assert len(list(root.iter("{http://www.w3.org/2000/svg}circle"))) == 3


def test_hostile_names_are_text() -> None:
    hostile = node("x", target="<script>alert(1)</script>\x00\x1b[31m&", args='"<!--')
    drawn = picture(listing(hostile))
    ElementTree.fromstring(drawn)
    assert "<script" not in drawn
    assert "&lt;script&gt;" in drawn


def test_a_cut_graph_says_so() -> None:
    cut = listing(node("x"), total=12_000)
    assert "cut: 11,999 of 12,000 nodes are not shown" in picture(cut)
    assert list(graph_lines(cut))[-1] == "cut: 11,999 of 12,000 nodes are not shown"


def test_the_table_has_the_columns_of_print_tabular_and_the_values() -> None:
    lines = list(graph_lines(listing(node("x", op="placeholder"), node("a: x", source="net.py:7"))))
    assert lines[0].split() == ["opcode", "name", "target", "args", "value", "module", "source"]
    assert lines[2].split() == ["call_function", "a", "a", "x", "float32[s0,", "4]", "net.py:7"]
