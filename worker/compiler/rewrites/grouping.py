"""Primitive functions: each becomes one function of TensorIR.

    lv = matmul(x, W); r = add(lv, B)     →     r = fused_linear_add(x)

``LiftConstants``, after layout, makes the constants inside arguments, since ``FuseTIR`` accepts no others:

    r = fused_linear_add(x)               →     r = fused_linear_add(x, W, B)

Functions that differ in their constants only become one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tvm
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.compiler.rewrites.rewrite import Match

PRIMITIVE = "Primitive"


def is_primitive(function: Any) -> bool:
    """Whether a function is a group already, in which rewrites match nothing."""
    return bool(
        isinstance(function, relax.Function) and function.attrs and function.attrs.get(PRIMITIVE, False)
    )


def primitive_of(match: Match) -> tuple[relax.Function, tuple[relax.Var, ...]]:
    """A primitive function that computes a match, and its arguments.

    Constants stay inside, so that weights can be packed.
    """
    variables = [*match.inside, match.root]
    outside: dict[relax.Var, relax.Var] = {}
    own = set(variables)
    for variable in variables:
        for operand in relax.analysis.free_vars(match.bound[variable]):
            if operand not in own and operand not in outside:
                outside[operand] = relax.Var(operand.name, operand.ty)
    return _function(match, variables, outside), tuple(outside)


def _function(
    match: Match, variables: list[relax.Var], outside: dict[relax.Var, relax.Var]
) -> relax.Function:
    builder = relax.BlockBuilder()
    inner = dict(outside)
    renamer = _Renamer(inner)
    with builder.function("group", list(outside.values()), attrs={PRIMITIVE: True}, private=True):
        with builder.dataflow():
            for variable in variables[:-1]:
                inner[variable] = builder.emit(renamer.visit_expr(match.bound[variable]), variable.name)
            result = builder.emit_output(renamer.visit_expr(match.bound[match.root]))
        builder.emit_func_output(result)
    return builder.get()["group"]


@mutator
class _Renamer(PyExprMutator):
    """Replaces the variables outside a group by those inside."""

    def __init__(self, names: dict[relax.Var, relax.Var]) -> None:
        super().__init__()
        self._names = names

    def visit_var_(self, variable: relax.Var) -> relax.Expr:
        return self._names.get(variable, variable)

    def visit_dataflow_var_(self, variable: relax.DataflowVar) -> relax.Expr:
        return self._names.get(variable, variable)


@tvm.transform.module_pass(opt_level=0, name="LiftConstants")
def lift_constants(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Make the constants in primitive functions arguments; functions that differ only in these become one."""
    groups = {gv: function for gv, function in module.functions_items() if is_primitive(function)}
    if not groups:
        return module
    others = {gv: function for gv, function in module.functions_items() if gv not in groups}
    builder = relax.BlockBuilder(tvm.IRModule(others, attrs=module.attrs))
    calls = {}
    for variable, group in groups.items():
        function, constants = _lifted(group)
        calls[variable] = _Lifted(builder.add_func(function, variable.name_hint), constants)
    for variable, function in others.items():
        if isinstance(function, relax.Function):
            builder.update_func(variable, _Caller(builder.get(), calls).visit_expr(function))
    return builder.get()


class _Lifted(NamedTuple):
    """The function that replaces a primitive one, and the constants that it takes."""

    function: tvm.ir.GlobalVar
    constants: tuple[GenericConst, ...]


def _lifted(function: relax.Function) -> tuple[relax.Function, tuple[GenericConst, ...]]:
    lifter = _Lifter()
    body = lifter.visit_expr(function.body)
    parameters = [*function.params, *lifter.parameters]
    lifted = relax.Function(parameters, body, function.ret_ty, function.is_pure, function.attrs)
    return lifted, tuple(lifter.constants)


@mutator
class _Lifter(PyExprMutator):
    def __init__(self) -> None:
        super().__init__()
        self.constants: list[GenericConst] = []
        self.parameters: list[relax.Var] = []

    def visit_generic_const_(self, constant: GenericConst) -> relax.Expr:
        self.constants.append(constant)
        self.parameters.append(relax.Var(f"param_{len(self.parameters)}", constant.ty))
        return self.parameters[-1]


@mutator
class _Caller(PyExprMutator):
    def __init__(self, module: tvm.IRModule, calls: dict[tvm.ir.GlobalVar, _Lifted]) -> None:
        super().__init__(module)
        self._calls = calls

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        lifted = self._calls.get(call.op) if isinstance(call.op, tvm.ir.GlobalVar) else None
        return call if lifted is None else relax.Call(lifted.function, [*call.args, *lifted.constants])
