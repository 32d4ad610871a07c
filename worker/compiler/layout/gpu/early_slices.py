"""Slice before a norm instead of after it, where only some rows of the norm are read.

    lv = nn.layer_norm(x, gamma, beta)                    lv = call_tir(rows, (x,))
    y = strided_slice(lv, axes=[1], begin=[0], end=[1])   y = nn.layer_norm(lv, gamma, beta)

A classifier that reads the first token of a sequence then normalizes one row.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, te, topi
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.compiler.layout.relax_graph import Graph, operator_of, read_graph, static_shape
from worker.compiler.schedules.annotations import OPAQUE, PATTERN

_PLAIN_ARGUMENTS = 4
"""The arguments of a slice without steps: the tensor, axes, begins and ends."""
_NORMS = ("nn.layer_norm", "nn.rms_norm", "nn.softmax")


@tvm.transform.module_pass(opt_level=0, name="EarlySlices")
def early_slices(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Move slices of rows in front of the norms that compute the rows."""
    mover = _Mover(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            mover.graph = read_graph(function)
            moved = relax.analysis.remove_all_unused(mover.visit_expr(function))
            mover.builder_.update_func(variable, moved)
    return mover.builder_.get()


@mutator
class _Mover(PyExprMutator):
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.graph = Graph({})

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        call = binding.value
        norm = self.graph.values.get(call.args[0]) if operator_of(call) == "strided_slice" else None
        if norm is None or not self._may_move(call, norm):
            super().visit_var_binding_(binding)
            return
        sliced = self._sliced(norm.args[0], call)
        others = [self.visit_expr(argument) for argument in norm.args[1:]]
        super().visit_var_binding_(
            relax.VarBinding(binding.var, relax.Call(norm.op, [sliced, *others], norm.attrs))
        )

    def _sliced(self, whole: relax.Expr, call: relax.Call) -> relax.Expr:
        """The slice as a kernel of its own: fused with a product, it would drop rows that are computed."""
        bounds = [[int(number) for number in part.fields] for part in call.args[1:4]]

        def cut(x: te.Tensor) -> te.Tensor:
            return topi.strided_slice(x, bounds[1], bounds[2], [1] * len(bounds[0]), bounds[0])

        attributes = {PATTERN: OPAQUE}
        copied = self.builder_.call_te(
            cut, self.visit_expr(whole), primfunc_name_hint="rows", primfunc_attrs=attributes
        )
        return self.builder_.emit(copied)

    def _may_move(self, call: relax.Call, norm: Any) -> bool:
        if operator_of(norm) not in _NORMS or self.graph.only_reader(call.args[0]) is None:
            return False
        rank = norm.args[0].ty.ndim
        axes = norm.attrs.axes if hasattr(norm.attrs, "axes") else [norm.attrs.axis]
        sizes = static_shape(norm.args[0])
        if sizes is None or len(call.args) > _PLAIN_ARGUMENTS:
            return False
        normalized = {int(axis) % rank for axis in axes}
        return normalized.isdisjoint({int(axis) % rank for axis in call.args[1].fields})
