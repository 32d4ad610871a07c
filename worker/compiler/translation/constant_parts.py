"""Parts of a program that compute a constant in place, such as the masks of a Swin transformer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from worker.compiler.torch_views import changes_argument, writes_inputs

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

_aten = torch.ops.aten

_OF_ANY_TENSOR = frozenset((_aten.new_zeros.default, _aten.new_ones.default, _aten.new_full.default))
"""Operators that read only the dtype of a tensor."""

MAX_ELEMENTS = 1 << 22
"""The largest tensor that is computed."""


def evaluated(program: ExportedProgram) -> dict[Node, torch.Tensor]:
    """The nodes whose values follow from the program's lifted constants, with these values.

    Args:
        program: its sizes are fixed, and it changes no input.

    Returns:
        Nothing if no such node changes a tensor in place, or if one changes after another node has read it,
        or to something that is not known.
    """
    if not any(map(changes_argument, program.graph.nodes)):
        return {}
    names = program.graph_signature.inputs_to_lifted_tensor_constants
    values: dict[Node, torch.Tensor] = {}
    read: dict[Node, int] = {}
    changes = False
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in names:
            values[node] = program.constants[names[node.name]]
        elif (found := _value_of(node, values)) is not None:
            values[node] = found
            changes = changes or changes_argument(node)
        else:
            sources = [source for source in node.all_input_nodes if source in values]
            if sources and changes_argument(node):
                return {}
            read |= {
                each: read.get(each, values[each]._version) for each in sources if each.op != "placeholder"
            }
    is_stable = all(values[node]._version == version for node, version in read.items())
    is_output = any(source in read for source in program.graph.output_node().all_input_nodes)
    if not changes or not is_stable or is_output:
        return {}
    return {node: value for node, value in values.items() if node.op != "placeholder"}


def _value_of(node: Node, values: dict[Node, torch.Tensor]) -> torch.Tensor | None:
    """The value of a call on known tensors; None if it is unknown, large or random, or not a tensor."""
    function, own = node.target, node.meta.get("val")
    if not isinstance(function, torch._ops.OpOverload) or not isinstance(own, torch.Tensor):
        return None
    is_random = torch.Tag.nondeterministic_seeded in function.tags
    if own.numel() > MAX_ELEMENTS or is_random or own.device.type != "cpu":
        return None
    of_any = function in _OF_ANY_TENSOR
    if not of_any and any(source not in values for source in node.all_input_nodes):
        return None
    if writes_inputs(node):
        return None  # it would change the program's own constants

    def given(source: Node) -> Any:
        return torch.empty(0, dtype=source.meta["val"].dtype) if of_any else values[source]

    args, kwargs = map_arg((node.args, node.kwargs), given)
    with torch.no_grad():
        result = function(*args, **kwargs)
    return result if all(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(result)) else None
