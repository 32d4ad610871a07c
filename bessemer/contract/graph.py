"""The FX graph of a model: the documents of ``inspect.graph``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import Field

from bessemer.contract.base import Document
from bessemer.contract.model import ModelFormat

GRAPH = "graph.json"
"""The artifact with the graphs: a ``GraphListing``."""

GRAPH_PICTURE = "graph.svg"
"""The artifact with their picture."""

MAX_NODES = 5000
MAX_GRAPH_BYTES = 1 << 22
"""The limit for all nodes of a compilation. Nodes beyond it are counted, but not kept."""

MAX_TEXT = 200
MAX_INPUTS = 64


class GraphValue(Document):
    """A tensor that a node returns."""

    shape: tuple[int | str, ...] = Field(description="Sizes; a dynamic size is an expression.")
    dtype: str = Field(max_length=MAX_TEXT, description="The dtype, such as `float32`.")

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class GraphNode(Document):
    """One node. Texts are cut at 200 characters."""

    name: str = Field(max_length=MAX_TEXT, description="The name, which is unique in the graph.")
    op: str = Field(
        max_length=MAX_TEXT,
        description="`placeholder`, `get_attr`, `call_module`, `call_function`, `call_method` or `output`.",
    )
    target: str = Field(max_length=MAX_TEXT, description="What the node calls or reads.")
    args: str = Field(max_length=MAX_TEXT, description="The arguments, as text.")
    inputs: tuple[str, ...] = Field(max_length=MAX_INPUTS, description="The nodes that it reads: at most 64.")
    values: tuple[GraphValue, ...] = Field(
        max_length=MAX_INPUTS, description="The tensors that it returns; empty if they are unknown."
    )
    parameter: str | None = Field(
        default=None, max_length=MAX_TEXT, description="The parameter or buffer that a placeholder holds."
    )
    module_path: str | None = Field(
        default=None, max_length=MAX_TEXT, description="The path in the model of the module that calls it."
    )
    source: str | None = Field(
        default=None, max_length=MAX_TEXT, description="File and line of the call, if the file records them."
    )

    @property
    def type(self) -> str:
        """The values in one line."""
        return ", ".join(map(str, self.values))


class ModelGraph(Document):
    """The graph of one entry point."""

    entry: str | None = Field(default=None, description="The entry point; null if the request names none.")
    format: ModelFormat = Field(
        description="`fx`: the uploaded graph. Otherwise the graph of the exported program."
    )
    total: int = Field(ge=0, description="The number of nodes of the graph.")
    nodes: tuple[GraphNode, ...] = Field(
        max_length=MAX_NODES, description="The nodes in order; fewer than `total` if the graph is too large."
    )

    @property
    def note(self) -> str:
        """What is left out; empty if nothing is."""
        left = self.total - len(self.nodes)
        return f"cut: {left:,} of {self.total:,} nodes are not shown" if left else ""


class GraphListing(Document):
    """The graphs of a compilation."""

    items: tuple[ModelGraph, ...] = Field(description="One for each entry point, in the request's order.")


def graph_rows(graph: ModelGraph) -> Iterator[Sequence[str]]:
    """A table of the nodes, as torch's ``print_tabular``, with the types of the values."""
    yield ("opcode", "name", "target", "args", "value", "module", "source")
    for node in graph.nodes:
        yield (
            node.op,
            node.name,
            node.target,
            node.args,
            node.type,
            node.module_path or "",
            node.source or "",
        )
