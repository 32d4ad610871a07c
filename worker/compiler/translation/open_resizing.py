"""Resizing images of dynamic sizes, one axis after the other::

    nearest   result[i] = data[floor(i * scale)]
    linear    where = max(0, (i + 1/2) * scale - 1/2)                # corners aligned: i * scale
              low = floor(where)
              result[i] = data[low] + (data[low + 1] - data[low]) * (where - low)

``scale`` is the data's size divided by the result's, or one less of each if corners are aligned. Reads beyond
the last pixel give the last pixel.

Source: torch's ``aten/src/ATen/native/cpu/UpSampleKernel.cpp``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx

from worker.compiler.translation.dtypes import is_floating
from worker.compiler.translation.emitter import Emitter, dtype_of, shape_of
from worker.compiler.translation.errors import UntranslatableError


def has_open_sizes(data: relax.Expr, sizes: Sequence[Any] | None) -> bool:
    """Whether a size of the image or of the result is dynamic."""
    return not all(isinstance(size, int) for size in (*shape_of(data)[2:], *(sizes or ())))


def nearest(
    emit: Emitter, data: relax.Expr, sizes: Sequence[Any] | None, factors: Sequence[float | None] | None
) -> relax.Expr:
    """Read the nearest pixel before each.

    Raises:
        UntranslatableError: a factor is a fraction.
    """
    return _resized(emit, data, sizes, factors, _Nearest())


def linear(
    emit: Emitter,
    data: relax.Expr,
    sizes: Sequence[Any] | None,
    align_corners: bool,
    factors: Sequence[float | None] | None,
) -> relax.Expr:
    """Interpolate between the two nearest pixels of each axis.

    Raises:
        UntranslatableError: a factor is a fraction, or the image has integers.
    """
    if not is_floating(dtype_of(data)):
        raise UntranslatableError(f"linear resizing of {dtype_of(data)} with dynamic sizes")
    return _resized(emit, data, sizes, factors, _Linear(align_corners))


def _resized(
    emit: Emitter,
    data: relax.Expr,
    sizes: Sequence[Any] | None,
    factors: Sequence[float | None] | None,
    method: _Nearest | _Linear,
) -> relax.Expr:
    for number, old in enumerate(shape_of(data)[2:]):
        factor = factors[number] if factors else None
        if factor is not None and factor != int(factor):
            raise UntranslatableError(f"resizing dynamic sizes by {factor}, which is not a whole number")
        new = sizes[number] if sizes else old * int(factor or 1)
        data = emit.tensor_expression(_along(2 + number, method), data, new)
    return data


def _along(axis: int, method: _Nearest | _Linear) -> Any:
    def resize(data: te.Tensor, new: Any) -> te.Tensor:
        old = data.shape[axis]

        def element(*place: Any) -> Any:
            def pixel(index: Any) -> Any:
                return data(*place[:axis], tirx.min(index, old - 1), *place[axis + 1 :])

            return method.value(pixel, place[axis], old, tirx.convert(new))

        shape = [*data.shape[:axis], new, *data.shape[axis + 1 :]]
        return te.compute(shape, element, name="resized")

    return resize


@dataclass(frozen=True)
class _Nearest:
    def value(self, pixel: Any, index: Any, old: Any, new: Any) -> Any:
        scale = _real(old) / _real(new)
        return pixel((_real(index) * scale).astype("int64"))


@dataclass(frozen=True)
class _Linear:
    align_corners: bool

    def value(self, pixel: Any, index: Any, old: Any, new: Any) -> Any:
        if self.align_corners:
            one = tirx.const(1, "float32")
            where = _real(index) * ((_real(old) - one) / tirx.max(_real(new) - one, one))
        else:
            half, zero = tirx.const(0.5, "float32"), tirx.const(0, "float32")
            where = tirx.max((_real(index) + half) * (_real(old) / _real(new)) - half, zero)
        low = where.astype("int64")
        below, above = pixel(low), pixel(low + 1)
        share = (where - _real(low)).astype(str(below.ty.dtype))
        return below + (above - below) * share


def _real(size: Any) -> Any:
    return size.astype("float32")
