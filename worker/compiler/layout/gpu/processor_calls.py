"""Refuse what only processors can run: calls of TVM's runtime, which a kernel cannot make.

    main: lv = call_tir(argsort, (x,))          argsort: call_packed("tvm.contrib.sort.argsort", ...)

The rules for GPUs write sorts and scans as plain loops. What is left are rows too long to sort by rank, and
functions that a model's author or an extension wrote with calls of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import tvm
from tvm import relax, tirx

from bessemer.contract.problem import ErrorCode, SourcePlace
from worker.compiler.schedules.gpu.processor_loops import calls_of
from worker.errors import JobError

_CALL_TIR = ("relax.call_tir", "relax.call_tir_inplace")
_CALL_PACKED = "relax.call_dps_packed"


def refuse_processor_calls(module: tvm.IRModule, places: Mapping[str, SourcePlace]) -> None:
    """Check that kernels can do all that ``main`` calls.

    Args:
        module: the optimized module.
        places: the place in the user's model by variable of ``main``.

    Raises:
        JobError: ``operator-unsupported`` with every such call and its place.
    """
    found = tuple(_found(module))
    if not found:
        return
    known = tuple(places.get(variable) or SourcePlace(operator=variable) for variable, _ in found)
    calls = sorted({name for _, names in found for name in names})
    detail = (
        f"a GPU cannot call {', '.join(calls)}, which {', '.join(map(str, known))} needs: compile for a "
        "processor, or compute this part of the model without it"
    )
    raise JobError(ErrorCode.OPERATOR_UNSUPPORTED, detail, known)


def _found(module: tvm.IRModule) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The variables of ``main`` whose calls only processors can make, with what they call."""
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            names = _calls(module, binding.value)
            if names:
                yield str(binding.var.name), names


def _calls(module: tvm.IRModule, value: relax.Expr) -> tuple[str, ...]:
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return ()
    if value.op.name == _CALL_PACKED:
        return (str(getattr(value.args[0], "global_symbol", value.args[0])),)
    if value.op.name not in _CALL_TIR:
        return ()
    function = module[value.args[0]]
    return calls_of(function) if isinstance(function, tirx.PrimFunc) else ()
