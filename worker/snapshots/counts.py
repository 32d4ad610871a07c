"""Counts what a module consists of."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.ir import GenericConst

from bessemer.contract.ir import IrCounts

_PACKED = frozenset(
    {"relax.call_tir", "relax.call_dps_packed", "relax.call_pure_packed", "relax.call_packed"}
)


def count_module(module: tvm.IRModule) -> IrCounts:
    """Count functions, calls, blocks, loops and constants. A constant that is used twice counts once."""
    counts: Counter[str] = Counter()
    constants: dict[Any, int] = {}
    for function in module.functions.values():
        if isinstance(function, relax.Function):
            counts["functions"] += 1
            _count_calls(function, counts, constants)
        elif isinstance(function, tirx.PrimFunc):
            counts["kernels"] += 1
            _count_nests(function, counts)
    return IrCounts(
        functions=counts["functions"],
        kernels=counts["kernels"],
        operators=counts["operators"],
        calls=counts["calls"],
        blocks=counts["blocks"],
        loops=counts["loops"],
        constants=len(constants),
        constant_bytes=sum(constants.values()),
    )


def _count_calls(function: relax.Function, counts: Counter[str], constants: dict[Any, int]) -> None:
    def visit(expression: relax.Expr) -> None:
        if isinstance(expression, GenericConst):
            constants[expression] = _bytes(expression)
        elif isinstance(expression, relax.Call):
            named = isinstance(expression.op, tvm.ir.Op) and expression.op.name not in _PACKED
            counts["operators" if named else "calls"] += 1

    relax.analysis.post_order_visit(function, visit)


def _bytes(constant: GenericConst) -> int:
    elements = constant.value
    dtype = tvm.runtime.DataType(str(elements.dtype))
    return (prod(int(size) for size in elements.shape) * dtype.bits * dtype.lanes + 7) // 8


def _count_nests(function: tirx.PrimFunc, counts: Counter[str]) -> None:
    def block(_block: s_tir.SBlock) -> None:
        counts["blocks"] += 1

    def loop(_loop: tirx.For) -> None:
        counts["loops"] += 1

    tvm_ffi.structural_walk(function.body, (s_tir.SBlock, block))
    tvm_ffi.structural_walk(function.body, (tirx.For, loop))
