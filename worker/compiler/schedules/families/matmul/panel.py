"""Panels of the right operand of a product: how they lie in memory, and how a task copies one."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import Places, step_along, stride_bytes
from worker.compiler.schedules.families.matmul.plan import RightOperand
from worker.compiler.schedules.families.matmul.product import Product

_FAR_BYTES = 1024
"""Rows this far apart, or farther, fall into few sets of L1."""


def right_operand(product: Product) -> RightOperand:
    """How the right operand lies in memory; columns of dynamic size count as not contiguous."""
    if product.packed is not None:
        return RightOperand(columns=product.packed)
    if product.column.is_dynamic or not _is_contiguous(product):
        return RightOperand(contiguous=False)
    (load,) = nest.loads_of(product.right)
    return RightOperand(far=stride_bytes(load, product.depth) >= _FAR_BYTES)


def copy_panel(product: Product, columns: int, first: Any, batch: Places) -> tuple[Any, tirx.Stmt]:
    """Copy ``columns`` columns of the right operand; columns that do not exist become zeros.

    Args:
        product: the product.
        columns: the width of the panel.
        first: its first column.
        batch: values of the batch's variables.

    Returns:
        The buffer ``[depth, columns]``, and the statement that fills it.
    """
    dtype, index, depth = nest.dtype_of(product.right), product.index_dtype, product.depth.size
    panel = nest.workspace((depth, columns), dtype, "panel")
    width = columns if product.column.is_dynamic else min(columns, product.shape.columns)

    def element(step: Any, lane: Any) -> tirx.Stmt:
        places = {**batch, product.depth.var: step, product.column.var: first + lane}
        value = nest.substitute(product.right, places)
        if product.column.is_dynamic:
            is_inside = first + lane < product.column.size
            value = tirx.if_then_else(is_inside, value, nest.constant(0, dtype))
        return nest.store(panel, value, step, lane)

    def row(step: Any) -> tirx.Stmt:
        is_vector = _is_contiguous(product) and width == columns and not product.column.is_dynamic
        loop = nest.vectorized if is_vector else nest.unrolled
        return loop(width, lambda lane: element(step, lane), index)

    def blank(step: Any) -> tirx.Stmt:
        zero = nest.constant(0, dtype)
        return nest.vectorized(
            columns - width, lambda lane: nest.store(panel, zero, step, width + lane), index
        )

    def filled(step: Any) -> tirx.Stmt:
        return row(step) if width == columns else nest.sequence(row(step), blank(step))

    return panel, nest.serial(depth, filled, index)


def _is_contiguous(product: Product) -> bool:
    """Whether neighboring columns are adjacent in memory."""
    loads = nest.loads_of(product.right)
    return len(loads) == 1 and step_along(loads[0], product.column) == 1
