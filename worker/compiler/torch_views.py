"""Which calls of torch may return a view of an argument, or write to one."""

from __future__ import annotations

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

_ATEN = torch.ops.aten

NEVER_VIEWS = frozenset(
    {
        _ATEN.batch_norm.default,
        _ATEN.conv1d.default,
        _ATEN.conv2d.default,
        _ATEN.conv3d.default,
        _ATEN.group_norm.default,
        _ATEN.layer_norm.default,
        _ATEN.linear.default,
    }
)
"""Composite operators whose result is always memory of its own: ``relu_`` after one changes no input."""


def is_composite(operator: torch._ops.OpOverload) -> bool:
    """Whether an operator is made of others."""
    return operator.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)


def may_return_view(target: object) -> bool:
    """Whether the result of a call may share memory with an argument.

    Composite operators, such as ``dropout``, may return an argument although their schemas do not say so.
    """
    if not isinstance(target, torch._ops.OpOverload):
        return True
    if target in NEVER_VIEWS:
        return False
    return is_composite(target) or any(each.alias_info is not None for each in target._schema.returns)


def changes_argument(node: Node) -> bool:
    """Whether a call writes to one of its arguments, as its schema says."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def writes_inputs(node: Node) -> bool:
    """Whether a call may write to memory of the program's inputs: to one, or to what may be a view of one.

    A program that only fills tensors of its own, such as a mask, has no state.
    """
    if not changes_argument(node):
        return False
    target = node.target
    assert isinstance(target, torch._ops.OpOverload)
    arguments = zip(target._schema.arguments, node.args, strict=False)
    written = [given for argument, given in arguments if _is_written(argument)]
    written += [
        node.kwargs[each.name] for each in target._schema.arguments if _is_written_by_name(each, node)
    ]
    pending = [part for given in written for part in pytree.tree_leaves(given) if isinstance(part, Node)]
    seen = set[Node]()
    while pending:
        part = pending.pop()
        if part.op != "call_function":
            return True
        if part not in seen and may_return_view(part.target):
            pending += part.all_input_nodes
        seen.add(part)
    return False


def _is_written(argument: torch._C.Argument) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _is_written_by_name(argument: torch._C.Argument, node: Node) -> bool:
    return argument.name in node.kwargs and _is_written(argument)
