"""Writes the FX graphs of a model as a document and a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.fx.node import _get_qualified_name
from torch.utils import _pytree as pytree

from bessemer.contract.graph import (
    GRAPH,
    GRAPH_PICTURE,
    MAX_GRAPH_BYTES,
    MAX_INPUTS,
    MAX_NODES,
    MAX_TEXT,
    GraphListing,
    GraphNode,
    GraphValue,
    ModelGraph,
)
from bessemer.contract.model import ModelFormat
from worker.compiler.frontend.loaded_model import LoadedModel
from worker.compiler.frontend.structures import WithArguments
from worker.compiler.source_locations import place_of
from worker.snapshots.graph_picture import picture

if TYPE_CHECKING:
    from torch.export import ExportedProgram

Values = Mapping[str, object]


class GraphRecorder:
    """Rewrites ``graph.json`` and ``graph.svg`` for each graph, so a failed job keeps the earlier ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._graphs: dict[str | None, ModelGraph] = {}
        self._left_nodes, self._left_bytes = MAX_NODES, MAX_GRAPH_BYTES

    def add_upload(self, entry: str | None, model: LoadedModel, inputs: tuple[torch.Tensor, ...]) -> None:
        """Record an uploaded FX graph, with the shapes of one run; other formats have no such graph."""
        if model.format is ModelFormat.FX and isinstance(model.original, fx.GraphModule):
            self._add(entry, model.format, model.original.graph, _values_of_run(model, inputs), {})

    def add_program(self, entry: str | None, model: LoadedModel, program: ExportedProgram) -> None:
        """Record an exported program's graph, unless the upload's own is recorded."""
        signature = program.graph_signature
        held = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        values = {node.name: node.meta.get("val") for node in program.graph.nodes}
        self._add(entry, model.format, program.graph, values, held)

    def _add(
        self, entry: str | None, kind: ModelFormat, graph: fx.Graph, values: Values, held: Mapping[str, str]
    ) -> None:
        if entry in self._graphs:
            return
        nodes = tuple(self._bounded(_described(node, values, held) for node in graph.nodes))
        self._graphs[entry] = ModelGraph(entry=entry, format=kind, total=len(graph.nodes), nodes=nodes)
        listing = GraphListing(items=tuple(self._graphs.values()))
        (self._folder / GRAPH).write_text(listing.model_dump_json() + "\n", encoding="utf-8")
        (self._folder / GRAPH_PICTURE).write_text(picture(listing), encoding="utf-8")

    def _bounded(self, nodes: Iterator[GraphNode]) -> Iterator[GraphNode]:
        for node in nodes:
            size = len(node.model_dump_json())
            if self._left_nodes < 1 or self._left_bytes < size:
                return
            self._left_nodes -= 1
            self._left_bytes -= size
            yield node


def _described(node: fx.Node, values: Values, held: Mapping[str, str]) -> GraphNode:
    place = place_of(node)
    own_path = str(node.target) if node.op == "call_module" else None
    args = ", ".join((*map(_text, node.args), *(f"{key}={_text(one)}" for key, one in node.kwargs.items())))
    return GraphNode(
        name=_cut(node.name),
        op=node.op,
        target=_cut(_target(node)),
        args=_cut(args),
        inputs=tuple(_cut(one.name) for one in node.all_input_nodes[:MAX_INPUTS]),
        values=tuple(_tensors(values.get(node.name))),
        parameter=_cut(held[node.name]) if node.name in held else None,
        module_path=_cut(place.module_path or own_path or "") or None,
        source=_cut(f"{place.file}:{place.line}") if place.file else None,
    )


def _target(node: fx.Node) -> str:
    if isinstance(node.target, str):
        return node.target
    if isinstance(node.target, torch._ops.OpOverload):
        return str(node.target)
    try:
        return _get_qualified_name(node.target).removeprefix("_")  # `operator` calls itself `_operator`
    except (AttributeError, RuntimeError):
        return str(node.target)


def _text(argument: object) -> str:
    return repr(argument)[: MAX_TEXT + 1]


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def _tensors(value: object) -> Iterator[GraphValue]:
    tensors = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    for tensor in tensors[:MAX_INPUTS]:
        shape = tuple(size if type(size) is int else _cut(str(size)) for size in tensor.shape)
        yield GraphValue(shape=shape, dtype=str(tensor.dtype).removeprefix("torch."))


class _Recording(torch.nn.Module):
    """Runs a graph node by node, and keeps the shapes of what the nodes return."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__()
        self.values: dict[str, object] = {}
        self._module, values = module, self.values

        class Interpreter(fx.Interpreter):
            def run_node(self, n: fx.Node) -> Any:
                result = super().run_node(n)
                values[n.name] = pytree.tree_map_only(torch.Tensor, lambda one: one.to("meta"), result)
                return result

        self._run = Interpreter(module).run

    def forward(self, *tensors: torch.Tensor, **named: object) -> object:
        left = iter(tensors)
        placeholders = (node for node in self._module.graph.nodes if node.op == "placeholder")
        taken = [
            named[node.target] if node.target in named else next(left, *node.args) for node in placeholders
        ]
        return self._run(*taken)


def _values_of_run(model: LoadedModel, inputs: tuple[torch.Tensor, ...]) -> Values:
    """The values of an FX graph's nodes, without elements; up to the node that fails, if one does."""
    assert isinstance(model.original, fx.GraphModule)
    recording = _Recording(model.original)
    run = model.eager.around(recording) if isinstance(model.eager, WithArguments) else recording
    with suppress(Exception), torch.inference_mode(), torch.random.fork_rng(devices=[]):
        run(*(tensor.clone() for tensor in inputs))
    return recording.values
