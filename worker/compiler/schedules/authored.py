"""Tells TensorIR functions that their author has scheduled from functions that only state what to compute."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import s_tir, tirx

_OPAQUE_CALLS = frozenset(
    f"tirx.{name}"
    for name in (
        "address_of",
        "call_extern",
        "call_llvm_intrin",
        "call_llvm_pure_intrin",
        "call_pure_extern",
        "tvm_access_ptr",
        "tvm_call_cpacked",
        "tvm_call_packed",
    )
)
"""Calls whose effects schedules do not know."""


def is_authored(function: tirx.PrimFunc) -> bool:
    """Whether a schedule must keep a function as it is.

    Its author has scheduled it if a loop is parallel, vectorized, unrolled or bound to threads, a loop or a
    block has an annotation, or a block's axis is more than a loop's variable, as after a split. A function
    without blocks, or with opaque calls such as intrinsics, cannot be scheduled.
    """
    marks: list[bool] = [not (function.attrs and function.attrs.get("s_tir", False))]

    def loop(loop: tirx.For) -> None:
        marks.append(loop.kind != tirx.ForKind.SERIAL or bool(loop.annotations))

    def block(realize: s_tir.SBlockRealize) -> None:
        values = realize.iter_values
        marks.append(bool(realize.block.annotations) or not all(map(_is_loop, values)))

    def call(call: tvm.ir.Call) -> None:
        marks.append(isinstance(call.op, tvm.ir.Op) and call.op.name in _OPAQUE_CALLS)

    for kind, visit in ((tirx.For, loop), (s_tir.SBlockRealize, block), (tvm.ir.Call, call)):
        tvm_ffi.structural_walk(function.body, (kind, visit))
    return any(marks)


def _is_loop(value: tirx.PrimExpr) -> bool:
    return isinstance(value, tvm.ir.Var | tirx.IntImm)
