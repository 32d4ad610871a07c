"""Writing to places that are known or computed, and memory read by strides."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor
from tvm import relax, te

from worker.compiler.translation.emitter import Emitter, fixed, shape_of
from worker.compiler.translation.rule import Decomposition, Rules, rules_of
from worker.compiler.translation.untranslatable import UntranslatableError


def _put(data: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    flat = data.reshape(-1).index_put((index.reshape(-1),), source.reshape(-1), accumulate)
    return flat.reshape(data.shape)


def _index_reduce(
    data: Tensor, axis: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    if not data.dim():
        rows, sources = data.reshape(1), source.reshape(-1)
        return _index_reduce(rows, 0, index, sources, reduce, include_self=include_self).reshape(())
    shape = [1] * source.dim()
    shape[axis] = index.numel()
    places = index.reshape(shape).expand(source.shape)
    return data.scatter_reduce(axis, places, source, reduce, include_self=include_self)


def _diagonal_scatter(data: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    moved = data.movedim((dim1, dim2), (-2, -1))
    rows, columns = moved.shape[-2:]
    steps = torch.arange(source.shape[-1])
    places = (steps + max(-offset, 0)) * columns + steps + max(offset, 0)
    flat = moved.reshape(*moved.shape[:-2], rows * columns)
    written = flat.scatter(-1, places.expand(source.shape), source)
    return written.reshape(moved.shape).movedim((-2, -1), (dim1, dim2))


def _repeats(repeats: Tensor, *, output_size: int | None = None) -> Any:
    """Which place each element of the result comes from; how many there are only its caller can say."""
    if output_size is None:
        return NotImplemented
    return torch.searchsorted(repeats.cumsum(0), torch.arange(output_size), right=True)


def _nonzero_static(data: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The first ``size`` places, or ``fill_value`` behind the last one."""
    found = (data != 0).reshape(-1).to(torch.int64).cumsum(0)
    number = torch.arange(size)
    flat = torch.searchsorted(found, number + 1)
    places = []
    for length in reversed(data.shape):
        places.append(flat % length)
        flat = torch.div(flat, length, rounding_mode="floor")
    is_found = (number < found[-1]).unsqueeze(1)
    return torch.where(is_found, torch.stack(places[::-1], 1), fill_value)


def _as_strided(
    emit: Emitter, data: relax.Expr, sizes: list[int], strides: list[int], offset: int | None
) -> relax.Expr:
    """Elements of the memory that the data's values lie in, which must have no gaps."""
    memory = _memory(emit, data)
    start = emit.node.args[0].meta["val"].storage_offset() if offset is None else offset
    last = start + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    if last >= shape_of(memory)[0]:
        raise UntranslatableError("as_strided beyond what the tensor itself shows of its memory")

    def compute(flat: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            return flat(start + sum(place * stride for place, stride in zip(at, strides, strict=True)))

        return te.compute(tuple(sizes), element, name="strided")

    return emit.tensor_expression(compute, memory)


def _memory(emit: Emitter, data: relax.Expr) -> relax.Expr:
    """The elements in the order in which torch has them in memory."""
    tensor = emit.node.args[0].meta["val"]
    shape = fixed(shape_of(data), "as_strided")
    order = sorted(range(len(shape)), key=lambda axis: (-tensor.stride(axis), axis))
    sizes = [shape[axis] for axis in order]
    strides = [tensor.stride(axis) for axis in order]
    dense = [prod(sizes[place + 1 :]) for place in range(len(sizes))]
    has_gaps = any(ours != its and size > 1 for ours, its, size in zip(strides, dense, sizes, strict=True))
    if has_gaps or tensor.storage_offset():
        raise UntranslatableError("as_strided of a tensor that is a part of another one's memory")
    ordered = emit(relax.op.permute_dims(data, order)) if order != sorted(order) else data
    return emit(relax.op.reshape(ordered, (prod(shape),)))


def _as_strided_scatter(
    data: Tensor, source: Tensor, size: list[int], stride: list[int], storage_offset: int | None = None
) -> Tensor:
    if not data.is_contiguous():
        raise UntranslatableError("as_strided_scatter of a tensor that does not lie in row order")
    places = torch.full((), storage_offset or 0, dtype=torch.int64)
    for axis, (length, step) in enumerate(zip(size, stride, strict=True)):
        along = [1] * len(size)
        along[axis] = length
        places = places + (torch.arange(length) * step).reshape(along)
    flat = data.reshape(-1).scatter(0, places.reshape(-1), source.reshape(-1))
    return flat.reshape(data.shape)


_DECOMPOSITIONS: dict[str, Callable[..., Any]] = {
    "as_strided_scatter.default": _as_strided_scatter,
    "diagonal_scatter.default": _diagonal_scatter,
    "index_reduce.default": _index_reduce,
    "nonzero_static.default": _nonzero_static,
    "put.default": _put,
    "repeat_interleave.Tensor": _repeats,
}

RULES: Rules = (
    *rules_of({"aten.as_strided.default": _as_strided, "aten.as_strided_copy.default": _as_strided}),
    *(Decomposition(f"aten.{name}", compute) for name, compute in _DECOMPOSITIONS.items()),
)
