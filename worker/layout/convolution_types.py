"""What the rules of blocked operators work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray
from tvm import relax, tirx

from worker.layout.convolution_kernels import Tensor

Array = NDArray[Any]

_DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Blocked:
    """A tensor ``[N, C / lanes, H, W, lanes]``, of which ``channels`` channels mean something."""

    variable: relax.Var
    channels: int


class Image(NamedTuple):
    """A tensor ``[N, C, H, W]`` of known channels, rows and columns."""

    channels: int
    rows: int
    columns: int
    dtype: str


class Workbench(Protocol):
    """What a rule may ask for."""

    def lanes(self, dtype: str) -> int:
        """Elements of a type in one vector."""

    def blocked(self, operand: relax.Expr) -> Blocked | None:
        """The operand in blocks, where it is so already."""

    def block(self, operand: relax.Expr) -> Blocked | None:
        """The operand in blocks, converted if need be; None where it is no image."""

    def constant(self, operand: relax.Expr) -> Array | None:
        """The value of a constant."""

    def kernel(self, kernel: Callable[..., Tensor], name: str, *operands: relax.Expr) -> relax.Var:
        """Emit a call of a kernel."""

    def emit(self, call: relax.Call) -> relax.Var:
        """Emit a call of an operator on operands in blocks."""


Rule = Callable[[relax.Call, Workbench], Blocked | None]
"""Computes a call in blocks; None where it cannot be."""


def image_of(operand: relax.Expr) -> Image | None:
    """What an operand is as an image; None where it is none, or of a type without vectors of its own."""
    kind = operand.ty
    if not isinstance(kind, relax.TensorType) or kind.shape is None or kind.ndim != 4:
        return None
    if str(kind.dtype) not in _DTYPES or not isinstance(kind.shape, relax.ShapeExpr):
        return None
    sizes = list(kind.shape)[1:]
    if not all(isinstance(size, tirx.IntImm) for size in sizes):
        return None
    channels, rows, columns = map(int, sizes)
    return Image(channels, rows, columns, str(kind.dtype))
