"""Primitive functions: what they hold becomes one function of TensorIR."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.rewrites.rewrite import Match

PRIMITIVE = "Primitive"


def is_primitive(function: Any) -> bool:
    """Whether a function is a group already: nothing in it is matched again."""
    return bool(
        isinstance(function, relax.Function) and function.attrs and function.attrs.get(PRIMITIVE, False)
    )


def primitive_of(match: Match) -> tuple[relax.Function, tuple[relax.Var, ...]]:
    """A primitive function that computes what was matched, and what it is called with.

    Constants stay inside, so that weights can be packed.
    """
    variables = [*match.inside, match.root]
    outside: dict[relax.Var, relax.Var] = {}
    own = set(variables)
    for variable in variables:
        for operand in _variables_of(match.bound[variable]):
            if operand not in own and operand not in outside:
                outside[operand] = relax.Var(operand.name, operand.ty)
    return _function(match, variables, outside), tuple(outside)


def _function(
    match: Match, variables: list[relax.Var], outside: dict[relax.Var, relax.Var]
) -> relax.Function:
    builder = relax.BlockBuilder()
    inner: dict[relax.Var, relax.Expr] = dict(outside)
    with builder.function("group", list(outside.values()), attrs={PRIMITIVE: True}, private=True):
        with builder.dataflow():
            for variable in variables[:-1]:
                inner[variable] = builder.emit(_renamed(match.bound[variable], inner), variable.name)
            result = builder.emit_output(_renamed(match.bound[variables[-1]], inner))
        builder.emit_func_output(result)
    return builder.get()["group"]


def _variables_of(value: relax.Expr) -> list[relax.Var]:
    return [operand for operand in value.args if isinstance(operand, relax.Var)]


def _renamed(call: relax.Call, names: dict[relax.Var, relax.Expr]) -> relax.Call:
    operands = [names.get(one, one) if isinstance(one, relax.Var) else one for one in call.args]
    return relax.Call(call.op, operands, call.attrs, call.ty_args)


@tvm.transform.module_pass(opt_level=0, name="LiftConstants")
def lift_constants(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Make the constants of primitive functions their arguments: ``FuseTIR`` takes no others."""
    lifted = {
        variable: _lifted(function)
        for variable, function in module.functions_items()
        if is_primitive(function)
    }
    if not lifted:
        return module
    changed = module.clone()
    for variable, (function, _) in lifted.items():
        changed.update_func(variable, function)
    caller = _Caller(changed, {variable: constants for variable, (_, constants) in lifted.items()})
    for variable, function in changed.functions_items():
        if isinstance(function, relax.Function) and not is_primitive(function):
            changed.update_func(variable, caller.visit_expr(function))
    return changed


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

    def visit_constant_(self, constant: GenericConst) -> relax.Expr:
        self.constants.append(constant)
        self.parameters.append(relax.Var(f"param_{len(self.parameters)}", constant.ty))
        return self.parameters[-1]


@mutator
class _Caller(PyExprMutator):
    def __init__(self, module: tvm.IRModule, constants: dict[Any, tuple[GenericConst, ...]]) -> None:
        super().__init__(module)
        self._constants = constants

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        more = self._constants.get(call.op) if isinstance(call.op, tvm.ir.GlobalVar) else None
        return call if not more else relax.Call(call.op, [*call.args, *more], call.attrs, call.ty_args)
