"""Lets TVM compile the last, shorter iteration of a loop separately.

    for tile in range(3):  # pragma_loop_partition_hint    →   for tile in range(2):
        for column in unroll(12):                                  for column in unroll(12):
            if tile * 12 + column < 27:                                sums[column] = ...
                sums[column] = ...                             for column in unroll(3):
                                                                   sums[column] = ...

TVM 0.27 narrows indices to 32 bits before it partitions loops. That replaces a loop's variable, but not in
the hint, so the hint names no loop and every iteration keeps its condition. ``partition_hinted_loops``
narrows first and corrects the hint. The passes that it takes from TVM's pipeline find nothing to do there.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from worker.compiler.schedules.annotations import PARTITION

_INDEX_BITS = 32
_NARROWING = tvm.transform.Sequential(
    [
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
        tirx.transform.NarrowDataType(_INDEX_BITS),
    ]
)


@tvm.transform.module_pass(opt_level=0, name="PartitionHintedLoops")
def partition_hinted_loops(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Lower the functions with hints as far as TVM partitions loops, so that the hints name the loops."""
    hinted = {
        variable: function
        for variable, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc) and _has_hint(function)
    }
    if not hinted:
        return module
    changed = module.clone()
    for variable, function in _NARROWING(tvm.IRModule(hinted)).functions_items():
        body = tvm_ffi.structural_map(function.body, (tirx.AttrStmt, _naming_its_loop))
        changed.update_func(variable, function.with_body(body))
    return changed


def _has_hint(function: tirx.PrimFunc) -> bool:
    found: list[tirx.For] = []
    tvm_ffi.structural_walk(
        function.body, (tirx.For, lambda loop: found.append(loop) if PARTITION in loop.annotations else None)
    )
    return bool(found)


def _naming_its_loop(statement: tirx.AttrStmt) -> tirx.AttrStmt:
    if statement.attr_key != PARTITION or not isinstance(statement.body, tirx.For):
        return statement
    return tirx.AttrStmt(statement.body.loop_var, PARTITION, statement.value, statement.body)
