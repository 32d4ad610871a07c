"""The names of calls in an exported program."""

from __future__ import annotations

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from worker.compiler.translation.rule import OF_COMPLEX


def operator_name(node: Node) -> str:
    """The operator of a call: the overload as ``torch.ops`` prints it, else the function's name."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return getattr(target, "__name__", str(target))


def rule_name(node: Node) -> str:
    """The name of the rule for a call."""
    return f"{operator_name(node)}{OF_COMPLEX}" if is_complex(node) else operator_name(node)


def is_complex(node: Node) -> bool:
    """Whether an argument or a result of a call is a complex tensor."""
    values = [one.meta.get("val") for one in (node, *node.all_input_nodes)]
    return any(isinstance(leaf, torch.Tensor) and leaf.is_complex() for leaf in pytree.tree_leaves(values))
