"""Mend what ``FuseOps`` does with sizes (TVM 0.27).

It orders calls by the tensors that they read, not by the sizes, so ``order_sizes`` moves the definition of a
size that depends on data before everything that uses it::

    y = fused(x, n)                      count = compact(mask)
    count = compact(mask)          →     shape = tensor_to_shape(count)
    shape = tensor_to_shape(count)       _ = match_cast(shape, [n])
    _ = match_cast(shape, [n])           y = fused(x, n)

``FuseTIR`` refuses a group that takes both sizes and numbers, so ``join_numbers`` makes the numbers sizes::

    fused(x, number, Shape([n]))   →     fused(x, Shape([n, number]))
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator


@tvm.transform.module_pass(opt_level=0, name="JoinNumbers")
def join_numbers(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Pass numbers to groups among their sizes."""
    groups = {name: one for name, one in module.functions_items() if _takes_both(one)}
    if not groups:
        return module
    others = {name: one for name, one in module.functions_items() if name not in groups}
    builder = relax.BlockBuilder(tvm.IRModule(others, attrs=module.attrs))
    joined = {
        name: builder.add_func(_with_joined_parameters(group), name.name_hint)
        for name, group in groups.items()
    }
    for name, function in others.items():
        if isinstance(function, relax.Function):
            builder.update_func(name, _Caller(builder.get(), joined).visit_expr(function))
    return builder.get()


def _takes_both(function: tvm.ir.BaseFunc) -> bool:
    if not isinstance(function, relax.Function):
        return False
    types = [parameter.ty for parameter in function.params]
    return bool(types) and isinstance(types[-1], relax.ShapeType) and any(map(_is_number, function.params))


def _is_number(expression: relax.Expr) -> bool:
    return isinstance(expression.ty, tvm.ir.PrimType)


def _with_joined_parameters(function: relax.Function) -> relax.Function:
    *others, last = function.params
    numbers = [one for one in others if _is_number(one)]
    sizes = relax.Var(last.name, relax.ShapeType([*last.ty.values, *numbers]))
    parameters = [*(one for one in others if not _is_number(one)), sizes]
    return relax.Function(parameters, function.body, function.ret_ty, function.is_pure, function.attrs)


@mutator
class _Caller(PyExprMutator):
    """Calls groups with their numbers among their sizes."""

    def __init__(self, module: tvm.IRModule, groups: dict[Any, Any]) -> None:
        super().__init__(module)
        self._groups = groups

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Join the numbers of a call of a group."""
        if call.op not in self._groups:
            return super().visit_call_(call)
        *others, last = map(self.visit_expr, call.args)
        sizes = relax.ShapeExpr([*last.values, *filter(_is_number, others)])
        return relax.Call(self._groups[call.op], [*(one for one in others if not _is_number(one)), sizes])


@tvm.transform.module_pass(opt_level=0, name="OrderSizes")
def order_sizes(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Move definitions of sizes before their uses in ``main``."""
    main = module["main"]
    if not _defines_sizes(main):
        return module
    blocks = [_ordered(block) for block in main.body.blocks]
    body = relax.SeqExpr(blocks, main.body.body)
    ordered = module.clone()
    ordered.update_func(
        module.get_global_var("main"),
        relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs),
    )
    return ordered


def _defines_sizes(main: relax.Function) -> bool:
    return isinstance(main.body, relax.SeqExpr) and any(
        isinstance(binding, relax.MatchCast) for block in main.body.blocks for binding in block.bindings
    )


def _ordered(block: relax.BindingBlock) -> relax.BindingBlock:
    """The bindings in their order, each after what it needs."""
    definers: dict[Any, relax.Binding] = {binding.var: binding for binding in block.bindings}
    for binding in block.bindings:
        if isinstance(binding, relax.MatchCast):
            for size in relax.analysis.definable_tir_vars_in_type(binding.ty):
                definers.setdefault(size, binding)
    done: dict[relax.Var, relax.Binding] = {}
    for first in block.bindings:
        pending = [first]
        while pending:
            binding = pending[-1]
            needed = (definers[one] for one in _needs(binding) if one in definers)
            absent = [one for one in needed if one.var not in done and not one.same_as(binding)]
            if absent:
                pending += absent[:1]
            else:
                done.setdefault(pending.pop().var, binding)
    return type(block)(list(done.values()))


def _needs(binding: relax.Binding) -> list[Any]:
    """The variables and sizes that a binding reads."""
    found: list[Any] = []
    tvm_ffi.structural_walk(binding.value, (relax.Var, found.append), (tirx.Var, found.append))
    if not isinstance(binding, relax.MatchCast):
        found += relax.analysis.tir_vars_in_type(binding.var.ty)
    return found
