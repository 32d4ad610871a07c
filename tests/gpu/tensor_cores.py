"""Matrices in the registers of a warp, as the PTX ISA lays them out ("Matrix Fragments for mma").

A layout says which row and column register ``i`` of lane ``l`` holds: with ``group = l // 4`` and ``member = l % 4``,
registers of 32 bits hold elements next to each other along k, and each matrix consists of 8 groups of rows (or
columns) by 4 members.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tests.gpu.faults import Fault, KernelFault
from tests.gpu.lanes import WARP, Lanes, Value, is_varying, spread
from tests.gpu.memory import Pointer, numpy_dtype

Layout = tuple[np.ndarray, np.ndarray]  # rows and columns, each by lane and register
_GROUP, _MEMBER = np.divmod(np.arange(WARP)[:, None], 4)


@dataclass(frozen=True)
class MatrixType:
    """An element type of ``mma``: its place in registers in bits, and what NumPy computes with."""

    dtype: np.dtype
    bits: int
    round_to_tf32: bool = False


PTX_TYPES = {
    **dict.fromkeys(("fp16", "float16", "f16"), MatrixType(np.dtype(np.float16), 16)),
    **dict.fromkeys(("bf16", "bfloat16"), MatrixType(numpy_dtype("bfloat16"), 16)),
    **dict.fromkeys(("tf32",), MatrixType(np.dtype(np.float32), 32, round_to_tf32=True)),
    **dict.fromkeys(("fp32", "float32", "f32"), MatrixType(np.dtype(np.float32), 32)),
    **dict.fromkeys(("int8", "s8"), MatrixType(np.dtype(np.int8), 8)),
    **dict.fromkeys(("uint8", "u8"), MatrixType(np.dtype(np.uint8), 8)),
    **dict.fromkeys(("int32", "s32"), MatrixType(np.dtype(np.int32), 32)),
    "e4m3": MatrixType(numpy_dtype("float8_e4m3fn"), 8),
    "e5m2": MatrixType(numpy_dtype("float8_e5m2"), 8),
}


@dataclass(frozen=True)
class MmaShape:
    """The sizes of ``mma``: C is m x n, A is m x k, B is k x n."""

    m: int
    n: int
    k: int

    @classmethod
    def parse(cls, text: str) -> MmaShape:
        found = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", text)
        if found is None or (found[1], found[2]) != ("16", "8"):
            raise KernelFault(Fault.UNSUPPORTED, f"mma {text}")
        return cls(*map(int, found.groups()))

    def a_layout(self, bits: int) -> Layout:
        """Registers of 32 bits run over rows ``group`` and ``group + 8`` first, then over the next columns."""
        packed = 32 // bits
        register, inside = np.divmod(np.arange(self.m * self.k // WARP), packed)
        rows = _GROUP + 8 * (register % 2)
        columns = packed * _MEMBER + 4 * packed * (register // 2) + inside
        return rows, columns

    def b_layout(self, bits: int) -> Layout:
        packed = 32 // bits
        register, inside = np.divmod(np.arange(self.k * self.n // WARP), packed)
        rows = packed * _MEMBER + 4 * packed * register + inside
        return rows, _GROUP + 0 * register

    def c_layout(self) -> Layout:
        place = np.arange(self.m * self.n // WARP)
        return _GROUP + 8 * (place // 2), 2 * _MEMBER + place % 2


def gather(
    lanes: Lanes, pointer: Pointer, layout: Layout, kind: MatrixType, shape: tuple[int, int]
) -> np.ndarray:
    """The matrices of the warps, from their registers."""
    memory, offset, dtype = pointer
    rows, columns = layout
    index = spread(offset, lanes.count)[:, None] + np.arange(rows.shape[1])
    values = memory.read(lanes, index, dtype).reshape(-1, *rows.shape)
    if dtype != kind.dtype:
        values = values.view(kind.dtype)
    matrices = np.empty((len(values), *shape), values.dtype)
    matrices[:, rows, columns] = values
    return to_tf32(matrices) if kind.round_to_tf32 else matrices


def scatter(lanes: Lanes, pointer: Pointer, layout: Layout, matrices: np.ndarray) -> None:
    """The matrices of the warps, into their registers."""
    memory, offset, dtype = pointer
    rows, columns = layout
    index = spread(offset, lanes.count)[:, None] + np.arange(rows.shape[1])
    memory.write(lanes, index, matrices[:, rows, columns].reshape(index.shape), dtype)


def to_tf32(values: np.ndarray) -> np.ndarray:
    """The 13 lowest bits of a float are ignored."""
    return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def multiply_add(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """A * B + C: products are exact, sums as wide as C or wider, and rounded to C's type at the end."""
    wide = np.int32 if c.dtype.kind in "iu" else np.float32
    return (np.matmul(a.astype(wide), b.astype(wide)) + c.astype(wide)).astype(c.dtype)


def load_matrices(lanes: Lanes, rows: Pointer, registers: Pointer, count: int, transposed: bool) -> None:
    """``ldmatrix``: lanes name rows of 16 bytes; each lane gets one pair of 16-bit elements of each matrix."""
    memory, at, dtype = rows
    target, offset, kind = registers
    packed = 16 // dtype.itemsize
    warps = lanes.count // WARP
    naming = np.arange(lanes.count) % WARP < 8 * count
    named = lanes.where(naming)
    index = spread(at, lanes.count)[naming][:, None] + np.arange(packed)
    data = memory.read(named, index, dtype)
    pairs = np.ascontiguousarray(data).view(np.uint16).reshape(warps, count, 8, 8)
    if transposed:
        pairs = pairs.swapaxes(2, 3)
    mine = pairs.reshape(warps, count, WARP, 2).transpose(0, 2, 1, 3).reshape(lanes.count, 2 * count)
    values = np.ascontiguousarray(mine).view(kind)
    target.write(lanes, spread(offset, lanes.count)[:, None] + np.arange(values.shape[1]), values, kind)


def warp_places(lanes: Lanes, warps: np.ndarray) -> np.ndarray:
    """The warps counted through the batch."""
    shape = lanes.batch.shape
    places: np.ndarray = warps - lanes.batch.first_block * shape.warps
    return places


def matrix_index(
    lanes: Lanes, start: Value, stride: int, shape: tuple[int, int], by_columns: bool
) -> tuple[Lanes, np.ndarray]:
    """A lane of each warp to stand for it, and the indices of the elements of its matrix, one row per warp."""
    first = np.arange(lanes.count) % WARP == 0
    begin = spread(start, lanes.count)
    if is_varying(start) and (begin.reshape(-1, WARP) != begin[first][:, None]).any():
        raise KernelFault(Fault.DIVERGENT, "the lanes of a warp name different matrices")
    row, column = np.indices(shape)
    offset = column * stride + row if by_columns else row * stride + column
    return lanes.where(first), begin[first][:, None] + offset.reshape(-1)
