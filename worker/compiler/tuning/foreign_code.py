"""Refuses traces that bring code along: one that another tenant shares must only rearrange a function.

A trace can hold expressions, such as the padding of a layout, and pragmas with the text of a program. What
these call would be in the library, and verification would not notice it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import TensorIntrin

PROGRAM_TEXT = "pragma_import"
"""The prefix of pragmas whose values are also compiled."""

CONDITIONS = frozenset({"prim.if_then_else", "prim.likely", "tirx.assume", "tirx.undef"})
"""Operators that schedules themselves add where sizes do not divide evenly."""

_TENSORIZE = "Tensorize"


def refuse_foreign_code(trace: Any, before: tvm.IRModule, after: tvm.IRModule) -> None:
    """Refuse a trace with which a function calls what it did not call before.

    Args:
        trace: TVM's JSON of the trace, parsed; it applies.
        before: the function's module.
        after: the module that the trace makes of it.

    Raises:
        ValueError: it calls something else, besides the tensor intrinsics that the trace names.
    """
    if PROGRAM_TEXT in json.dumps(trace):
        raise ValueError("the trace has a pragma with the text of a program")
    intrinsics = (TensorIntrin.get(name).impl for name in _intrinsics(trace[0]))
    own = CONDITIONS.union(calls_of(before), *(calls_of(tvm.IRModule({"main": each})) for each in intrinsics))
    foreign = sorted(calls_of(after) - own)
    if foreign:
        raise ValueError(f"the trace calls {foreign[0]}, which its function does not")


def calls_of(module: tvm.IRModule) -> frozenset[str]:
    """The operators that functions call; a call by name or number includes the name or number."""
    found: set[str] = set()

    def visit(call: Any) -> None:
        name = str(getattr(call.op, "name", call.op))
        named = "call_" in name and len(call.args) > 0
        found.add(f"{name} {call.args[0]}" if named else name)

    for function in module.functions.values():
        if isinstance(function, tirx.PrimFunc):
            tvm_ffi.structural_walk(function.body, (ir.Call, visit))
    return frozenset(found)


def _intrinsics(instructions: Sequence[Any]) -> set[str]:
    return {str(each[2][0]).strip('"') for each in instructions if each[0] == _TENSORIZE}
