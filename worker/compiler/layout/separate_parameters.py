"""Parameters that are arguments of ``main``, and what depends on them alone.

``main(inputs..., parameters...)`` has the attribute ``num_input``. After legalization ``LiftTransformParams``
moves what depends on parameters alone, such as packed weights, into a function that runs once, when the
parameters are loaded. ``KeepResults`` runs before it:

    b = add(w, w)            b = add(w, w)
    return (b,)         →    lv = builtin.stop_lift_params(b)
                             return (lv,)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import tvm
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.parameters import PREPARE

INPUTS = "num_input"
"""TVM's attribute for the number of arguments before the parameters."""

Lookup = Callable[[relax.Var], relax.Expr | None]
"""The value that a variable is bound to; None for an argument."""


def parameters_of(function: relax.Function) -> frozenset[relax.Var]:
    """The arguments of a function that are parameters."""
    if not function.attrs or INPUTS not in function.attrs:
        return frozenset()
    return frozenset(function.params[int(function.attrs[INPUTS]) :])


def without_preparation(module: tvm.IRModule) -> tvm.IRModule:
    """The module without the function that runs once, when separate parameters are loaded."""
    kept = {name: function for name, function in module.functions_items() if name.name_hint != PREPARE}
    entries = [name.name_hint for name, function in kept.items() if isinstance(function, relax.Function)]
    return relax.transform.DeadCodeElimination(entries)(tvm.IRModule(kept, attrs=module.attrs))


class Derivation:
    """Tells which expressions depend on parameters and constants alone."""

    def __init__(self, parameters: Iterable[relax.Var], lookup: Lookup) -> None:
        self._lookup = lookup
        self._known: dict[relax.Var, bool] = dict.fromkeys(parameters, True)
        self.is_empty = not self._known

    def holds(self, expression: relax.Expr) -> bool:
        """Whether an expression has the same value in every run."""
        if isinstance(expression, GenericConst | relax.ShapeExpr):
            return True
        if isinstance(expression, relax.Var):
            return self._holds_for(expression)
        if isinstance(expression, relax.Call) and isinstance(expression.op, tvm.ir.Op):
            return all(map(self.holds, expression.args))
        return False

    def _holds_for(self, variable: relax.Var) -> bool:
        if variable not in self._known:
            bound = self._lookup(variable)
            self._known[variable] = bound is not None and self.holds(bound)
        return self._known[variable]


@relax.transform.function_pass(opt_level=0, name="KeepResults")
def keep_results(
    function: relax.Function, module: tvm.IRModule, _context: tvm.transform.PassContext
) -> relax.Function:
    """Keep the results in ``main`` if all of them depend on parameters alone.

    Otherwise ``LiftTransformParams`` lifts their tuple too and returns an undefined variable (TVM 0.27).
    """
    known = set(parameters_of(function))
    if not known or not isinstance(function.body, relax.SeqExpr):
        return function
    for block in function.body.blocks:
        for binding in block.bindings:
            value = getattr(binding, "value", None)
            if value is not None and known.issuperset(relax.analysis.free_vars(value)):
                known.add(binding.var)
    result = function.body.body
    return _Keeper(module, result).visit_expr(function) if result in known else function


@mutator
class _Keeper(PyExprMutator):
    def __init__(self, module: tvm.IRModule, result: relax.Var) -> None:
        super().__init__(module)
        self._result = result

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if binding.var.same_as(self._result) and isinstance(binding.value, relax.Tuple):
            first, *others = binding.value.fields
            kept = self.builder_.emit(relax.op.builtin.stop_lift_params(self.visit_expr(first)))
            binding = relax.VarBinding(binding.var, relax.Tuple([kept, *others]))
        super().visit_var_binding_(binding)
