"""The arguments of an FX graph that are containers or constants.

A graph tells neither the type of an argument nor what it contains, but the names of a request's inputs do:
with ``batch.image`` and ``batch.mask``, ``batch`` is a dictionary. ``expand_arguments`` gives each tensor a
placeholder of its own::

    batch = placeholder                          batch_image = placeholder
    image = getitem(batch, "image")       =>     image = getitem({"image": batch_image}, "image")
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, get_origin

from torch import fx

from bessemer.contract.problem import ErrorCode
from bessemer.contract.structure import (
    ArgumentStructure,
    ConstantLeaf,
    Container,
    ContainerKind,
    Structure,
    TensorLeaf,
    tensor_names,
)
from worker.compiler.frontend.constants import refuse_unknown_constants
from worker.compiler.frontend.loaded_model import Argument
from worker.compiler.frontend.missing_values import missing_option
from worker.compiler.frontend.structures import MAX_DEPTH, as_constant, build
from worker.compiler.values import Selection
from worker.errors import JobError


def expand_arguments(
    graph_module: fx.GraphModule, selection: Selection
) -> tuple[tuple[ArgumentStructure, ...], tuple[Argument, ...]]:
    """Make every tensor in a container a placeholder, and fix constants.

    Returns:
        The structure of each argument, which is None as long as no inputs are named, and the tensors.

    Raises:
        JobError: ``inputs-mismatch`` if the names do not fit together.
    """
    placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    structures = {node: _argument(node, selection) for node in placeholders}
    known = [
        name for node in placeholders for name in _constants(str(node.target), structures[node], selection)
    ]
    refuse_unknown_constants(selection.constants, known)
    arguments: list[Argument] = []
    for node, structure in structures.items():
        if structure is None or structure == TensorLeaf(tensor=str(node.target)):
            arguments.append(Argument(str(node.target), required=not node.args))
        else:
            arguments.extend(map(Argument, tensor_names(structure)))
            _replace(graph_module.graph, node, structure)
    graph_module.recompile()
    described = (
        ArgumentStructure(name=str(node.target), structure=structure if selection.inputs else None)
        for node, structure in structures.items()
    )
    return tuple(described), tuple(arguments)


def _argument(node: fx.Node, selection: Selection) -> Structure | None:
    """The structure of an argument; None if it has a default and the request does not name it."""
    name = str(node.target)
    is_named = any(
        each == name or each.startswith(f"{name}.") for each in (*selection.inputs, *selection.constants)
    )
    if node.args and not is_named:
        return as_constant(node.args[0]) if selection.inputs else None
    return _value(name, selection, node, 0)


def _value(name: str, selection: Selection, node: fx.Node | None, depth: int) -> Structure:
    if name in selection.constants:
        return ConstantLeaf(constant=selection.constants[name])
    prefix = f"{name}."
    names = (*selection.inputs, *selection.constants)
    below = dict.fromkeys(each[len(prefix) :].partition(".")[0] for each in names if each.startswith(prefix))
    if not below:
        return TensorLeaf(tensor=name)
    if depth == MAX_DEPTH:
        detail = f"'{name}' is nested more than {MAX_DEPTH} levels deep"
        raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, detail)
    is_sequence = all(map(str.isdecimal, below))
    places = [str(index) for index in range(len(below))] if is_sequence else list(below)
    if not set(places) <= set(below):
        raise JobError(ErrorCode.INPUTS_MISMATCH, f"the values of '{name}' are not numbered from 0 on")
    return Container(
        container=_kind(node, is_sequence),
        keys=() if is_sequence else tuple(places),
        items=tuple(_value(f"{prefix}{place}", selection, None, depth + 1) for place in places),
    )


def _kind(node: fx.Node | None, is_sequence: bool) -> ContainerKind:
    if is_sequence:
        is_tuple = node is not None and get_origin(node.type) is tuple
        return ContainerKind.TUPLE if is_tuple else ContainerKind.LIST
    is_object = node is not None and any(user.target is getattr for user in node.users)
    return ContainerKind.OBJECT if is_object else ContainerKind.DICT


def _constants(name: str, structure: Structure | None, selection: Selection) -> Sequence[str]:
    """The names below an argument for which a request may have values."""
    if isinstance(structure, Container):
        return [each for each in selection.constants if each.startswith(f"{name}.")]
    return [name]


def _replace(graph: fx.Graph, node: fx.Node, structure: Structure) -> None:
    with graph.inserting_before(node):
        tensors = {name: graph.placeholder(re.sub(r"\W", "_", name)) for name in tensor_names(structure)}
    value: Any = build(structure, tensors)
    fields = {
        user: _field(value, str(user.args[1]), node) for user in node.users if _reads_field(user, structure)
    }
    values = {node: value, **fields}
    for user in graph.nodes:
        if user not in fields:
            user.args, user.kwargs = fx.map_arg((user.args, user.kwargs), lambda used: values.get(used, used))
    for replaced in (*fields, node):
        graph.erase_node(replaced)


def _field(value: Any, field: str, node: fx.Node) -> Any:
    if not hasattr(value, field):
        option = missing_option(str(node.target), field, ())
        detail = f"the model reads the field '{field}', which the request does not name: pass {option}"
        raise JobError(ErrorCode.INPUTS_MISMATCH, f"{detail}, or `--constant` for a number")
    return getattr(value, field)


def _reads_field(user: fx.Node, structure: Structure) -> bool:
    is_object = isinstance(structure, Container) and structure.container is ContainerKind.OBJECT
    return is_object and user.target is getattr
