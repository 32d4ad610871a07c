"""The products in a function of TensorIR: matrix products and convolutions, and how much work they are."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad

_FLOPS_PER_TERM = 2
_REDUCES = tirx.IterVar.CommReduce


@dataclass(frozen=True)
class Product:
    """A sum of products: its floating-point operations, and the shapes of what it reads and writes."""

    flops: int
    shapes: str


def find_products(function: tirx.PrimFunc) -> tuple[Product, ...]:
    """The products of a function that is not scheduled yet, in their order.

    A multiplication and an addition are two operations. What reads the padding of a convolution is counted,
    as is usual. A product with a size that is not known counts for nothing.
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
        flops=_FLOPS_PER_TERM * prod(int(extent) for extent in extents),
        shapes=f"{shapes[0]} · {shapes[1]} → {shapes[2]}",
    )


def _factors(block: s_tir.SBlock) -> tuple[Any, Any] | None:
    """The two buffers whose elements' products a block sums up."""
    if block.init is None or not any(axis.iter_type == _REDUCES for axis in block.iter_vars):
        return None
    total = getattr(block.body, "value", None)
    if not isinstance(total, tirx.Add) or not isinstance(total.b, tirx.Mul):
        return None
    left, right = _buffer(total.b.a), _buffer(total.b.b)
    return None if left is None or right is None or left.same_as(right) else (left, right)


def _buffer(factor: Any) -> Any | None:
    """The one buffer that a factor is read from."""
    buffers: list[Any] = []
    tvm_ffi.structural_walk(factor, (TensorLoad, lambda load: buffers.append(load.source)))
    return buffers[0] if len(buffers) == 1 else None


def _shape(buffer: Any) -> str:
    return "x".join(str(getattr(size, "value", size)) for size in buffer.shape)
