"""Recognize a matrix product in a function."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import TensorLoad

from worker.compiler.schedules import nest
from worker.compiler.schedules.annotations import PACKED, PACKED_GROUP
from worker.compiler.schedules.blocks import (
    Axis,
    Block,
    Places,
    are_axes,
    element_bits,
    has_branch,
    is_epilogue,
    read_blocks,
    store_result,
    uses,
)
from worker.compiler.schedules.families.matmul.plan import MatmulShape


@dataclass(frozen=True)
class Product:
    """The product in a function.

    ``left`` and ``right`` are the factors, expressions of the block's variables. Both may use ``batch`` and
    ``depth``; only the right one uses ``column``, only the left one ``rows``. ``epilogue`` is the elementwise
    block that reads the result, if any.
    """

    block: Block
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    column: Axis
    depth: Axis
    left: Any
    right: Any
    epilogue: Block | None

    @property
    def output(self) -> Any:
        """The buffer of the result."""
        return self.block.body.writes[0].source

    @property
    def index_dtype(self) -> str:
        """The dtype of the loops."""
        return nest.dtype_of(self.column.var)

    @property
    def dtype(self) -> str:
        """The dtype of the sums."""
        return str(self.output.dtype)

    @property
    def packed(self) -> int | None:
        """The width of a panel of the right operand; None if it is not packed."""
        columns = self.block.body.annotations.get(PACKED)
        return None if columns is None else int(columns)

    @property
    def packed_group(self) -> int:
        """The steps of the depth that are adjacent in a packed right operand."""
        return int(self.block.body.annotations.get(PACKED_GROUP, 1))

    @property
    def is_dynamic(self) -> bool:
        """Whether any size is known only at run time."""
        return self.block.is_dynamic

    @property
    def row_count(self) -> nest.Size:
        """The number of rows."""
        return prod(axis.size for axis in self.rows)

    @property
    def batch_count(self) -> nest.Size:
        """The number of products."""
        return prod(axis.size for axis in self.batch)

    @property
    def shape(self) -> MatmulShape:
        """The sizes that a plan depends on."""
        return MatmulShape(
            rows=_extent(self.rows),
            depth=self.depth.extent,
            columns=self.column.extent,
            bits=element_bits(self.block),
            batches=_extent(self.batch),
        )

    @property
    def stored(self) -> Any:
        """The statement that stores the result, after the epilogue if there is one."""
        return (self.block if self.epilogue is None else self.epilogue).body.body

    @property
    def written(self) -> Any:
        """The buffer of the result, after the epilogue if there is one."""
        return self.stored.buffer

    def result(self, value: Any, places: Places) -> tirx.Stmt:
        """Store an element of the output, given the element of the product."""
        return store_result(self.block, self.epilogue, places, value)

    def computed(self, value: Any, places: Places) -> Any:
        """An element of the output, given the element of the product."""
        if self.epilogue is None:
            return value
        pairs = zip(self.epilogue.axes, self.block.spatial, strict=True)
        own = {axis.var: places[of_block.var] for axis, of_block in pairs}
        return nest.replace_loads(nest.substitute(self.stored.value, own), self.output, nest.always(value))


def find_product(schedule: s_tir.Schedule) -> Product | None:
    """The product of a function of a product and at most an epilogue; None for other functions."""
    blocks = read_blocks(schedule, may_be_dynamic=True)
    if len(blocks) not in (1, 2):
        return None
    return read_product(*blocks)


def read_product(block: Block, epilogue: Block | None = None) -> Product | None:
    """The product of a block and its epilogue; None if they are something else."""
    if epilogue is not None and not is_epilogue(epilogue, block):
        return None
    factors = _factors(block)
    if factors is None or len(block.reduced) != 1 or not block.spatial:
        return None
    if not are_axes(block.body.body.indices, block.spatial):
        return None
    column, depth = block.spatial[-1], block.reduced[0]
    others = block.spatial[:-1]
    for left, right in (factors, factors[::-1]):
        if uses(right, column) and not uses(left, column) and uses(right, depth):
            batch = tuple(axis for axis in others if uses(right, axis))
            rows = tuple(axis for axis in others if not uses(right, axis))
            return Product(block, batch, rows, column, depth, left, right, epilogue)
    return None


def _factors(block: Block) -> tuple[Any, Any] | None:
    """The factors of a block that sums products."""
    body = block.body.body
    if not isinstance(body, tirx.BufferStore) or block.body.init is None or has_branch(block.body):
        return None
    total = body.value
    if not isinstance(total, tirx.Add) or not isinstance(total.b, tirx.Mul):
        return None
    previous = total.a
    if not isinstance(previous, TensorLoad) or not previous.source.same_as(body.buffer):
        return None
    return total.b.a, total.b.b


def _extent(axes: tuple[Axis, ...]) -> int:
    return prod(axis.extent for axis in axes)
