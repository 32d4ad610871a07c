"""Finds how precisely a model computes its outputs: in the narrowest floating-point type on the way to each.

A model may compute in half precision and return float32, as many language models return logits::

    x: float32 → to bfloat16 → linear → to float32        computed in bfloat16
    weights: bfloat16 → to float32 → linear               computed in float32: nothing was rounded
    x > 0 → to bfloat16 → times a float32                 computed in float32: truths have no digits

Quantized tensors have about as many digits as bfloat16: what is computed from one counts as computed in it.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch
from torch import fx
from torch.export.graph_signature import OutputKind

from bessemer.contract.tensor import DType
from worker.compiler.quantized_operators import is_fake
from worker.compiler.values import RelaxProgram

if TYPE_CHECKING:
    from worker.compiler.values import Captured

_MOVES = frozenset(
    {"cat", "clone", "contiguous", "embedding", "gather", "index", "index_select", "reshape", "stack"}
)
"""Operators besides views that move numbers and round none."""

_BYTES = {torch.int8, torch.uint8}
_INTEGERS = {*_BYTES, torch.int32}
"""The dtypes of quantized numbers, and of sums of their products."""
_OF_BYTES = torch.bfloat16
"""The floating-point type that has about as many digits as a byte."""


def computed_dtypes(captured: Captured) -> tuple[DType, ...]:
    """The dtype whose rounding each output has: its own, or a narrower one that its values had before.

    An IRModule's outputs and the state have their own. If the program returns other values than the outputs,
    all have the narrowest dtype.
    """
    own = tuple(spec.dtype for spec in captured.output_specs)
    if isinstance(captured.program, RelaxProgram):
        return own
    found = _rounded(captured.program)
    returned = _returned(captured.program)
    values = len(own) - captured.states
    if len(returned) != values:
        returned = [None] * values
    narrowest = max(found.values(), key=_rounding, default=None)
    rounded = [narrowest if node is None else found.get(node) for node in returned]
    return (*map(_wider_rounding, own, rounded), *own[values:])


def _returned(program: torch.export.ExportedProgram) -> list[fx.Node | None]:
    """The nodes of the values that the model returns."""
    nodes = {node.name: node for node in program.graph.nodes}
    specs = program.graph_signature.output_specs
    return [nodes.get(spec.arg.name) for spec in specs if spec.kind is OutputKind.USER_OUTPUT]


def _rounded(program: torch.export.ExportedProgram) -> dict[fx.Node, torch.dtype]:
    """The narrowest floating-point type to which a node's values were rounded, where there is one."""
    found: dict[fx.Node, torch.dtype] = {}
    computed = _computed(program)
    for node in program.graph.nodes:
        own = [_OF_BYTES] if node in computed and _quantizes(node) else _floating(node)
        before = [found[each] for each in node.all_input_nodes if each in found]
        if node.op != "call_function" or not (own or _dtypes(node) & _INTEGERS):
            continue
        types = before if _moves(node) or _casts_truths(node) else [*before, *own]
        if types:
            found[node] = max(types, key=_rounding)
    return found


def _computed(program: torch.export.ExportedProgram) -> set[fx.Node]:
    """The inputs, the state and what depends on them; the rest is known when the model is compiled."""
    signature = program.graph_signature
    changed = set(signature.buffers_to_mutate.values())
    states = {name for name, buffer in signature.inputs_to_buffers.items() if buffer in changed}
    names = {*signature.user_inputs, *states}
    found: set[fx.Node] = set()
    for node in program.graph.nodes:
        if node.name in names or not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    return found


def _floating(node: fx.Node) -> list[torch.dtype]:
    return [dtype for dtype in _dtypes(node) if dtype.is_floating_point]


def _dtypes(node: fx.Node) -> set[torch.dtype]:
    value = node.meta.get("val")
    values = value if isinstance(value, list | tuple) else [value]
    return {each.dtype for each in values if isinstance(each, torch.Tensor)}


def _quantizes(node: fx.Node) -> bool:
    """Whether a node rounds floating-point numbers to bytes, or as if it did."""
    reads_floats = any(map(_floating, node.all_input_nodes))
    return reads_floats and (bool(_dtypes(node) & _BYTES) or is_fake(node))


def _casts_truths(node: fx.Node) -> bool:
    """Whether all that a node reads are truths, which every type holds."""
    values = [each.meta.get("val") for each in node.all_input_nodes]
    return bool(values) and all(
        isinstance(each, torch.Tensor) and each.dtype == torch.bool for each in values
    )


def _moves(node: fx.Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload):
        return node.target is operator.getitem
    name = node.target._schema.name.removeprefix("aten::")
    return name in _MOVES or (node.target.is_view and name != "to")


def _rounding(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps


def _wider_rounding(own: DType, computed: torch.dtype | None) -> DType:
    stated = getattr(torch, str(own))
    if computed is None or not stated.is_floating_point or _rounding(computed) <= _rounding(stated):
        return own
    return DType(str(computed).removeprefix("torch."))
