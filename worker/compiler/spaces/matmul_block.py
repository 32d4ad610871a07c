"""Helpers for search spaces of matrix products."""

from __future__ import annotations

from typing import Any, NamedTuple

from tvm import s_tir

from worker.compiler.schedules.blocks import Block, block_names, read_block

_LOOPS = 3


class NoProductError(ValueError):
    """The function is not a product of two matrices that fits the space."""


class Product(NamedTuple):
    """The block that multiplies and sums, and the sizes of its three loops."""

    block: Any
    rows: int
    columns: int
    depth: int


def find_product(schedule: s_tir.Schedule) -> Product:
    """The product of a function: ``[rows, depth]`` by a matrix of any layout to ``[rows, columns]``.

    Raises:
        NoProductError: the function does not have exactly one product.
    """
    blocks = [read_block(schedule, schedule.get_sblock(name)) for name in block_names(schedule)]
    found = [block for block in blocks if block is not None and _is_product(block)]
    if len(found) != 1:
        raise NoProductError(f"{len(found)} of the blocks {', '.join(block_names(schedule))} are a product")
    rows, columns, depth = (axis.extent for axis in found[0].axes)
    return Product(found[0].handle, rows, columns, depth)


def require_multiples(product: Product, rows: int, columns: int, depth: int) -> None:
    """Refuse a product whose sizes are not multiples of a tile's.

    Raises:
        NoProductError: a size is not a multiple.
    """
    sizes, tile = (product.rows, product.columns, product.depth), (rows, columns, depth)
    if any(size % part for size, part in zip(sizes, tile, strict=True)):
        shown = (" by ".join(map(str, numbers)) for numbers in (sizes, tile))
        raise NoProductError("rows by columns by depth are {}, not multiples of {}".format(*shown))


def finish_at(schedule: s_tir.Schedule, block: Any, loop: Any) -> None:
    """Compute the chain of blocks that read a block's result in the same tile."""
    while consumers := schedule.get_consumers(block):
        (block,) = consumers
        schedule.reverse_compute_at(block, loop)


def _is_product(block: Block) -> bool:
    return len(block.axes) == _LOOPS and [axis.reduces for axis in block.axes] == [False, False, True]
