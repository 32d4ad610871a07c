"""Counts the work of a TensorIR function's matrix products and convolutions. Emits no code."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, TensorLoad

from worker.compiler.schedules.annotations import OUTPUT, STRIDES

_FLOPS_PER_TERM = 2
_REDUCES = tirx.IterVar.CommReduce


@dataclass(frozen=True)
class Product:
    """A sum of products: its floating-point operations and the shapes of its operands and result."""

    flops: int
    shapes: str


def find_products(function: tirx.PrimFunc) -> tuple[Product, ...]:
    """The products of a function without a schedule, in order.

    A multiplication and an addition are two operations. Reads of a convolution's padding count, as is usual.
    Products with unknown sizes are left out.
    """
    found: list[Product] = []

    def visit(block: s_tir.SBlock) -> None:
        product = _read(block)
        if product is not None:
            found.append(product)

    tvm_ffi.structural_walk(function.body, (s_tir.SBlock, visit))
    return tuple(found)


def _read(block: s_tir.SBlock) -> Product | None:
    factors = _factors(block)
    extents = [axis.dom.extent for axis in block.iter_vars]
    if factors is None or not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return None
    shapes = [_shape(buffer) for buffer in (*factors, block.writes[0].source)]
    return Product(
        flops=_FLOPS_PER_TERM * prod(int(extent) for extent in extents) // _gap(block),
        shapes=f"{shapes[0]} · {shapes[1]} → {shapes[2]}",
    )


def _gap(block: s_tir.SBlock) -> int:
    """An output uses one in this many taps: the product of a transposed convolution's strides, else 1."""
    return prod(map(int, block.annotations[STRIDES])) if OUTPUT in block.annotations else 1


def _factors(block: s_tir.SBlock) -> tuple[Any, Any] | None:
    """The two buffers whose elements a block multiplies and sums."""
    if block.init is None or not any(axis.iter_type == _REDUCES for axis in block.iter_vars):
        return None
    total = getattr(block.body, "value", None)
    term = _guarded(total.b) if isinstance(total, tirx.Add) else None
    if not isinstance(term, tirx.Mul):
        return None
    left, right = _buffer(term.a), _buffer(term.b)
    return None if left is None or right is None or left.same_as(right) else (left, right)


def _guarded(term: Any) -> Any:
    """The term that is added under a condition."""
    is_conditional = isinstance(term, Call) and term.op.name == "prim.if_then_else"
    return term.args[1] if is_conditional else term


def _buffer(factor: Any) -> Any | None:
    """The only buffer that a factor reads; None if it reads several."""
    buffers: list[Any] = []
    tvm_ffi.structural_walk(factor, (TensorLoad, lambda load: buffers.append(load.source)))
    return buffers[0] if len(buffers) == 1 else None


def _shape(buffer: Any) -> str:
    return "x".join(str(getattr(size, "value", size)) for size in buffer.shape)
