"""Tensors created from a shape, a value or a range."""

from __future__ import annotations

from typing import Any

import torch
from tvm import relax

from worker.compiler.translation.dtypes import is_number
from worker.compiler.translation.emitter import Emitter
from worker.compiler.translation.rule import Rules, Translate, rules_of
from worker.compiler.translation.symbolic_shapes import is_size

_LARGEST_CONSTANT = 1 << 16
"""Largest number of elements that becomes a constant; larger sequences are computed at run time."""


def _filled(value: float) -> Translate:
    return lambda emit, *_: _full(emit, None, value)


def _full(emit: Emitter, size: Any, value: Any) -> Any:
    shape = emit.results[0].shape
    if not is_number(value) or not all(isinstance(axis, int) for axis in shape):
        return emit.stock()
    return emit.full(tuple(shape), value, emit.dtype)


def _empty(emit: Emitter, size: Any, *_: Any) -> Any:
    return emit.full(tuple(size), 0, emit.dtype)


def _sequence(emit: Emitter, *arguments: Any) -> Any:
    """``arange`` and ``linspace``, computed by torch at compile time."""
    shape = emit.results[0].shape
    if not all(map(is_number, arguments)) or not all(isinstance(axis, int) for axis in shape):
        return emit.stock()
    if shape.numel() > _LARGEST_CONSTANT:
        return emit.stock()
    values = emit.node.target(*arguments, dtype=emit.results[0].dtype)
    return relax.const(
        values.to(torch.float32).numpy() if values.dtype == torch.bfloat16 else values.numpy(), emit.dtype
    )


def _scalar(emit: Emitter, value: Any) -> Any:
    return emit.cast(value, emit.dtype) if is_number(value) or is_size(value) else emit.stock()


def _triangle(emit: Emitter, rows: int, columns: int, offset: int) -> Any:
    """The row and column indices of a triangle's elements."""
    return relax.const(
        emit.node.target(rows, columns, offset, dtype=emit.results[0].dtype).numpy(), emit.dtype
    )


RULES: Rules = rules_of(
    {
        "aten.full.default": _full,
        "aten.full_like.default": _full,
        "aten.zeros.default": _filled(0),
        "aten.zeros_like.default": _filled(0),
        "aten.ones.default": _filled(1),
        "aten.ones_like.default": _filled(1),
        "aten.new_zeros.default": _filled(0),
        "aten.new_ones.default": _filled(1),
        "aten.empty.memory_format": _empty,
        "aten.empty_like.default": _filled(0),
        "aten.arange.default": _sequence,
        "aten.arange.start": _sequence,
        "aten.arange.start_step": _sequence,
        "aten.linspace.default": _sequence,
        "aten.scalar_tensor.default": _scalar,
        "aten.tril_indices.default": _triangle,
        "aten.triu_indices.default": _triangle,
    }
)
