"""Lay weights of linear layers along the depth, as ``wgmma`` reads factors of tf32.

y = matmul(x, W)     →     y[..., n] = sum over k of x[..., k] * W'[n, k]
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax, te
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.compiler.layout.constants import array_of, constant_of
from worker.compiler.layout.relax_graph import operator_of, static_shape
from worker.compiler.schedules.gpu.chips import current_gpu

_FEW_ROWS = 16
"""Rows that multiply-adds take as fast as they read the weights."""


@tvm.transform.module_pass(opt_level=0, name="WeightsAlongDepth")
def weights_along_depth(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Transpose constant right factors of float32, where tensor cores may multiply them."""
    gpu = current_gpu()
    if gpu is None or not gpu.tf32 or not gpu.has_warpgroups:
        return module
    mover = _Mover(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            mover.builder_.update_func(variable, mover.visit_expr(function))
    return mover.builder_.get()


@mutator
class _Mover(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if operator_of(call) != "matmul" or str(call.ty.dtype) != "float32":
            return call
        data, weights = call.args[0], self._constant(call.args[1])
        sizes = static_shape(data)
        if weights is None or len(weights.value.shape) != 2 or sizes is None:
            return call
        if prod(sizes[:-1]) <= _FEW_ROWS:
            return call
        transposed = constant_of(np.ascontiguousarray(array_of(weights).T))
        return self.builder_.call_te(multiplied, data, transposed, primfunc_name_hint="matmul")

    def _constant(self, operand: relax.Expr) -> GenericConst | None:
        bound = self.lookup_binding(operand) if isinstance(operand, relax.Var) else operand
        return bound if isinstance(bound, GenericConst) and str(bound.value.dtype) == "float32" else None


def multiplied(data: te.Tensor, weights: te.Tensor) -> te.Tensor:
    """The product of rows with rows."""
    step = te.reduce_axis((0, weights.shape[1]), "k")

    def element(*place: Any) -> Any:
        *outer, column = place
        return te.sum(data(*outer, step) * weights(column, step), axis=step)

    return te.compute((*data.shape[:-1], weights.shape[0]), element, "matmul")
