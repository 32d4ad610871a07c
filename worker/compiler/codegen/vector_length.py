"""Stops code for SVE vectors of a known length on processors whose vectors are shorter.

LLVM puts fixed-length vectors into SVE registers and masks the excess. Shorter registers would hold only part
of each vector, and results would be wrong. So every function begins with::

    assert vscale * 128 >= bits
"""

from __future__ import annotations

import tvm
from tvm import tirx
from tvm.ir import StringImm

from worker.compiler.schedules.processors import machine_of

_GRANULE_BITS = 128


@tvm.transform.module_pass(opt_level=0, name="CheckVectorLength")
def check_vector_length(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Check the length of the registers in functions whose target has SVE's vectors of a known length."""
    changed = module.clone()
    for variable, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc) and function.attrs and "target" in function.attrs:
            machine = machine_of(function.attrs["target"])
            if machine.scalable:
                changed.update_func(variable, _checked(function, machine.vector_bits))
    return changed


def _checked(function: tirx.PrimFunc, bits: int) -> tirx.PrimFunc:
    message = f"the library needs SVE with vectors of {bits} bits or more"
    is_long = tirx.vscale() >= bits // _GRANULE_BITS
    check = tirx.AssertStmt(is_long, StringImm("RuntimeError"), [StringImm(message)])
    return function.with_body(tirx.SeqStmt([check, function.body]))
