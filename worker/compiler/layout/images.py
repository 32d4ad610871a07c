"""Plain images ``[N, C, *sizes]``, and windows that slide over images of one to three dimensions.

A kernel on blocks has two image loops, whatever the number of dimensions: the last size is its columns, and
the product of the others its rows (``worker.compiler.schedules.nest``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tvm import relax, te, tirx
from tvm.sym import Analyzer

from worker.compiler.schedules.nest import Expression, Sizes, join_rows, rows_of, split_rows

Tensor = Any
Reader = Callable[..., Expression]
"""The element at ``(n, channel or block, place, *lane)``; a place has one index per dimension."""

HALVES = frozenset({"bfloat16", "float16"})
FLOATS = HALVES | {"float32", "float64"}
_DTYPES = FLOATS | {"int8", "uint8", "int16", "int32", "int64"}
SUMS = _DTYPES - {"bfloat16"}
"""The dtypes in which kernels on blocks add up: TVM (0.27) keeps bfloat16 as integers."""
AVERAGED = FLOATS & SUMS
"""Those in which they also divide."""
_RANKS = (3, 4, 5)
_OPEN_RANKS = (3, 4)
OPEN: Any = None
"""A size that is known only when the library runs; arithmetic with it raises an exception."""
IMAGE_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
"""Relax's names for plain images, by their number of dimensions."""


class Image(NamedTuple):
    """A tensor ``[N, C, *sizes]`` with known channels and one to three sizes.

    If one of at most two sizes is known only when the library runs, all are ``OPEN``.
    """

    channels: int
    sizes: Sizes
    dtype: str

    @property
    def is_open(self) -> bool:
        """Whether the sizes are ``OPEN``."""
        return OPEN in self.sizes


def image_of(operand: relax.Expr, may_be_open: bool = False) -> Image | None:
    """An operand as an image; None if it is not one, or if its sizes are open and may not be."""
    kind = operand.ty
    if not isinstance(kind, relax.TensorType) or kind.shape is None or kind.ndim not in _RANKS:
        return None
    if str(kind.dtype) not in _DTYPES or not isinstance(kind.shape, relax.ShapeExpr):
        return None
    channels, *sizes = list(kind.shape)[1:]
    if not isinstance(channels, tirx.IntImm):
        return None
    if all(isinstance(size, tirx.IntImm) for size in sizes):
        return Image(int(channels), tuple(map(int, sizes)), str(kind.dtype))
    if not may_be_open or kind.ndim not in _OPEN_RANKS:
        return None
    return Image(int(channels), (OPEN,) * len(sizes), str(kind.dtype))


@dataclass(frozen=True)
class Window:
    """A window of ``kernel`` taps that slides to ``output`` places; one number per dimension.

    The sizes of the image and of the output may be ``OPEN``; ``over`` replaces them by expressions.
    """

    image: Sizes
    kernel: Sizes
    strides: Sizes
    dilation: Sizes
    before: Sizes
    after: Sizes
    output: Sizes

    @property
    def is_open(self) -> bool:
        """Whether the image's sizes are known only when the library runs."""
        return any(size is OPEN for size in self.image)

    @property
    def has_known_sizes(self) -> bool:
        """Whether the image's sizes are numbers."""
        return all(isinstance(size, int) for size in self.image)

    def over(self, data: Tensor) -> Window:
        """The window with the sizes of an image, ``[N, C, rows, columns]`` or in blocks."""
        if not self.is_open:
            return self
        image = tuple(data.shape[4 - len(self.image) : 4])
        output = tuple(
            Analyzer().simplify((size + before + after - (taps - 1) * dilation - 1) // stride + 1)
            for size, before, after, taps, dilation, stride in zip(
                image, self.before, self.after, self.kernel, self.dilation, self.strides, strict=True
            )
        )
        return replace(self, image=image, output=output)

    @property
    def shape(self) -> Sizes:
        """Rows and columns of the result."""
        return rows_of(self.output), self.output[-1]

    @property
    def border(self) -> tuple[tuple[int, int], ...]:
        """Pixels to add before and after the image, as many as the last window needs if that is known."""
        if not self.has_known_sizes:
            return tuple(zip(self.before, self.after, strict=True))
        return tuple(
            (before, max(0, (output - 1) * stride + (taps - 1) * dilation + 1 - size - before))
            for size, taps, stride, dilation, before, output in zip(
                self.image, self.kernel, self.strides, self.dilation, self.before, self.output, strict=True
            )
        )

    def taps(self) -> tuple[te.IterVar, ...]:
        """The reductions over the window."""
        return tuple(te.reduce_axis((0, size), "tap") for size in self.kernel)

    def places(self, row: Expression, column: Expression, taps: Sequence[Expression]) -> list[Expression]:
        """The place of a tap on the bordered image."""
        indices = (*split_rows(row, self.output), column)
        return [
            index * stride + tap * dilation
            for index, stride, tap, dilation in zip(indices, self.strides, taps, self.dilation, strict=True)
        ]


def bordered(data: Tensor, sizes: Sizes, border: Sequence[tuple[int, int]], filler: Expression) -> Reader:
    """Read an image, in blocks or plain, with a border; a copy holds the border if there is one."""
    if not any(map(any, border)):
        return _reader(data, sizes)
    wide = tuple(size + before + after for size, (before, after) in zip(sizes, border, strict=True))
    plain, value = _reader(data, sizes), tirx.const(filler, str(data.dtype))

    def element(n: Any, c: Any, row: Any, column: Any, *lane: Any) -> Expression:
        place = (*split_rows(row, wide), column)
        inside = [
            condition
            for index, size, (before, after) in zip(place, sizes, border, strict=True)
            for condition, needed in ((index >= before, before), (index < size + before, after))
            if needed
        ]
        source = [index - before for index, (before, _) in zip(place, border, strict=True)]
        return tirx.if_then_else(tirx.all(*inside), plain(n, c, source, *lane), value)

    batch, channels, _, _, *lanes = data.shape
    shape = (batch, channels, rows_of(wide), wide[-1], *lanes)
    return _reader(te.compute(shape, element, name="border"), wide)


def _reader(data: Tensor, sizes: Sizes) -> Reader:
    def read(n: Any, c: Any, place: Sequence[Expression], *lane: Any) -> Expression:
        return data[(n, c, join_rows(place, sizes), place[-1], *lane)]

    return read


def pool_window_of(call: relax.Call) -> Window | None:
    """The window of a pool; None if the image has another layout, or open sizes that are rounded up."""
    attributes = call.attrs
    image, output = image_of(call.args[0], may_be_open=True), image_of(call, may_be_open=True)
    if image is None or output is None or attributes.layout != IMAGE_LAYOUTS[len(image.sizes)]:
        return None
    if image.is_open and attributes.ceil_mode:
        return None
    return Window(
        image.sizes,
        integers(attributes.pool_size),
        integers(attributes.strides),
        integers(attributes.dilation),
        *halves(attributes.padding),
        output.sizes,
    )


def halves(padding: Sequence[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding before and after."""
    values = integers(padding)
    return values[: len(values) // 2], values[len(values) // 2 :]


def integers(values: Sequence[Any]) -> tuple[int, ...]:
    """Attributes as Python integers."""
    return tuple(int(value) for value in values)
