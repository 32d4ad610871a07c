"""Keeps small local buffers on the stack, where LLVM turns them into registers.

TVM 0.27 allocates each buffer at run time, in every iteration of the parallel loop around it, and branches on
failure. A recurrent step with 100 of them spent more time on allocations than on arithmetic.
"""

from __future__ import annotations

from math import prod

import tvm
import tvm_ffi
from tvm import tirx

_MAX_BYTES = 4096
_ON_STACK = {"disable_lower_builtin": tirx.IntImm("bool", 1)}


@tvm.transform.module_pass(opt_level=0, name="KeepRegistersOnStack")
def keep_registers_on_stack(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Exempt small buffers of the scope ``local`` from ``LowerTVMBuiltin``, which allocates all others."""
    changed = module.clone()
    for variable, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc):
            body = tvm_ffi.structural_map(function.body, (tirx.AllocBuffer, _on_stack))
            changed.update_func(variable, function.with_body(body))
    return changed


def _on_stack(allocation: tirx.AllocBuffer) -> tirx.AllocBuffer:
    buffer = allocation.buffer
    if buffer.scope() != "local" or not all(isinstance(size, tirx.IntImm) for size in buffer.shape):
        return allocation
    dtype = tvm.DataType(str(buffer.dtype))
    size = prod(map(int, buffer.shape)) * dtype.lanes * dtype.bits // 8
    return allocation if size > _MAX_BYTES else tirx.AllocBuffer(buffer, _ON_STACK)
