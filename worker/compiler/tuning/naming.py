"""The names of what is searched."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx


def names_of(function: tirx.PrimFunc, module: tvm.IRModule) -> tuple[str, ...]:
    """The names of all functions of a module that compute what a function computes, in order.

    Equal functions are searched once.
    """
    names = (
        str(variable.name_hint)
        for variable, other in module.functions_items()
        if isinstance(other, tirx.PrimFunc)
        and tvm_ffi.structural_equal(other.body, function.body, map_free_vars=True)
    )
    return tuple(sorted(names))
