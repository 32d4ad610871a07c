"""What the rules of blocked operators work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray
from tvm import relax, tirx

from worker.compiler.layout.convolution_window import Tensor
from worker.compiler.schedules.nest import Sizes

Array = NDArray[Any]

FLOATS = frozenset({"float16", "float32", "float64"})
_DTYPES = FLOATS | {"int8", "uint8", "int16", "int32", "int64"}
_RANKS = (3, 4, 5)


@dataclass(frozen=True)
class Blocked:
    """A tensor ``[N, C / lanes, rows, columns, lanes]``, of which ``channels`` channels mean something.

    ``sizes`` are the image's: rows are all of them but the last.
    """

    variable: relax.Var
    channels: int
    sizes: Sizes


class Image(NamedTuple):
    """A tensor ``[N, C, *sizes]`` of known channels and sizes, of one to three dimensions."""

    channels: int
    sizes: Sizes
    dtype: str


class BlockedGraph(Protocol):
    """What a rule may ask for."""

    def lanes(self, dtype: str) -> int:
        """Elements of a type in one block."""

    def blocked(self, operand: relax.Expr) -> Blocked | None:
        """The operand in blocks, where it is so already."""

    def block(self, operand: relax.Expr) -> Blocked | None:
        """The operand in blocks, converted if need be; None where it is no image."""

    def constant(self, operand: relax.Expr) -> Array | None:
        """The value of a constant."""

    def kernel(self, kernel: Callable[..., Tensor], name: str, *operands: relax.Expr) -> relax.Var:
        """Emit a call of a kernel."""

    def emit(self, call: relax.Expr) -> relax.Var:
        """Emit a call of an operator on operands as they are now."""

    def plain(self, operand: relax.Expr) -> relax.Expr:
        """The operand as it is now, not in blocks."""


Rule = Callable[[relax.Call, BlockedGraph], Blocked | None]
"""Computes a call in blocks; None where it cannot be."""


def image_of(operand: relax.Expr) -> Image | None:
    """What an operand is as an image; None where it is none, or of a type that numpy does not have."""
    kind = operand.ty
    if not isinstance(kind, relax.TensorType) or kind.shape is None or kind.ndim not in _RANKS:
        return None
    if str(kind.dtype) not in _DTYPES or not isinstance(kind.shape, relax.ShapeExpr):
        return None
    sizes = list(kind.shape)[1:]
    if not all(isinstance(size, tirx.IntImm) for size in sizes):
        return None
    channels, *image = map(int, sizes)
    return Image(channels, tuple(image), str(kind.dtype))
