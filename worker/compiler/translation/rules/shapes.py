"""Padding, concatenation, windows, and views by strides."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from tvm import relax, te
from tvm_ffi import structural_equal

from worker.compiler.translation.emitter import Emitter, axis_of, dtype_of, fixed, shape_of
from worker.compiler.translation.errors import UntranslatableError
from worker.compiler.translation.rule import Decomposition, Rules, rules_of


def padded(emit: Emitter, data: relax.Expr, widths: list[int], value: Any) -> relax.Expr:
    """Pad by pairs of widths, from the last axis on. Negative widths crop."""
    rank = len(shape_of(data))
    before, after = [0] * rank, [0] * rank
    for number in range(len(widths) // 2):
        before[rank - 1 - number], after[rank - 1 - number] = widths[2 * number : 2 * number + 2]
    cut = [axis for axis in range(rank) if min(before[axis], after[axis]) < 0]
    if cut:
        sizes = fixed(shape_of(data), "cutting a tensor")
        begin = [max(-before[axis], 0) for axis in cut]
        end = [sizes[axis] - max(-after[axis], 0) for axis in cut]
        data = emit(relax.op.strided_slice(data, cut, begin, end))
    pairs = [max(width, 0) for pair in zip(before, after, strict=True) for width in pair]
    if not any(pairs):
        return data
    if dtype_of(data) == "bool":
        padded = relax.op.nn.pad(emit.cast(data, "int8"), pairs, pad_value=int(value or 0))
        return emit.cast(emit(padded), "bool")
    return relax.op.nn.pad(data, pairs, pad_value=value or 0)


def _cat(emit: Emitter, tensors: list[relax.Expr], axis: int = 0) -> relax.Expr:
    """Concatenate in one dtype, without empty tensors, such as empty caches. A library cannot hold those."""
    filled = [tensor for tensor in tensors if 0 not in shape_of(tensor)]
    others = [tensor for tensor in tensors if shape_of(tensor) != (0,)]
    kept = [emit.cast(tensor, emit.dtype) for tensor in filled or others]
    if not kept:
        return tensors[0]
    return kept[0] if len(kept) == 1 else relax.op.concat(kept, axis_of(axis, len(shape_of(kept[0]))))


def _as_strided(
    emit: Emitter, data: relax.Expr, sizes: list[int], strides: list[int], offset: int | None
) -> relax.Expr:
    """Read the memory of a dense tensor by other strides."""
    if _are_same_view(emit.node.args[0].meta["val"], emit.node.meta["val"]):
        return data
    memory = _memory(emit, data)
    start = emit.node.args[0].meta["val"].storage_offset() if offset is None else offset
    last = start + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    if last >= shape_of(memory)[0]:
        raise UntranslatableError("as_strided beyond the elements of its tensor")

    def compute(flat: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            return flat(start + sum(place * stride for place, stride in zip(at, strides, strict=True)))

        return te.compute(tuple(sizes), element, name="strided")

    return emit.tensor_expression(compute, memory)


def _are_same_view(given: torch.Tensor, result: torch.Tensor) -> bool:
    """Whether two views of a memory have the same elements, whatever its dynamic sizes are."""
    if given.dim() != result.dim():
        return False
    axes = zip(given.shape, result.shape, given.stride(), result.stride(), strict=True)
    return statically_known_true(given.storage_offset() == result.storage_offset()) and all(
        statically_known_true(size == other)
        and (statically_known_true(size == 1) or statically_known_true(stride == wanted))
        for size, other, stride, wanted in axes
    )


def _memory(emit: Emitter, data: relax.Expr) -> relax.Expr:
    """The elements in torch's memory order."""
    tensor = emit.node.args[0].meta["val"]
    shape = fixed(shape_of(data), "as_strided")
    order = sorted(range(len(shape)), key=lambda axis: (-tensor.stride(axis), axis))
    sizes = [shape[axis] for axis in order]
    strides = [tensor.stride(axis) for axis in order]
    dense = [prod(sizes[place + 1 :]) for place in range(len(sizes))]
    has_gaps = any(
        stride != expected and size > 1 for stride, expected, size in zip(strides, dense, sizes, strict=True)
    )
    if has_gaps or tensor.storage_offset():
        raise UntranslatableError("as_strided of a view into another tensor")
    ordered = emit(relax.op.permute_dims(data, order)) if order != sorted(order) else data
    return emit(relax.op.reshape(ordered, (prod(shape),)))


def _view(emit: Emitter, data: relax.Expr, *_sizes: Any) -> Any:
    """Reshape to dynamic sizes; TVM compares fixed ones itself."""
    wanted = emit.sizes
    if wanted is None or all(isinstance(size, int) for size in wanted):
        return emit.stock()
    is_same = structural_equal(relax.ShapeExpr(wanted), data.ty.shape)
    return data if is_same else relax.op.reshape(data, wanted)


def _repeat(data: torch.Tensor, counts: list[int]) -> torch.Tensor:
    """Repeat a tensor; TVM repeats a fixed number of times itself."""
    if all(isinstance(count, int) for count in counts):
        return NotImplemented
    shape = [*[1] * (len(counts) - data.dim()), *data.shape]
    pairs = list(zip(counts, shape, strict=True))
    apart = data.reshape([part for size in shape for part in (1, size)])
    repeated = apart.expand([part for pair in pairs for part in pair])
    return repeated.reshape([count * size for count, size in pairs])


def _unfold(data: torch.Tensor, axis: int, size: int, step: int) -> torch.Tensor:
    """Windows along an axis, as a new last axis."""
    if not data.dim():
        return data.reshape(1)[:size]
    axis = axis % data.dim()
    count = (data.shape[axis] - size) // step + 1
    places = (torch.arange(count).unsqueeze(1) * step + torch.arange(size)).flatten()
    windows = data.index_select(axis, places)
    return windows.unflatten(axis, (count, size)).movedim(axis + 1, -1)


_COPIES: dict[str, Callable[..., Any]] = {
    "narrow_copy.default": torch.Tensor.narrow,
    "permute_copy.default": torch.Tensor.permute,
    "unbind_copy.int": torch.Tensor.unbind,
    "view_copy.default": torch.Tensor.reshape,
    "view_copy.dtype": torch.Tensor.view,
}
"""Operators that copy a view, with that view; torch decomposes the others."""

RULES: Rules = (
    *rules_of(
        {
            "aten.as_strided.default": _as_strided,
            "aten.as_strided_copy.default": _as_strided,
            "aten.cat.default": _cat,
            "aten.constant_pad_nd.default": padded,
            "aten.reshape.default": _view,
            "aten.view.default": _view,
        }
    ),
    Decomposition("aten.repeat.default", _repeat),
    Decomposition("aten.unfold.default", _unfold),
    *(Decomposition(f"aten.{name}", view) for name, view in _COPIES.items()),
)
