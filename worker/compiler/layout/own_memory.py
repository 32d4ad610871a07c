"""Finds outputs in memory of their own, which a library's user may keep and change."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax

_ALLOCATES = frozenset({"relax.call_tir", "relax.call_dps_packed"})
_VIEWS = frozenset({"relax.reshape"})


def own_memory(function: relax.Function, kept: int = 0) -> tuple[bool, ...]:
    """For each output of an entry point: whether it shares memory with nothing that outlives the call.

    An output that may be an input, a state, a constant, or the memory of an earlier output does not count.

    Args:
        function: returns a tuple of tensors; its operators are lowered to calls of TensorIR functions.
        kept: the number of outputs at the end that are kept as state.
    """
    values = dict(relax.analysis.get_var2val(function))
    origins = [_origin(output, values) for output in _outputs(function, values)]
    count = len(origins) - kept
    earlier = [{*origins[count:], *origins[:place], None} for place in range(count)]
    owned = (origin not in others for origin, others in zip(origins[:count], earlier, strict=True))
    return (*owned, *(False for _ in range(kept)))


def _outputs(function: relax.Function, values: Mapping[relax.Var, relax.Expr]) -> tuple[relax.Expr, ...]:
    body = function.body.body
    while isinstance(body, relax.Var) and body in values:
        body = values[body]
    return tuple(body.fields) if isinstance(body, relax.Tuple) else ()


def _origin(output: relax.Expr, values: Mapping[relax.Var, relax.Expr]) -> relax.Var | None:
    """The variable whose value a call allocates for an output; None for all others."""
    while isinstance(output, relax.Var):
        value = values.get(output)
        if isinstance(value, relax.Var):
            output = value
        elif _allocates(values.get(value.tuple_value) if isinstance(value, relax.TupleGetItem) else value):
            return output
        elif isinstance(value, relax.Call) and _name(value) in _VIEWS:
            output = value.args[0]
        else:
            return None
    return None


def _allocates(value: relax.Expr | None) -> bool:
    return isinstance(value, relax.Call) and _name(value) in _ALLOCATES


def _name(call: relax.Call) -> str:
    return str(call.op.name) if isinstance(call.op, tvm.ir.Op) else ""
