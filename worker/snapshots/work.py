"""Estimates a program's work and memory from its graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from torch.fx import Graph, Node

_FLOPS_PER_TERM = 2
_TRANSPOSED = 6
"""The argument of ``aten.convolution`` that says whether it is transposed."""


def flops_of(node: Node) -> int:
    """Floating-point operations of a matrix product or a convolution: two per term, else 0.

    Terms that read the padding of a convolution count, as is usual. Dynamic sizes are the example's.
    """
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
        return 0
    count = _TERMS.get(node.target._schema.name.removeprefix("aten::"))
    return 0 if count is None else _FLOPS_PER_TERM * count(node)


def peak_bytes(graph: Graph, kept: frozenset[str]) -> int:
    """The peak memory of a graph's tensors.

    Each tensor lives from its creation to the last use of it or of one of its views.

    Args:
        graph: a graph whose nodes are in execution order.
        kept: the names of the placeholders that hold parameters and constants, which do not count.
    """
    owners = _owners(graph)
    last: dict[Node, int] = {}
    for index, node in enumerate(graph.nodes):
        for used in (node, *node.all_input_nodes):
            last[owners[used]] = index
    live = peak = 0
    for index, node in enumerate(graph.nodes):
        if owners[node] is node and node.name not in kept:
            live += _bytes(node)
        peak = max(peak, live)
        ended = {owners[used] for used in (node, *node.all_input_nodes) if last[owners[used]] == index}
        live -= sum(_bytes(one) for one in ended if one.name not in kept)
    return peak


def tensor_bytes(tensors: Iterable[object]) -> int:
    """The bytes of the elements of tensors."""
    return sum(_elements(tensor) * tensor.itemsize for tensor in tensors if isinstance(tensor, torch.Tensor))


def _owners(graph: Graph) -> dict[Node, Node]:
    """For each node, the node that owns the memory of its result."""
    owners: dict[Node, Node] = {}
    for node in graph.nodes:
        sources = node.all_input_nodes
        owners[node] = owners[sources[0]] if _is_view(node) and sources else node
    return owners


def _is_view(node: Node) -> bool:
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    returns = node.target._schema.returns
    return bool(returns) and all(one.alias_info is not None for one in returns)


def _bytes(node: Node) -> int:
    return 0 if node.op == "output" else tensor_bytes(pytree.tree_leaves(node.meta.get("val")))


def example_shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """The shape in a program; dynamic sizes are those of the example that it was exported for."""
    return tuple(map(_size, tensor.shape))


def _elements(tensor: torch.Tensor) -> int:
    return prod(example_shape(tensor))


def _size(size: Any) -> int:
    """A size; the example's if it is dynamic, 1 if the example's is unknown."""
    if isinstance(size, torch.SymInt):
        return int(size.node.hint or 1)
    return int(size)


def _shape(node: Node, argument: int) -> tuple[int, ...]:
    value = node.args[argument]
    return example_shape(value.meta["val"]) if isinstance(value, torch.fx.Node) else ()


def _result_elements(node: Node) -> int:
    return sum(_elements(leaf) for leaf in pytree.tree_leaves(node.meta["val"])[:1])


def _product(left: int) -> Callable[[Node], int]:
    """Terms of an operator that sums over the last axis of an argument for every element of the result."""
    return lambda node: _result_elements(node) * _shape(node, left)[-1]


def _convolution(node: Node) -> int:
    is_transposed = len(node.args) > _TRANSPOSED and node.args[_TRANSPOSED] is True
    return _transposed_convolution(node) if is_transposed else _plain_convolution(node)


def _plain_convolution(node: Node) -> int:
    return _result_elements(node) * prod(_shape(node, 1)[1:])


def _transposed_convolution(node: Node) -> int:
    return prod(_shape(node, 0)) * prod(_shape(node, 1)[1:])


def _attention(node: Node) -> int:
    keys = _shape(node, 1)[-2]
    return keys * (prod(_shape(node, 0)) + _result_elements(node))


_TERMS: dict[str, Callable[[Node], int]] = {
    **dict.fromkeys(("linear", "matmul", "mm", "bmm", "mv", "dot"), _product(0)),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), _product(1)),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _plain_convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed_convolution),
    "convolution": _convolution,
    "scaled_dot_product_attention": _attention,
}
"""How to count the terms of an operator's sums, by its name."""
