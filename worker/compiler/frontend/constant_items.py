"""Numbers that a program reads from its constants: ``x[:, : self.width.item()]``.

``torch.export`` records each as a size or a number that only a run knows. It is known here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node, map_arg

from worker.compiler.torch_costs import linear_torch

_READS = (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)


def fold_items(program: ExportedProgram) -> ExportedProgram:
    """The program with numbers in place of reads of constants and of buffers that no run changes.

    Such a buffer is a constant of the result, as another value of it would not change the numbers.
    """
    reads = [node for node in program.graph.nodes if node.target in _READS]
    if not reads:
        return program
    values = _known_values(program, reads)
    numbers = {node: values[node] for node in reads if node in values}
    if not numbers:
        return program
    fixed = {node.name for node in _ancestors(list(numbers)) if node.op == "placeholder"}
    targets = {spec.target for spec in program.graph_signature.input_specs if spec.arg.name in fixed}
    graph = program.graph
    for node in graph.nodes:
        node.args, node.kwargs = map_arg((node.args, node.kwargs), lambda used: numbers.get(used, used))
    for node in reversed(list(numbers)):
        graph.erase_node(node)
    program.graph_module.recompile()
    with linear_torch():
        return _with_constants(program.run_decompositions({}), targets)


def _with_constants(program: ExportedProgram, targets: Collection[str | None]) -> ExportedProgram:
    """The program with some parameters and buffers as constants."""
    for spec in program.graph_signature.input_specs:
        if spec.target in targets and spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            spec.kind, spec.persistent = InputKind.CONSTANT_TENSOR, None
    moved = {name: value for name, value in program.state_dict.items() if name in targets}
    program._state_dict = {name: value for name, value in program.state_dict.items() if name not in moved}
    program._constants = {**program.constants, **{name: value.detach() for name, value in moved.items()}}
    return program


def _known_values(program: ExportedProgram, reads: list[Node]) -> dict[Node, Any]:
    """The values of reads, and of nodes on which they depend, that follow from constants alone."""
    tensors = _constants(program)
    wanted = _ancestors(reads)
    values: dict[Node, Any] = {}
    for node in program.graph.nodes:
        if node not in wanted:
            continue
        if node.op == "placeholder" and node.name in tensors:
            values[node] = tensors[node.name]
        elif _is_pure(node) and all(one in values for one in node.all_input_nodes):
            arguments, named = map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = node.target(*arguments, **named)
    return values


def _is_pure(node: Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
        return False
    draws = torch.Tag.nondeterministic_seeded in node.target.tags
    return not node.target._schema.is_mutable and not draws


def _constants(program: ExportedProgram) -> Mapping[str, Tensor]:
    """The tensors that no run changes, by placeholder. In place, a node may write to any tensor."""
    signature = program.graph_signature
    written = {
        one
        for node in program.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        for one in _ancestors([node])
    }
    changed = set(signature.buffers_to_mutate.values())
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    held = {**program.constants, **program.state_dict}
    return {
        spec.arg.name: held[spec.target]
        for spec in signature.input_specs
        if isinstance(held.get(spec.target), Tensor)
        and spec.target not in changed
        and nodes[spec.arg.name] not in written
    }


def _ancestors(nodes: list[Node]) -> set[Node]:
    seen: set[Node] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            pending.extend(node.all_input_nodes)
    return seen
