"""Finds the places in the user's model that a fused function computes. Emits no code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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
    """The places of one function; see ``Origins.all``."""
    return Origins(module, nodes).all(function)


class Origins:
    """The operators that functions compute.

    Fusion names a function's parameters after the variables that it reads. The operators that it computes lie
    between these variables and the ones that name its results in other functions.

    Args:
        module: legalized and fused.
        nodes: nodes of the exported program by the names of the variables that they became.
    """

    def __init__(self, module: tvm.IRModule, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        self._read: dict[relax.Expr, str] = {}
        self._results: dict[str, set[relax.Expr]] = {}
        self._unnamed: set[str] = set()
        """Functions that read a value which no name identifies."""
        made_by: dict[relax.Expr, str] = {}
        inputs = {
            parameter
            for function in module.functions.values()
            if isinstance(function, relax.Function)
            for parameter in function.params
        }
        for binding in bindings_of(module):
            value = binding.value
            if isinstance(value, relax.TupleGetItem) and value.tuple_value in made_by:
                made_by[binding.var] = made_by[value.tuple_value]
            if isinstance(value, relax.Call) and value.op == _CALL:
                read, name = _read(value, module), str(value.args[0].name_hint)
                self._read.update(read)
                made_by[binding.var] = name
                if any(
                    isinstance(argument, relax.Var) and argument not in inputs and parameter not in nodes
                    for argument, parameter in read.items()
                ):
                    self._unnamed.add(name)
        for variable, name in made_by.items():
            self._results.setdefault(name, set()).add(variable)
        self._passed = {nodes[name] for name in self._read.values() if name in nodes}
        program = list(next(iter(nodes.values())).graph.nodes) if nodes else []
        self._order = {node: index for index, node in enumerate(program)}
        self._returned = [node for node in _returned(program) if node not in self._passed]

    def all(self, function: str) -> tuple[SourcePlace, ...]:
        """The places of the operators that a function computes, in the model's order.

        If no name identifies its results, all operators up to the model's outputs count, so that none is
        missed.

        Returns:
            Up to a hundred distinct places; empty if the names identify none.
        """
        ends = self._ends(function)
        return self._places(ends or (self._returned if function in self._results else ()))

    def certain(self, function: str) -> tuple[SourcePlace, ...]:
        """The same, but empty if a value that it reads or returns has no name, or if they contradict its own.

        Results that no function reads are the model's outputs. Passes number variables anew, so that one may
        have the name of another's node.
        """
        results = self._results.get(function, set())
        read = [value for value in results if value in self._read]
        if (
            function in self._unnamed
            or not results
            or any(self._read[each] not in self._nodes for each in read)
        ):
            return ()
        places = self._places((*self._ends(function), *(() if read else self._returned)))
        return places if agree(function, places) else ()

    def _ends(self, function: str) -> list[Node]:
        names = (self._read.get(value) for value in self._results.get(function, ()))
        return [self._nodes[name] for name in names if name is not None and name in self._nodes]

    def _places(self, ends: Iterable[Node]) -> tuple[SourcePlace, ...]:
        found = {node for end in ends for node in _between(self._passed, end)}
        ordered = sorted(found, key=self._order.__getitem__)
        return tuple(dict.fromkeys(map(place_of, ordered)))[:MAX_PLACES]


_KINDS = tuple(
    (re.compile(operator), re.compile(function))
    for operator, function in (
        (r"linear|addmm|matmul|\bb?mm\b|einsum|scaled_dot", r"linear|matmul|dense|einsum|attention"),
        (r"conv", r"conv"),
        (r"embedding|index|gather", r"take|gather|embedding"),
        (r"layer_norm|group_norm|rms_norm", r"norm"),
        (r"pool", r"pool"),
        (r"softmax|scaled_dot", r"softmax|attention"),
    )
)
"""Names of operators, and those of functions that compute them."""


def agree(function: str, places: tuple[SourcePlace, ...]) -> bool:
    """Whether the places have operators of exactly those kinds that the function's name has."""
    operators = " ".join(place.operator or "" for place in places)
    return all(
        bool(of_operator.search(operators)) == bool(of_function.search(function))
        for of_operator, of_function in _KINDS
    )


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
