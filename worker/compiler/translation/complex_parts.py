"""Replaces the complex tensors of a program by their real and imaginary parts, before translation.

A complex parameter, buffer, input or output becomes a real tensor with a last axis of two, as
``torch.view_as_real`` gives it. Everything between them is computed on the two parts separately, so the
operators on real tensors, their rules and their schedules apply to complex numbers as well.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch._guards import detect_fake_mode
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from worker.compiler.translation.names import is_complex, rule_name
from worker.compiler.translation.rule import ComplexDecomposition, Parts

if TYPE_CHECKING:
    from torch.export import ExportedProgram

ComplexRules = Mapping[str, ComplexDecomposition]

_aten: Any = torch.ops.aten


def has_rule(node: Node, rules: ComplexRules) -> bool:
    """Whether a call involves no complex number, or has a rule for them."""
    return not is_complex(node) or node.target is operator.getitem or rule_name(node) in rules


def in_parts(program: ExportedProgram, rules: ComplexRules) -> ExportedProgram:
    """The program without complex tensors.

    Before: every call passes ``has_rule``, and the program is functional. After: no value is complex.
    """
    graph_module = program.graph_module
    graph = _PartsWriter(graph_module, rules).write()
    found = GraphModule(graph_module, graph)
    found.meta.update(graph_module.meta)
    results = pytree.tree_leaves(graph.output_node().args)
    specs = [
        replace(spec, arg=replace(spec.arg, name=result.name)) if isinstance(result, Node) else spec
        for spec, result in zip(program.graph_signature.output_specs, results, strict=True)
    ]
    return program._update(
        found,
        replace(program.graph_signature, output_specs=specs),
        state_dict=_as_real(program.state_dict),
        constants=_as_real(program.constants),
    )


class _PartsWriter:
    """Copies a graph, with the calls on complex tensors replaced."""

    def __init__(self, graph_module: GraphModule, rules: ComplexRules) -> None:
        self._nodes = graph_module.graph.nodes
        self._rules = rules
        self._graph = Graph()
        self._written: dict[Node, Any] = {}

    def write(self) -> Graph:
        """The new graph."""
        for node in self._nodes:
            self._written[node] = self._write(node)
        return self._graph

    def _write(self, node: Node) -> Any:
        if node.op == "output":
            return self._graph.output(tuple(map(self._whole, node.args[0])))
        if node.target is operator.getitem and isinstance(self._written[node.args[0]], tuple | list):
            return self._written[node.args[0]][node.args[1]]
        if node.target is _aten.select.int and (part := self._selected(node)) is not None:
            return part
        if node.op == "placeholder":
            return self._placeholder(node)
        if not is_complex(node):
            return self._graph.node_copy(node, self._written.__getitem__)
        return self._inline(node)

    def _selected(self, node: Node) -> Node | None:
        """The real or imaginary part that a call selects from ``view_as_real``, as ``.real`` does."""
        pairs, axis, place = node.args
        if not isinstance(pairs, Node) or pairs.target is not _aten.view_as_real.default:
            return None
        parts = self._written[pairs.args[0]]
        if axis not in (-1, pairs.meta["val"].dim() - 1):
            return None
        return parts[place]

    def _placeholder(self, node: Node) -> Any:
        pairs = self._graph.node_copy(node)
        pairs.name = node.name  # a copy of `input`, a name of Python's, gets another
        if not is_complex(node):
            return pairs
        pairs.meta["val"] = torch.view_as_real(node.meta["val"].resolve_conj())
        return self._traced(_split, (pairs,), node)

    def _whole(self, value: Any) -> Any:
        found = self._written[value] if isinstance(value, Node) else value
        return self._traced(_joined, (found,), value) if isinstance(found, Parts) else found

    def _inline(self, node: Node) -> Any:
        compute = self._rules[rule_name(node)].compute
        wanted = node.meta.get("val")

        def function(*arguments: Any, **named: Any) -> Any:
            return _like(compute(*arguments, **named), wanted)

        arguments, named = pytree.tree_map(
            lambda leaf: self._written[leaf] if isinstance(leaf, Node) else leaf, (node.args, node.kwargs)
        )
        return self._traced(function, arguments, node, named)

    def _traced(self, function: Callable[..., Any], arguments: Any, origin: Node, named: Any = None) -> Any:
        """Trace a function of the written nodes, append its graph, and return its results."""
        leaves, structure = pytree.tree_flatten((arguments, named or {}))
        given = [leaf for leaf in leaves if isinstance(leaf, Node)]
        found: list[Any] = []

        def flat(*tensors: torch.Tensor) -> list[torch.Tensor]:
            values = iter(tensors)
            positional, keywords = pytree.tree_unflatten(
                [next(values) if isinstance(leaf, Node) else leaf for leaf in leaves], structure
            )
            results, kind = pytree.tree_flatten(function(*positional, **keywords))
            found.append(kind)
            return results

        values = [node.meta["val"] for node in given]
        mode = detect_fake_mode([*values, *pytree.tree_leaves(origin.meta.get("val"))])
        with mode:
            traced = make_fx(flat)(*values)
        results = self._append(traced.graph, given, origin)
        return pytree.tree_unflatten(results, found[0])

    def _append(self, graph: Graph, given: list[Node], origin: Node) -> Any:
        copies: dict[Node, Node] = dict(zip(graph.find_nodes(op="placeholder"), given, strict=True))
        for node in graph.nodes:
            if node.op == "call_function":
                copies[node] = self._graph.node_copy(node, copies.__getitem__)
                copies[node].meta = {**origin.meta, "val": node.meta.get("val")}
        return [copies.get(result) for result in pytree.tree_leaves(graph.output_node().args)]


def _like(found: Any, wanted: Any) -> Any:
    """The results with the dtypes and shapes that torch gives."""
    if wanted is None:
        return None
    if not isinstance(wanted, torch.Tensor):
        return type(wanted)(_like(one, other) for one, other in zip(found, wanted, strict=True))
    if not wanted.is_complex():
        return found.real if isinstance(found, Parts) else found
    parts = found if isinstance(found, Parts) else Parts(found, torch.zeros_like(found))
    return Parts(*(_fitted(part, wanted) for part in parts))


def _fitted(part: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    cast = part.to(wanted.dtype.to_real())
    return cast if _sizes(cast) == _sizes(wanted) else cast.expand(wanted.shape)


def _sizes(tensor: torch.Tensor) -> list[Any]:
    """The sizes, dynamic ones as expressions: a comparison of symbols would become a call in the graph."""
    return [size if isinstance(size, int) else size.node.expr for size in tensor.shape]


def _split(pairs: torch.Tensor) -> Parts:
    return Parts(pairs.select(-1, 0), pairs.select(-1, 1))


def _joined(parts: Parts) -> torch.Tensor:
    return torch.stack(parts, -1)


def _as_real(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _pairs(value) for name, value in state.items()}


def _pairs(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_complex():
        return value
    pairs = torch.view_as_real(value.detach().resolve_conj()).contiguous()
    return torch.nn.Parameter(pairs, value.requires_grad) if isinstance(value, torch.nn.Parameter) else pairs
