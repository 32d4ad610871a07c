"""What a compiled module calls in the runtime."""

from __future__ import annotations

import re

import tvm
import tvm_ffi
from tvm import relax

from bessemer.contract.problem import ErrorCode
from worker.candidates.library import PARAMETER
from worker.errors import JobError

_GLOBALS = re.compile(r"^\s*Globals \(#\d+\): \[(?P<names>.*)\]$", re.MULTILINE)
_PACKED_CALLS = frozenset({"tirx.tvm_call_packed", "tirx.tvm_call_cpacked"})


def imported_functions(executable: relax.VMExecutable, module: tvm.IRModule) -> frozenset[str]:
    """The names of the runtime's functions that an executable's instructions and kernels call.

    Args:
        executable: the compiled module.
        module: the module.

    Raises:
        JobError: ``build-failed``: the executable does not list its calls. Without the list, the bundle could
            lack a runtime library.
    """
    listed = _GLOBALS.search(executable.stats())
    if listed is None:
        raise JobError(ErrorCode.BUILD_FAILED, "the executable does not say which functions it calls")
    called = set(filter(None, listed["names"].split(", ")))
    own = {PARAMETER, *(str(variable.name_hint) for variable in module.get_global_vars())}
    return frozenset((called - own) | packed_names(module))


def packed_names(module: tvm.IRModule) -> set[str]:
    """The names of the runtime's functions that a module's kernels call."""
    names: set[str] = set()

    def visit(call: tvm.ir.Call) -> None:
        if isinstance(call.op, tvm.ir.Op) and call.op.name in _PACKED_CALLS:
            names.add(str(call.args[0].value))

    for function in module.functions.values():
        if isinstance(function, tvm.tirx.PrimFunc):
            tvm_ffi.structural_walk(function.body, (tvm.ir.Call, visit))
    return names
