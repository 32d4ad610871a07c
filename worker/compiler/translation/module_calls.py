"""Modules as calls: joins what an exported program computes in a module with a rule to one call of the rule.

``torch.export`` notes with every operator the modules that called it (``nn_module_stack``): the path, class
and number of each call. Decompositions and files keep the notes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch
from torch.export.graph_signature import InputKind
from torch.fx import Node

from worker.compiler.translation.names import operator_name

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Graph

    from worker.compiler.translation.rule import ModuleRule

_OWN_TENSORS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


class InnerCall(NamedTuple):
    """An operator that a module called, and its arguments that are not tensors, by their schema's names."""

    operator: str
    arguments: dict[str, Any]


@dataclass(frozen=True, eq=False)
class ModuleCall:
    """The target of a node that stands for one call of a module.

    Attributes:
        rule: translates the call.
        path: the module's path in the model.
        calls: what the module computed.
    """

    rule: ModuleRule
    path: str
    calls: tuple[InnerCall, ...]

    @property
    def __name__(self) -> str:
        return self.rule.type_name

    def __str__(self) -> str:
        return self.rule.type_name

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Make it callable, as a graph requires."""
        raise NotImplementedError("a target of a graph must be callable; nothing calls it")


class _Module(NamedTuple):
    """One call of a module: its key is unique within the program."""

    key: str
    path: str
    rule: ModuleRule


def join_modules(program: ExportedProgram, rules: Mapping[str, ModuleRule]) -> None:
    """Replace every call of a module that has a rule by one node, whose target is a ``ModuleCall``.

    The outermost module with a rule counts. The node takes each tensor that the module reads from outside
    once, in the order in which it first reads them, and by name its own parameters and buffers. A call stays
    as it is if it gives more than tensors, or if what it reads depends on what it gives.

    Args:
        program: changed in place.
        rules: rules by the name of the class, with its module or alone.
    """
    if not rules:
        return
    own = {
        spec.arg.name: spec.target
        for spec in program.graph_signature.input_specs
        if spec.kind in _OWN_TENSORS and isinstance(spec.target, str)
    }
    graph = program.graph_module.graph
    groups: dict[str, tuple[_Module, list[Node]]] = {}
    for node in graph.nodes:
        module = _outermost(node, rules)
        if module is not None:
            groups.setdefault(module.key, (module, []))[1].append(node)
    for module, nodes in groups.values():
        _join(graph, module, nodes, own)


def _outermost(node: Node, rules: Mapping[str, ModuleRule]) -> _Module | None:
    if node.op != "call_function":
        return None
    for key, (path, kind) in (node.meta.get("nn_module_stack") or {}).items():
        name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
        rule = rules.get(name) or rules.get(name.rpartition(".")[2])
        if rule is not None:
            return _Module(str(key), str(path), rule)
    return None


def _join(graph: Graph, module: _Module, nodes: list[Node], own: Mapping[str, str]) -> None:
    inside = set(nodes)
    outputs = [node for node in nodes if any(user not in inside for user in node.users)]
    read = dict.fromkeys(each for node in nodes for each in node.all_input_nodes if each not in inside)
    if not _can_join(graph, outputs, read):
        return
    tensors = {node: own[node.name] for node in read if node.name in own}
    named = dict(_names(tensors, module.path))
    inputs = [node for node in read if node not in tensors]
    target: Any = ModuleCall(module.rule, module.path, tuple(map(_inner_call, nodes)))
    with graph.inserting_before(outputs[0]):
        wanted = {name: node for name, node in named.items() if name in module.rule.keywords}
        call = graph.call_function(target, tuple(inputs), wanted)
    call.meta = dict(outputs[0].meta)
    if len(outputs) == 1:
        outputs[0].replace_all_uses_with(call)
    else:
        call.meta["val"] = tuple(node.meta["val"] for node in outputs)
        for place, node in enumerate(outputs):
            with graph.inserting_before(outputs[0]):
                item = graph.call_function(operator.getitem, (call, place))
            item.meta = dict(node.meta)
            node.replace_all_uses_with(item)
    for node in reversed(nodes):
        graph.erase_node(node)


def _can_join(graph: Graph, outputs: list[Node], read: Iterable[Node]) -> bool:
    """Whether the outputs are tensors, and everything that is read is known before the first of them."""
    if not outputs or not all(isinstance(node.meta.get("val"), torch.Tensor) for node in outputs):
        return False
    places = {node: place for place, node in enumerate(graph.nodes)}
    return all(places[node] < places[outputs[0]] for node in read)


def _names(tensors: Mapping[Node, str], path: str) -> Iterator[tuple[str, Node]]:
    """A module's own tensors by their names in it; a tensor that another module shares by its last name."""
    for node, target in tensors.items():
        is_own = not path or target.startswith(f"{path}.")
        name = target.removeprefix(f"{path}.") if is_own else target.rpartition(".")[2]
        yield name.replace(".", "_"), node


def _inner_call(node: Node) -> InnerCall:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return InnerCall(operator_name(node), {})
    given = list(node.args)
    arguments = {}
    for argument in target._schema.arguments:
        value = given.pop(0) if given else node.kwargs.get(argument.name, argument.default_value)
        if not isinstance(value, Node):
            arguments[argument.name] = value
    return InnerCall(operator_name(node), arguments)
