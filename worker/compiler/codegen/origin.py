"""Finds the places in the user's model that a fused function computes. Emits no code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import tvm
from torch._ops import OpOverload
from tvm import relax

from bessemer.contract.problem import SourcePlace
from worker.compiler.codegen.argument_checks import bindings_of
from worker.compiler.source_locations import place_of

if TYPE_CHECKING:
    from torch.fx import Node

MAX_PLACES = 100

_CALL = tvm.ir.Op.get("relax.call_tir")


def places_of(function: str, module: tvm.IRModule, nodes: Mapping[str, Node]) -> tuple[SourcePlace, ...]:
    """The places of the operators that a function computes, in the model's order.

    Fusion names a function's parameters after the variables that it reads. The operators that it computes lie
    between these variables and the ones that name its results in other functions. If no name identifies its
    results, all operators up to the model's outputs count, so that none is missed.

    Args:
        function: the function's name.
        module: legalized and fused.
        nodes: nodes of the exported program by the names of the variables that they became.

    Returns:
        Up to a hundred distinct places; empty if the names identify none.
    """
    results: set[relax.Expr] = set()
    read: dict[relax.Expr, str] = {}
    for binding in bindings_of(module):
        value = binding.value
        if isinstance(value, relax.TupleGetItem) and value.tuple_value in results:
            results.add(binding.var)
        if isinstance(value, relax.Call) and value.op == _CALL:
            read.update(_read(value, module))
            if value.args[0].name_hint == function:
                results.add(binding.var)
    passed = {nodes[name] for name in read.values() if name in nodes}
    ends = [nodes[name] for value, name in read.items() if value in results and name in nodes]
    program = list(next(iter(nodes.values())).graph.nodes) if nodes else []
    if results and not ends:
        ends = [node for node in _returned(program) if node not in passed]
    found = {node for end in ends for node in _between(passed, end)}
    return tuple(dict.fromkeys(place_of(node) for node in program if node in found))[:MAX_PLACES]


def _returned(program: list[Node]) -> list[Node]:
    return [value for node in program if node.op == "output" for value in node.all_input_nodes]


def _between(passed: set[Node], end: Node) -> set[Node]:
    """The nodes that a node depends on, back to those whose values pass between functions."""
    found: set[Node] = set()
    seen: set[Node] = set()
    waiting = [end]
    while waiting:
        node = waiting.pop()
        if node.op != "call_function" or node in seen or (node in passed and node is not end):
            continue
        if isinstance(node.target, OpOverload):
            found.add(node)
        seen.add(node)
        waiting.extend(node.all_input_nodes)
    return found


def _read(call: relax.Call, module: tvm.IRModule) -> dict[relax.Expr, str]:
    """The values that a call reads, each with the name of its parameter."""
    parameters = module[call.args[0]].params
    return {
        argument: str(parameter.name)
        for argument, parameter in zip(call.args[1].fields, parameters, strict=False)
    }
